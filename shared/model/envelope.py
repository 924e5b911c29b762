"""The envelope, and how one that is too large is divided. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from math import inf
from typing import Final, TypeVar

from shared.model.buckets import WallMillis
from shared.model.receipts import key_of_envelope, key_of_part, key_of_second_use
from shared.model.words import MAX_SUM, Entry, Increment

PART_ENTRIES: Final = 1_000
"""Constant for ever: the parts of a large foreign message must be the same on each delivery."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """What is applied together with one receipt: sums per counter, and, kept apart, the increments with an id of their
    own. A message is one envelope, or several if it is too large for one commit.
    """

    id: str
    """Its identity for ever: the receipt is made from it. Equal for each copy, and for all envelopes of one message.
    Ours are printable ASCII. Empty if only the receipt is known.
    """
    sums: Mapping[str, int]
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many increments stand in a sum, where that is not 1."""
    keyed: tuple[Increment, ...] = ()
    created: WallMillis = 0
    """When it was made."""
    increments: int = -1
    """How many it carries. They are counted if the number is not given."""
    retried: bool = False
    """Its id is a client's, so another envelope of this id may have been published before."""
    attempt: str = ""
    """Where it is `retried`: which use of its id this is. Copies of one message have one; a second use has another."""
    foreign: bool = False
    """Somebody else published it, so no ingest has counted it as accepted."""
    receipt: str = field(default="", compare=False)
    """See `key`. Given where the id alone does not say it."""
    second: bool = False
    """It only says that its id was used again."""
    traceparent: str = field(default="", compare=False)
    """The span in which it was published, as its message says. It may be malformed."""
    patient: bool = field(default=False, compare=False)
    """Nobody waits until it is applied, or has read its counters lately. See `FlushPolicy`."""

    def __post_init__(self) -> None:
        if self.increments < 0:
            number = len(self.sums) + sum(self.counts.values()) - len(self.counts) + len(self.keyed)
            object.__setattr__(self, "increments", number)

    @property
    def key(self) -> str:
        """The key of its receipt. Made when first asked for: where the broker keeps the overlay, no ingest asks."""
        if not self.receipt:
            object.__setattr__(self, "receipt", key_of_envelope(self.id))
        return self.receipt

    @property
    def is_minted(self) -> bool:
        """Whether an ingest made its id, and for it alone."""
        return not (self.retried or self.foreign or self.second)

    def receipt_keys(self) -> Iterator[str]:
        """The keys of its receipt, and of the receipts of the ids in it."""
        yield self.key
        for item in self.keyed:
            yield item.key

    def counters(self) -> set[str]:
        return {*self.sums, *(item.counter for item in self.keyed)}

    def as_second_use(self) -> "Envelope":
        """What is committed of it where its id was used before, by another attempt."""
        key = key_of_second_use(self.key, self.attempt)
        return Envelope(
            self.id,
            {},
            foreign=self.foreign,
            receipt=key,
            increments=self.increments,
            second=True,
            traceparent=self.traceparent,
        )

    def in_place_of(self, attempt: str, increments: int) -> "Envelope":
        """The envelope to commit when a dead receipt becomes `applied`. That receipt stood for the use `attempt` of the
        id, and for so many increments. The applied receipt stands for the same, even if this envelope is another use
        of the id: otherwise the first use would count again. A receipt of a message that was given up for its age says
        neither.
        """
        return replace(self, attempt=attempt or self.attempt, increments=increments or self.increments)

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """Its entries in the overlay, by counter."""
        key = self.key
        if not self.keyed:
            for counter, delta in self.sums.items():
                yield counter, Entry(key, delta, (), self.retried, created=self.created)
            return
        keyed: dict[str, list[tuple[str, int]]] = {}
        for item in self.keyed:
            keyed.setdefault(item.counter, []).append((item.key, item.delta))
        for counter in {**self.sums, **keyed}:
            ids = tuple(keyed.get(counter, ()))
            late = self.retried or bool(ids)
            yield counter, Entry(key, self.sums.get(counter, 0), ids, late, created=self.created)


def divided(whole: Envelope) -> tuple[Envelope, ...]:
    """The envelopes that stand in commits for a message: itself, or parts that depend on nothing but itself."""
    if len(whole.sums) + len(whole.keyed) <= PART_ENTRIES and sum([abs(one.delta) for one in whole.keyed]) <= MAX_SUM:
        return (whole,)
    parts = [replace(whole, sums=sums, keyed=()) for sums in _divide(whole.sums)]
    parts += [replace(whole, sums={}, keyed=keyed) for keyed in _divide_keyed(whole.keyed)]
    return tuple([_part(one, number) for number, one in enumerate(parts)])


def _part(one: Envelope, number: int) -> Envelope:
    counts = {name: one.counts[name] for name in one.sums if name in one.counts}
    return replace(one, counts=counts, receipt=key_of_part(one.id, number), increments=-1)


def _divide(sums: Mapping[str, int]) -> Iterator[dict[str, int]]:
    items = iter(sorted(sums.items()))
    while some := dict(islice(items, PART_ENTRIES)):
        yield some


def _divide_keyed(keyed: tuple[Increment, ...]) -> Iterator[tuple[Increment, ...]]:
    begin = weight = 0
    for index, item in enumerate(keyed):
        weight += abs(item.delta)
        if index - begin == PART_ENTRIES or weight > MAX_SUM:
            yield keyed[begin:index]
            begin, weight = index, abs(item.delta)
    if keyed:
        yield keyed[begin:]


# Divides items, in order, into as few batches as their sizes allow. Pure.


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
