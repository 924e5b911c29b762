"""What is owed to the receiver of the feed, in Datastore. docs/adr/0037-feed.md says why nothing is missed.

A commit writes an entity beside each shard that it adds to, if the counter is told. The entity goes when the counter
was told, unless another commit has written it since. For example:

    commit at 5       adds to shard-a-0, and writes owed shard-a-0, version 5
    look at T = 7     reads both: the value at 7, and version 5
    commit at 8       adds to shard-a-0, and writes owed shard-a-0, version 8
    the receiver takes the value at 7
    deletes owed shard-a-0 over version 5: it fails, so the counter stays owed
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Any, Final, Protocol
from uuid import uuid4

from shared.datastore.client import DatastoreClient, MissingError, micros, millis
from shared.datastore.keys import (
    KEY,
    DatastorePlace,
    Key,
    Operator,
    name_of,
    query_of,
    shard_of,
    unindexed,
    where,
    write,
)
from shared.model.buckets import Millis, StoreMillis
from shared.model.errors import AlreadyAppliedError, ContendedError, TransientError
from shared.model.feed import Change, Reach, Told, told_of
from shared.ports.feed import Owed, Waiting
from shared.ports.store import CounterNames, Snapshots, StoreClock
from shared.runtime.clock import Clock

BELIEVED: Final = 60.0
"""Seconds for which a process that commits follows the rules without a look."""
FOLLOWED: Final = 720_000
"""Milliseconds after a look in which a commit may follow the rules that it saw: those of `BELIEVED`, the ten minutes in
which a transaction surely ends, and a minute.
"""
PAGE: Final = 1_000
"""Keys in one look, which costs one read. The next look goes on behind them."""
SWEPT_AT_ONCE: Final = 400
UNREADABLE: Final = 60_000
"""Milliseconds until a counter is read again that another application made unreadable."""
MOST_REMEMBERED: Final = 100_000
"""Counters of which it is known when they may be told. One that is forgotten may be told before its interval ends."""

_RULES: Final = "rules"
_HOLDER: Final = "holder"
_UNTIL: Final = "until"
_SWEPT: Final = "swept"
"""The counter behind which the sweep goes on. Missing when it has ended."""
_SINCE: Final = "since"
"""When the rules were written, in milliseconds of the store, or later. Missing until the first renewal after that."""


def _feed_key(place: DatastorePlace) -> Key:
    return place.key(place.kinds.fleet, "feed")


def owe(request: Any, place: DatastorePlace, shards: Collection[tuple[str, int]], told: Told) -> None:
    """Add to the request what a commit owes that adds to these shards."""
    prefixes = told.prefixes()
    for counter, shard in shards if prefixes else ():
        if counter.startswith(prefixes):
            entity = request.mutations.add().upsert
            entity.key.CopyFrom(place.owed(counter, shard))
            # A write that changes nothing would keep the version, by which it is known whether the counter was told.
            unindexed(entity, "commit").string_value = uuid4().hex


class RulesFollowed:
    """The rules in the store, as a process that commits knows them."""

    def __init__(self, client: DatastoreClient, place: DatastorePlace, clock: Clock) -> None:
        self._client = client
        self._place = place
        self._clock = clock
        self._looked = -inf
        self._told = told_of("")
        self._until = StoreMillis(0)

    async def now(self) -> tuple[Told, StoreMillis]:
        """The rules, and until when a commit may follow them. Later rules are written later than the look that saw
        these, and their sweep begins `FOLLOWED` after that.
        """
        now = self._clock.monotonic()
        if now - self._looked > BELIEVED:
            found = await self._client.look_up([_feed_key(self._place)])
            self._told = told_of(_text(found.entities[0].entity, _RULES) if found.entities else "")
            time = found.time or self._client.time.bound(self._clock.monotonic())
            self._until = StoreMillis(millis(time) + FOLLOWED)
            self._looked = now
        return self._told, self._until


class _Store(Snapshots, CounterNames, StoreClock, Protocol):
    """What the book reads."""


class DatastoreFeedBook:
    """The flusher with the lease tells. Two may, for a moment: then the receiver gets events twice."""

    def __init__(
        self, client: DatastoreClient, place: DatastorePlace, store: _Store, clock: Clock, lease: float
    ) -> None:
        """`lease`: seconds after which another flusher tells, if this one does not renew its lease."""
        self._client = client
        self._place = place
        self._store = store
        self._clock = clock
        self._id = uuid4().hex
        self._lease = lease
        self._asked = self._renewed = -inf
        """When it last looked at the lease, and when it last got it; -inf if it has not got it."""
        self._since: StoreMillis | None = None
        self._swept: str | None = None
        self._text, self._version, self._now = "", 0, StoreMillis(0)
        self._after = ""
        self._read: Mapping[str, Sequence[Any]] = {}
        self._next: OrderedDict[str, float] = OrderedDict()
        """When a counter may be told, by the clock of this process."""
        self._due: dict[str, float] = {}
        """Since when counters have been due."""

    async def open(self, told: Told) -> bool:
        text, begun = told.text(), self._clock.monotonic()
        if begun - max(self._renewed, self._asked) < self._lease / 3:
            return self._renewed > -inf
        self._asked = begun
        found = await self._client.look_up([_feed_key(self._place)])
        seen = found.entities[0] if found.entities else None
        before = _text(seen.entity, _RULES) if seen is not None else ""
        if not text and not before:
            return False
        now = millis(found.time or self._client.time.bound(begun))
        if seen is not None and _is_held(seen.entity, now) and _text(seen.entity, _HOLDER) != self._id:
            self._renewed, self._due = -inf, {}
            return False
        if seen is not None and text == before:
            self._swept = _text(seen.entity, _SWEPT) if _SWEPT in seen.entity.properties else None
            known = seen.entity.properties[_SINCE].integer_value if _SINCE in seen.entity.properties else 0
            self._since = StoreMillis(known or millis(micros(seen.update_time)))
        else:
            self._swept, self._since = "", None  # the next renewal knows when these were written
        return await self._write(text, seen.version if seen is not None else 0, now, begun)

    async def _write(self, text: str, version: int, now: StoreMillis, begun: float, *, free: bool = False) -> bool:
        request = self._client.commit_request()
        entity = write(request, self._place.entity(_feed_key(self._place)), version)
        unindexed(entity, _RULES).string_value = text
        unindexed(entity, _HOLDER).string_value = "" if free or not text else self._id
        unindexed(entity, _UNTIL).integer_value = now + int(self._lease * 1_000)
        if self._swept is not None:
            unindexed(entity, _SWEPT).string_value = self._swept
        if self._since is not None:
            unindexed(entity, _SINCE).integer_value = self._since
        try:
            response = await self._client.commit(request)
        except (AlreadyAppliedError, ContendedError, MissingError):
            self._renewed = -inf
            return False
        self._text, self._version, self._now = text, response.mutation_results[0].version, now
        self._renewed = begun if text and not free else -inf
        return bool(text)

    async def owed(self, limit: int) -> Owed:
        keys: dict[str, list[Key]] = {}
        page, now = await self._page(), self._clock.monotonic()
        for counter, key in page:
            if self._next.get(counter, -inf) <= now and (counter in keys or len(keys) < limit):
                keys.setdefault(counter, []).append(key)
                self._due.setdefault(counter, now)
        if not keys:
            return Owed((), ())
        async with self._store.snapshot() as snapshot:
            # In this order: on the emulator, a later look may see more of the same instant.
            all_keys = [key for some in keys.values() for key in some]
            found = await self._client.look_up(all_keys, read_time=snapshot.time)
            read: dict[str, list[Any]] = {}
            for one in found.entities:
                if (shard := shard_of(one.entity.key)) is not None:
                    read.setdefault(shard[0], []).append(one)
            totals, _ = await snapshot.read([*read], ())
        for counter in [counter for counter, total in totals.items() if total.flaw]:
            self._put_off(counter, UNREADABLE)
        self._read = read
        changes = [
            Change(counter, total.value, snapshot.time, snapshot.as_of)
            for counter, total in totals.items()
            if not total.flaw
        ]
        return Owed(changes, ())

    async def _page(self) -> Sequence[tuple[str, Key]]:
        """The next entities, and again from the first one after the last: none has to wait for those before it."""
        kind = self._place.kinds.owed
        query = query_of(kind, PAGE, order=KEY, keys_only=True)
        if self._after:
            where(query, KEY, Operator.GREATER_THAN, key_value=self._place.key(kind, self._after))
        keys = [one.entity.key for one in await self._client.query(self._place.partition, query)]
        self._after = name_of(keys[-1])[1] if len(keys) == PAGE else ""
        return [(shard[0], key) for key in keys if (shard := shard_of(key)) is not None]

    async def settle(self, changes: Sequence[tuple[Change, Millis]], _: Sequence[tuple[Reach, int]]) -> None:
        await self._client.delete_seen([one for change, _ in changes for one in self._read.get(change.counter, ())])
        for change, interval in changes:
            self._put_off(change.counter, interval)

    async def put_off(self, changes: Sequence[tuple[Change, Millis]], _: Sequence[tuple[Reach, Millis]]) -> None:
        for change, pause in changes:
            due = self._due.get(change.counter)
            self._put_off(change.counter, pause)
            if due is not None:
                self._due[change.counter] = due

    def _put_off(self, counter: str, pause: int) -> None:
        self._next[counter] = self._clock.monotonic() + pause / 1_000
        self._next.move_to_end(counter)
        self._due.pop(counter, None)
        if len(self._next) > MOST_REMEMBERED:
            self._next.popitem(last=False)

    async def sweep(self) -> bool:
        if self._swept is None or self._since is None or await self._store.now() < self._since + FOLLOWED:
            return False
        page = await self._store.names("", self._swept, SWEPT_AT_ONCE)
        request = self._client.commit_request()
        owe(request, self._place, [(counter, 0) for counter in page], told_of(self._text))
        if request.mutations:
            await self._client.commit(request)
        self._swept = page[-1] if len(page) == SWEPT_AT_ONCE else None
        return await self._write(self._text, self._version, self._now, self._clock.monotonic())

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def waiting(self) -> Waiting:
        now = self._clock.monotonic()
        return Waiting(len(self._due), now - min(self._due.values(), default=now))

    async def close(self) -> None:
        """Let another flusher tell. If that fails, it tells when the lease has ended."""
        if self._renewed > -inf:
            with contextlib.suppress(TransientError):
                await self._write(self._text, self._version, self._now, -inf, free=True)


def _is_held(entity: Any, now: StoreMillis) -> bool:
    return bool(_text(entity, _HOLDER)) and now < entity.properties[_UNTIL].integer_value


def _text(entity: Any, name: str) -> str:
    return str(entity.properties[name].string_value) if name in entity.properties else ""
