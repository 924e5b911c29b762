"""Divides items, in order, into as few batches as their sizes allow. Pure."""

from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import TypeVar

T = TypeVar("T")


def batches(
    items: Iterable[T], size_of: Callable[[T], int], most: int, most_items: float = inf
) -> Iterator[tuple[list[T], int]]:
    """Each batch, and its size, which is at most `most`, unless its only item is larger."""
    batch: list[T] = []
    total = 0
    for item in items:
        size = size_of(item)
        if batch and (len(batch) == most_items or total + size > most):
            yield batch, total
            batch, total = [], 0
        batch.append(item)
        total += size
    if batch:
        yield batch, total
