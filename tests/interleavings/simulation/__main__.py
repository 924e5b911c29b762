"""Runs seeds: `python -m tests.interleavings.simulation 0 2000`. A failing one replays exactly with `… SEED`."""

import argparse
import logging
import os
import sys
import time
import traceback

from tests.interleavings.simulation.fleet import FleetSystem
from tests.interleavings.simulation.jobs import JobWorld
from tests.interleavings.simulation.system import System


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.interleavings.simulation", description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int, nargs="?", help="without it just the first, with the product's log")
    parser.add_argument("--fleet", action="store_true", help="several processes on a Redis, instead of one overlay")
    parser.add_argument("--jobs", action="store_true", help="workers that do one job")
    asked = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets of strings have an order of their own in each process
        os.execve(
            sys.executable, [sys.executable, "-m", "tests.interleavings.simulation", *sys.argv[1:]], os.environ | _FIXED
        )
    end = asked.first + 1 if asked.end is None else asked.end
    logging.basicConfig(level="DEBUG" if asked.end is None else "CRITICAL")
    begun, calls, failed = time.process_time(), 0, 0
    exact = inexact = 0
    for seed in range(asked.first, end):
        system = system_of(seed, asked)
        try:
            system.run()
        except BaseException as error:
            failed += 1
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
            if asked.end is None or not isinstance(error, Exception):
                traceback.print_exc()
        calls += system.network.calls
        if isinstance(system, System):
            exact, inexact = exact + system.history.exact, inexact + system.history.inexact
        if asked.end is None:
            print(f"seed {seed}: trace {system.network.trace.hexdigest()}")
    seconds = time.process_time() - begun
    readings = f"{exact} exact readings, {inexact} others"
    print(f"{end - asked.first} seeds, {failed} failed, {calls} calls, {readings}, {seconds:.1f} s")
    return 1 if failed else 0


def system_of(seed: int, asked: argparse.Namespace) -> System | JobWorld:
    if asked.jobs:
        return JobWorld(seed)
    return FleetSystem(seed, written=True) if asked.fleet else System(seed, written=bool(seed % 2))


_FIXED = {"PYTHONHASHSEED": "0"}

if __name__ == "__main__":
    sys.exit(main())
