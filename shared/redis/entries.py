"""Entries as they travel: attempts to publish, by the parts of an envelope, and what comes back of a counter. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from shared.model.envelope import Envelope, parts_of
from shared.model.words import Entry

MOST_IN_ONE_STEP: Final = 2_000
"""Entries written by one script, about: others wait meanwhile."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One part of an envelope, on one attempt to publish it."""

    key: str
    """Of its receipt."""
    attempt: str
    published: int
    """Not later than the attempt: milliseconds since 1970 by the store's clock."""
    payload: bytes
    counters: int

    def arguments(self) -> tuple[str, str, int, bytes]:
        return self.key, self.attempt, self.published, self.payload


@dataclass(slots=True, eq=False)
class Attempt:
    """To publish one envelope."""

    number: int
    envelope: Envelope
    pieces: tuple[Piece, ...]
    born: float
    confirmed: bool = False
    wait: float = 0.0
    """Seconds until somebody looks again whether it has been settled."""
    entries: int = field(init=False)

    def __post_init__(self) -> None:
        self.entries = sum(piece.counters for piece in self.pieces)

    def rename(self) -> None:
        """Nothing is in Redis under the new name."""
        self.pieces = tuple(replace(piece, attempt=f"{piece.attempt}r") for piece in self.pieces)


def pieces_of(envelope: Envelope, attempt: str, published: int) -> Iterator[Piece]:
    for number, part in enumerate(parts_of(envelope)):
        entries = dict(part.entries())
        payload = orjson.dumps({name: _body(entry) for name, entry in entries.items()})
        yield Piece(part.key, f"{attempt}.{number}", published, payload, len(entries))


def _body(entry: Entry) -> str:
    """A sum may be longer than a number that Redis's scripts can hold, so all of it is text to them."""
    own = "L" if entry.late else ""
    if entry.keyed:
        return f"{own}{entry.delta} {orjson.dumps(entry.keyed).decode()}"
    return f"{own}{entry.delta}"


def read(fields: list[bytes]) -> tuple[bytes, int, tuple[Entry, ...]]:
    """Version, floor and entries, in order of arrival, of the hash of a counter."""
    version, floor = b"", 0
    found: list[tuple[int, Entry]] = []
    for name, value in zip(fields[::2], fields[1::2], strict=True):
        if name == b"v":
            version = value
        elif name == b"f":
            floor = int(value)
        else:
            found.append(_entry(value))
    found.sort(key=_by_arrival)
    return version, floor, tuple([entry for _, entry in found])


def _entry(value: bytes) -> tuple[int, Entry]:
    seq, flags, key, delta, *keyed = value.decode().split(" ", 4)
    own = delta.startswith("L")
    ids: Any = tuple(tuple(pair) for pair in orjson.loads(keyed[0])) if keyed else ()
    entry = Entry(
        key=key,
        delta=int(delta[1:] if own else delta),
        keyed=ids,
        late=own or flags[1] == "1",
        confirmed=flags[0] == "1",
    )
    return int(seq), entry


def _by_arrival(found: tuple[int, Entry]) -> int:
    return found[0]


def in_steps(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """So many at a time that Redis is not kept from others for long."""
    some: list[Piece] = []
    entries = 0
    for piece in pieces:
        if some and entries + piece.counters > MOST_IN_ONE_STEP:
            yield some
            some, entries = [], 0
        some.append(piece)
        entries += piece.counters
    if some:
        yield some
