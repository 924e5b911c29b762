"""The entries that this process made in Redis, and its copy of them: read while Redis is away, and written again
later.
"""

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from operator import itemgetter
from typing import Any, Final
from uuid import uuid4

import orjson

from shared.counters.pending import Pending, kept_of
from shared.model.buckets import BEGINNING, Instant, Monotonic, StoreMillis
from shared.model.errors import OverloadedError
from shared.model.words import Backlog, Entry, Envelope, View, batches

# Writes entries to Redis, under one name for each try to publish an envelope, and reads them back. Pure.


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
        kept = kept_of(self.envelope, sorted(self.envelope.sums))
        bodies = {name: _body(entry) for name in (*kept.names, *kept.keyed) if (entry := kept.entry(name))}
        self.payload, self.entries = orjson.dumps(bodies), len(bodies)

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
    found.sort(key=itemgetter(0))
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


def in_steps(tries: Iterable[PublishTry]) -> Iterator[list[PublishTry]]:
    """Divide the tries into steps, so that none blocks Redis for long."""
    for step, _ in batches(tries, lambda publish_try: publish_try.entries, MOST_IN_ONE_STEP):
        yield step


MOST_COPIED: Final = 300_000
CROWDED: Final = 4
"""The copy is crowded if it has more than 1/4 of the entries that it may have."""
FIRST_LOOK: Final = 2.0
"""Seconds until Redis is asked whether another process has settled a try. They double with each look."""
LOCAL: Final = "local"
"""The epoch of views that come from this copy."""


class Copy:
    """The tries of this process. A copy that has `most_entries` takes no more."""

    def __init__(self, most_entries: int) -> None:
        self._most_entries = most_entries
        self.pending = Pending(exact=False)
        self._tries: dict[int, PublishTry] = {}
        self._by_key: dict[str, set[int]] = {}
        self._due: list[tuple[float, int]] = []
        self._numbers = count(1)
        self._process = uuid4().hex[:12]
        self.entries = self._increments = 0

    def add(self, envelopes: Iterable[Envelope], now: Monotonic, published: StoreMillis) -> list[PublishTry]:
        """Add unconfirmed tries. They are published at `published` or later."""
        if self.entries >= self._most_entries:
            raise OverloadedError(
                f"{self.entries} sums of counters wait to be applied, and this process can hold no more:"
                " check that the flushers keep up"
            )
        tries = []
        for envelope in envelopes:
            number = next(self._numbers)
            publish_try = PublishTry(number, envelope, f"{self._process}.{number}", published, now)
            self._hold(publish_try)
            self.pending.add(number, envelope, confirmed=False)
            tries.append(publish_try)
        return tries

    def mark(self, receipt: str, counters: Collection[str], now: Monotonic, published: StoreMillis) -> PublishTry:
        """A try that adds nothing, under the key of a change's receipt. It is not kept here."""
        envelope = Envelope("", dict.fromkeys(counters, 0), receipt=receipt, increments=0)
        number = next(self._numbers)
        return PublishTry(number, envelope, f"{self._process}.{number}", published, now)

    @property
    def crowded(self) -> bool:
        return self.entries > self._most_entries // CROWDED

    def confirm(self, publish_try: PublishTry, *, late: bool = False) -> None:
        """Count the try. It is added again, as late, if it is gone. Pass `late` if Redis may not have it."""
        publish_try.confirmed = True
        if publish_try.number in self._tries and not late:
            self.pending.confirm(publish_try.number)
            return
        if publish_try.number in self._tries:
            self.pending.withdraw(publish_try.number)
        else:
            self._hold(publish_try)
        self.pending.add(publish_try.number, publish_try.envelope, late=True)

    def withdraw(self, publish_try: PublishTry) -> None:
        if publish_try.number in self._tries:
            self._let_go(publish_try)
            self.pending.withdraw(publish_try.number)

    def settle(self, keys: Collection[str], floor: Instant) -> None:
        numbers = {number for key in keys for number in self._by_key.get(key, ())}
        self.remove_settled([self._tries[number] for number in sorted(numbers)], floor)

    def remove_settled(self, tries: Iterable[PublishTry], floor: Instant) -> None:
        """Remove tries that were settled, at `floor` or before."""
        for publish_try in tries:
            if publish_try.number in self._tries:
                self._let_go(publish_try)
                self.pending.settle([publish_try.number], floor)

    def confirmed(self) -> list[PublishTry]:
        """The tries that have to be in Redis before this process may join."""
        return [publish_try for publish_try in self._tries.values() if publish_try.confirmed]

    def due(self, now: Monotonic, limit: int) -> list[PublishTry]:
        """Confirmed tries that are due for another look."""
        found: list[PublishTry] = []
        while self._due and self._due[0][0] <= now and len(found) < limit:
            _, number = heapq.heappop(self._due)
            publish_try = self._tries.get(number)
            if publish_try is not None and publish_try not in found:
                publish_try.wait *= 2
                heapq.heappush(self._due, (now + publish_try.wait, number))
                if publish_try.confirmed:
                    found.append(publish_try)
        return found

    def view(self, counters: Sequence[str]) -> dict[str, View]:
        return {counter: replace(self.pending.view(counter), epoch=LOCAL) for counter in counters}

    def backlog(self, now: Monotonic) -> Backlog:
        """What this process has published, and does not know to be applied."""
        for publish_try in self._tries.values():
            return Backlog(self._increments, now - publish_try.born)
        return Backlog()

    def _hold(self, publish_try: PublishTry) -> None:
        self._tries[publish_try.number] = publish_try
        self.entries += publish_try.entries
        self._increments += publish_try.envelope.increments
        self._by_key.setdefault(publish_try.envelope.key, set()).add(publish_try.number)
        publish_try.wait = FIRST_LOOK
        heapq.heappush(self._due, (publish_try.born + FIRST_LOOK, publish_try.number))

    def _let_go(self, publish_try: PublishTry) -> None:
        del self._tries[publish_try.number]
        self.entries -= publish_try.entries
        self._increments -= publish_try.envelope.increments
        numbers = self._by_key[publish_try.envelope.key]
        numbers.discard(publish_try.number)
        if not numbers:
            del self._by_key[publish_try.envelope.key]
