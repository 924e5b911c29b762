"""An envelope as it stands in commits: whole, or divided if it is too large for one. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from shared.receipts import key_of_envelope, key_of_increment
from shared.words import Entry, Envelope, Increment

PART_ENTRIES: Final = 1_000
"""Constant for ever: the parts of a large foreign envelope must be the same on each delivery."""


@dataclass(frozen=True, slots=True)
class Part:
    """What is applied together with one receipt."""

    key: str
    sums: Mapping[str, int]
    keyed: tuple[tuple[str, Increment], ...]
    """Each with its receipt key."""
    retried: bool

    def size(self) -> int:
        """How many receipts and shards it takes of a commit, at most."""
        return 1 + len(self.sums) + 2 * len(self.keyed)

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
    keyed = tuple((key_of_increment(item.counter, item.id or ""), item) for item in envelope.keyed)
    if len(envelope.sums) + len(keyed) <= PART_ENTRIES:
        yield Part(key_of_envelope(envelope.id), envelope.sums, keyed, envelope.retried)
        return
    sums, items = iter(sorted(envelope.sums.items())), iter(keyed)
    number = 0
    while True:
        some = dict(islice(sums, PART_ENTRIES))
        more = tuple(islice(items, PART_ENTRIES - len(some)))
        if not some and not more:
            return
        yield Part(key_of_envelope(f"{envelope.id}/{number}"), some, more, envelope.retried)
        number += 1
