"""Writes entries to Redis, under one name for each try to publish an envelope, and reads them back. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from shared.model.batches import batches
from shared.model.envelope import Envelope
from shared.model.times import BEGINNING, Instant, Monotonic, StoreMillis
from shared.model.words import Entry

MOST_IN_ONE_STEP: Final = 2_000
"""About how many entries one script writes. Other clients of Redis wait meanwhile."""


@dataclass(slots=True, eq=False)
class PublishTry:
    """One try to publish an envelope."""

    number: int
    envelope: Envelope
    name: str
    """The name of the entry in Redis, which only this try has."""
    published: StoreMillis
    """Not later than the try."""
    born: Monotonic
    confirmed: bool = False
    wait: float = 0.0
    """Seconds until this process looks again whether it has been settled."""
    payload: bytes = field(init=False)
    entries: int = field(init=False)

    def __post_init__(self) -> None:
        entries = dict(self.envelope.entries())
        self.payload = orjson.dumps({name: _body(entry) for name, entry in entries.items()})
        self.entries = len(entries)

    def place(self) -> tuple[str, str]:
        """Where it stands in Redis: the receipt key of its envelope, and its name."""
        return self.envelope.key, self.name

    def arguments(self) -> tuple[str, str, int, bytes]:
        return *self.place(), self.published, self.payload

    def rename(self) -> None:
        """Give it a name under which nothing is in Redis."""
        self.name += "r"


def _body(entry: Entry) -> str:
    """The entry as text, since a sum may be too large for a number in a Redis script."""
    own = "L" if entry.late else ""
    sum_ = f"{own}{entry.delta}@{entry.created}"
    return f"{sum_} {orjson.dumps(entry.keyed).decode()}" if entry.keyed else sum_


def read(fields: list[bytes]) -> tuple[bytes, Instant, tuple[Entry, ...]]:
    """The version, the floor and the entries in order of arrival, from the hash of a counter."""
    version, floor = b"", BEGINNING
    found: list[tuple[int, Entry]] = []
    for name, value in zip(fields[::2], fields[1::2], strict=True):
        if name == b"v":
            version = value
        elif name == b"f":
            floor = Instant(int(value))
        else:
            found.append(_entry(value))
    found.sort(key=_by_arrival)
    return version, floor, tuple([entry for _, entry in found])


def _entry(value: bytes) -> tuple[int, Entry]:
    seq, flags, key, sum_, *keyed = value.decode().split(" ", 4)
    delta, _, created = sum_.partition("@")
    own = delta.startswith("L")
    ids: Any = tuple(tuple(pair) for pair in orjson.loads(keyed[0])) if keyed else ()
    entry = Entry(
        key=key,
        delta=int(delta[1:] if own else delta),
        keyed=ids,
        late=own or flags[1] == "1",
        confirmed=flags[0] == "1",
        created=int(created),
    )
    return int(seq), entry


def _by_arrival(found: tuple[int, Entry]) -> int:
    return found[0]


def in_steps(tries: Iterable[PublishTry]) -> Iterator[list[PublishTry]]:
    """Divide the tries into steps, so that none blocks Redis for long."""
    for step, _ in batches(tries, lambda publish_try: publish_try.entries, MOST_IN_ONE_STEP):
        yield step
