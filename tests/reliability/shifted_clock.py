"""Runs `python -m MODULE …` by a wall clock that is as many seconds off as a file says, while there is one.

All of Countersink asks `time.time`; what waits goes by the monotonic clock, which is left alone.
"""

import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path


def turned(file: Path, right: Callable[[], float]) -> Callable[[], float]:
    def now() -> float:
        try:
            return right() + float(file.read_text() or 0)
        except FileNotFoundError:
            return right()

    return now


if __name__ == "__main__":
    _, file, _, _, module, *arguments = sys.argv
    time.time = turned(Path(file), time.time)
    sys.path[0] = ""
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
