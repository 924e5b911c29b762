"""Judges totals increment by increment: what was accepted must be there, and nothing twice."""

from collections.abc import Mapping
from typing import NamedTuple

from tests.processes.fleet.truth import Truths, split


class Verdict(NamedTuple):
    """Numbers of increments."""

    accepted: int
    counted: int
    """With those that count though their answer was lost."""
    lost: int
    doubled: int
    unknown: int
    """That nobody sent."""


def judge(truths: Truths, totals: Mapping[str, int]) -> Verdict:
    """A counter without a total is one that nobody knows: 0."""
    accepted = counted = lost = doubled = unknown = 0
    for name, truth in truths.counters.items():
        mask, more = split(totals.get(name, 0))
        accepted += truth.answered.bit_count()
        counted += (mask & truth.tried).bit_count()
        lost += (truth.answered & ~mask).bit_count()
        doubled += more.bit_count()
        unknown += (mask & ~truth.tried).bit_count()
    return Verdict(accepted, counted, lost, doubled, unknown)
