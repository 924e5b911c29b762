"""Runs seeds, counts what they did, and says of each that failed how to see it again."""

import itertools
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.http.fuzz.comparison import difference, reproduction, shrunk
from tests.http.fuzz.parsers import parsers
from tests.http.fuzz.plan import plan
from tests.http.fuzz.side import keys_file
from tests.http.fuzz.ways import Ways

BODIES: Final = 40
"""Inputs of parsers for each plan: they take about as long."""
SHOWN: Final = 5
"""Failures after which a run ends."""


@dataclass
class Tally:
    """What a run did."""

    plans: int = 0
    requests: int = 0
    """Those that were answered."""
    fast: int = 0
    """Those of them that took the fast path."""
    inputs: int = 0
    """What parsers were given."""
    failed: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.plans:,} connections with {self.requests:,} requests, {self.fast:,} of them on the fast path;"
            f" {self.inputs:,} inputs of parsers; {self.failed} differences, in {self.seconds:,.0f} s"
        )


def run(first: int, end: int | None, seconds: float, tell: Callable[[str], None]) -> Tally:
    """Run the seeds from `first` up to `end`, or for so many seconds. Each is a plan and `BODIES` inputs of parsers."""
    tally = Tally()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        ways = Ways(keys_file(Path(folder)))
        for seed in itertools.count(first) if end is None else range(first, end):
            tally.seconds = time.monotonic() - begun
            if tally.failed >= SHOWN or (end is None and tally.seconds > seconds):
                break
            for said in (_plan(ways, seed, tally), *_inputs(seed, tally)):
                if said:
                    tally.failed += 1
                    tell(f"seed {seed}: {said}\nagain: python -m tests.http.fuzz {seed}\n")
    tally.seconds = time.monotonic() - begun
    return tally


def _plan(ways: Ways, seed: int, tally: Tally) -> str:
    one = plan(seed)
    tally.plans += 1
    found = difference(ways, one)
    tally.requests += found.requests
    tally.fast += found.fast
    if not found.said:
        return ""
    shorter = shrunk(ways, one)
    return f"{difference(ways, shorter).said}\n{reproduction(shorter)}"


def _inputs(seed: int, tally: Tally) -> list[str]:
    found = [parsers(seed * BODIES + number) for number in range(BODIES)]
    tally.inputs += len(found)
    return [f"{said}\ninput: {data!r}" for data, said in found if said]
