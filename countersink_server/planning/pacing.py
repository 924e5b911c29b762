"""Estimates how many envelopes an ingest sends. Pure arithmetic on the rules of `ingest.publishing.linger`.

Increments come at random, independently of each other. A publish of `STREAM` requests or more begins a stream: the next
one waits until nothing comes for `GAP`, or until the longest wait is over. Otherwise, what came during a publish goes
with the next one, as soon as that has ended, or the linger is over.
"""

from math import ceil, exp, expm1, inf, log1p
from typing import Final

from ingest.publishing.coalescer import MAX_ENTRIES
from ingest.publishing.linger import GAP, STREAM, STRETCH
from ingest.publishing.publishing import SIDE_BY_SIDE

_NEVER: Final = 1e-12
"""A probability that makes no difference."""


def publishes(rate: float, linger: float, publish: float) -> float:
    """Publishes per second of an ingest that gets `rate` requests per second."""
    waits = min(linger, publish)
    early = exp(-rate * (publish - waits))  # the chance that no linger ends before the publish does
    apart = max(waits + (1 - early + exp(-rate * publish)) / rate, publish / SIDE_BY_SIDE)
    if not linger:
        return 1 / apart
    begins = 1 - (1 - early) * _fewer(STREAM - 1, rate * waits) - early * _fewer(STREAM, rate * waits)
    empty = exp(-rate * GAP)
    ends = empty * sum(_few_in_gaps(gaps, STREAM - 2, rate * GAP) for gaps in range(STREAM - 1))
    gaps = max(STRETCH * linger - 1 / rate, 0) / GAP
    waited = gaps if empty < _NEVER else -expm1(gaps * log1p(-empty)) / empty
    streaming = begins / (begins + ends)
    return 1 / (streaming * (1 / rate + GAP * waited) + (1 - streaming) * apart)


def drafts(increments: float, counters: int, *, keyed: bool) -> int:
    """Envelopes in a publish of so many increments. Each holds at most `MAX_ENTRIES` counters and ids."""
    return ceil(max(1, increments / (MAX_ENTRIES if keyed else until_distinct(MAX_ENTRIES, counters))))


def distinct(increments: float, counters: int) -> float:
    """How many counters so many increments count, on average. The first one always counts one."""
    return min(increments, 1.0) - (counters - 1) * expm1(min(0.0, 1 - increments) / counters)


def until_distinct(number: int, counters: int) -> float:
    """How many increments count so many different counters, on average."""
    return -counters * log1p(-number / counters) if number < counters else inf


def _fewer(number: int, mean: float) -> float:
    """The probability that fewer than `number` come, if `mean` come on average."""
    term = total = exp(-mean)
    for count in range(1, number):
        term *= mean / count
        total += term
    return total


def _few_in_gaps(gaps: int, most: int, mean: float) -> float:
    """The probability that something comes in each of so many gaps, and at most `most` in all."""
    if not gaps:
        return 1.0
    term = total = 0.0
    for count in range(1, most - gaps + 2):
        term = exp(-mean) * mean if count == 1 else term * mean / count
        total += term * _few_in_gaps(gaps - 1, most - count, mean)
    return total
