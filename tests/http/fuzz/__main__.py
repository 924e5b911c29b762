"""Runs seeds: `python -m tests.http.fuzz 0 1000`, or `--seconds 60`. A seed that fails is run again by `… SEED`."""

import argparse
import sys
import time
from collections.abc import Sequence

from tests.http.fuzz.run import run


def main(words: Sequence[str]) -> int:
    """0 if all ways agree."""
    parser = argparse.ArgumentParser(prog="python -m tests.http.fuzz", description=__doc__, allow_abbrev=False)
    parser.add_argument("first", type=int, nargs="?", metavar="SEED", help="the first one [one that nobody has run]")
    parser.add_argument("end", type=int, nargs="?", metavar="END", help="run all seeds before it [the first alone]")
    parser.add_argument("--seconds", type=float, metavar="N", help="run for so long")
    asked = parser.parse_args(words)
    first = time.time_ns() // 1_000_000 if asked.first is None else asked.first
    end = None if asked.seconds is not None else first + 1 if asked.end is None else asked.end
    print(f"seeds from {first}", flush=True)
    tally = run(first, end, asked.seconds or 0.0, lambda said: print(said, flush=True))
    print(tally)
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
