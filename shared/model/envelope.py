"""Owns the envelope, and how it stands in commits: whole, or divided if it is too large for one. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from shared.model.receipts import key_of_envelope, key_of_increment, key_of_part, key_of_second_use
from shared.model.words import MAX_SUM, Entry, Increment

_Keyed = tuple[tuple[str, Increment], ...]

PART_ENTRIES: Final = 1_000
"""Constant for ever: the parts of a large foreign envelope must be the same on each delivery."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """What travels as one message: sums per counter, and, kept apart, the increments with an id of their own."""

    id: str
    """Its identity for ever: the receipt is made from it. Equal for each copy. Ours are printable ASCII."""
    sums: Mapping[str, int]
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many increments stand in a sum, where that is not 1."""
    keyed: tuple[Increment, ...] = ()
    created: int = 0
    """Milliseconds since 1970, when it was made."""
    retried: bool = False
    """Its id is a client's, so another envelope of this id may have been published before."""
    attempt: str = ""
    """Where it is `retried`: which use of its id this is. Copies of one message have one; a second use has another."""
    foreign: bool = False
    """Somebody else published it, so no ingest has counted it as accepted."""

    def increments(self) -> int:
        """How many increments it carries."""
        return len(self.sums) + sum(self.counts.values()) - len(self.counts) + len(self.keyed)

    def counters(self) -> set[str]:
        return {*self.sums, *(item.counter for item in self.keyed)}


@dataclass(frozen=True, slots=True)
class Part:
    """What is applied together with one receipt."""

    key: str
    sums: Mapping[str, int]
    keyed: _Keyed
    """Each with its receipt key."""
    retried: bool
    increments: int
    attempt: str = ""
    foreign: bool = False
    second: bool = False
    """It only says that its id was used again."""

    def counters(self) -> set[str]:
        return {*self.sums, *(item.counter for _, item in self.keyed)}

    def as_second_use(self) -> "Part":
        """What is committed of it where its id was used before, by another attempt."""
        key = key_of_second_use(self.key, self.attempt)
        return Part(key, {}, (), retried=False, increments=self.increments, foreign=self.foreign, second=True)

    def in_place_of(self, attempt: str, increments: int) -> "Part":
        """What is committed of it where a dead receipt becomes `applied`, which stood for that use of the id, and so
        many increments. It goes on to stand for them, whichever use this is: else the other one would count again.
        Receipts of older versions say neither.
        """
        return replace(self, attempt=attempt or self.attempt, increments=increments or self.increments)

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """What the overlay holds of it, by counter."""
        if not self.keyed:
            for counter, delta in self.sums.items():
                yield counter, Entry(self.key, delta, (), self.retried)
            return
        keyed: dict[str, list[tuple[str, int]]] = {}
        for key, item in self.keyed:
            keyed.setdefault(item.counter, []).append((key, item.delta))
        for counter in {**self.sums, **keyed}:
            ids = tuple(keyed.get(counter, ()))
            yield counter, Entry(self.key, self.sums.get(counter, 0), ids, self.retried or bool(ids))


def parts_of(envelope: Envelope) -> Iterator[Part]:
    """The envelope as one part, or divided in a way that depends on nothing but itself."""
    keyed = tuple([(key_of_increment(item.counter, item.id or ""), item) for item in envelope.keyed])
    if len(envelope.sums) + len(keyed) <= PART_ENTRIES and _weight(keyed) <= MAX_SUM:
        key, increments = key_of_envelope(envelope.id), envelope.increments()
        yield Part(key, envelope.sums, keyed, envelope.retried, increments, envelope.attempt, envelope.foreign)
        return
    divided = (*((sums, ()) for sums in _divide(envelope.sums)), *(({}, ids) for ids in _divide_keyed(keyed)))
    for number, (sums, ids) in enumerate(divided):
        increments = sum(envelope.counts.get(name, 1) for name in sums) + len(ids)
        key = key_of_part(envelope.id, number)
        yield Part(key, sums, ids, envelope.retried, increments, envelope.attempt, envelope.foreign)


def _divide(sums: Mapping[str, int]) -> Iterator[dict[str, int]]:
    items = iter(sorted(sums.items()))
    while some := dict(islice(items, PART_ENTRIES)):
        yield some


def _divide_keyed(keyed: _Keyed) -> Iterator[_Keyed]:
    begin = weight = 0
    for index, (_, item) in enumerate(keyed):
        weight += abs(item.delta)
        if index - begin == PART_ENTRIES or weight > MAX_SUM:
            yield keyed[begin:index]
            begin, weight = index, abs(item.delta)
    if keyed:
        yield keyed[begin:]


def _weight(keyed: _Keyed) -> int:
    return sum([abs(item.delta) for _, item in keyed])
