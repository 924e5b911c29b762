"""Runs seeds: `python -m tests.interleavings.jobs FIRST [LAST]`, LAST left out. A seed that fails does so again."""

import logging
import sys
import traceback

from tests.interleavings.jobs.world import World


def main(first: int, last: int) -> int:
    logging.disable()
    failed = 0
    for seed in range(first, last):
        try:
            World(seed).run()
        except BaseException:
            failed += 1
            print(f"seed {seed} failed", flush=True)
            traceback.print_exc()
    print(f"{last - first} seeds, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    begin = int(sys.argv[1])
    sys.exit(main(begin, int(sys.argv[2]) if len(sys.argv) > 2 else begin + 1))
