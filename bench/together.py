"""Runs the same work in several threads, each with a tally of its own."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from bench.original import Tally


def together(work: Callable[[Tally], None], threads: int) -> Tally:
    tallies = [Tally() for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work, tally) for tally in tallies]:
            done.result()
    total = Tally()
    for tally in tallies:
        total.add(tally)
    return total
