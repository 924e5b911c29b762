"""What is owed to the receiver of the feed, in Datastore. docs/adr/0037-feed.md says why nothing is missed.

A commit writes its mark next to each shard that it adds to, if the counter is reported. The process that reports writes
which mark was reported, and when. For example:

    commit at 5       adds to shard-a-0, and writes owed shard-a-0: the mark is c5
    look at T = 7     reads both: the value at 7, and c5
    commit at 8       adds to shard-a-0, and writes owed shard-a-0: the mark is c8
    the receiver takes the value at 7
    reported          writes owed shard-a-0: c5 was reported, at 7; the mark is c8, so the counter stays owed
    look at T = 67    the interval has passed since 7: the value at 67 is reported

An entity whose mark was reported is deleted when the interval has passed.
"""

import asyncio
import contextlib
import json
from collections.abc import Collection, Hashable, Mapping, Sequence
from math import inf
from typing import Any, Final, Protocol
from uuid import uuid4

from shared.datastore.client import DELETES_AT_ONCE, DatastoreClient, micros, millis
from shared.datastore.keys import (
    KEY,
    DatastorePlace,
    Key,
    integer,
    name_of,
    query_of,
    shard_of,
    unindexed,
    within,
    write,
)
from shared.datastore.thresholds import FOLLOWED, Judge, covered, keep, kept
from shared.model.buckets import Instant, Millis, StoreMillis, rule_of
from shared.model.errors import ContendedError, TransientError
from shared.model.feed import Change, Reach, Told, told_of
from shared.model.words import Lately, pages
from shared.ports.feed import Owed, Waiting
from shared.ports.store import CounterNames, Snapshots, StoreClock

BELIEVED: Final = 60.0
"""Seconds for which a process that commits follows the rules without a look."""
PAGE: Final = 1_000
"""Keys in one look, which costs one read. The next look continues behind them."""
SWEPT_AT_ONCE: Final = 400
UNREADABLE: Final = 60_000
"""Milliseconds until a counter is read again that another application made unreadable."""
MOST_NOT_DUE: Final = 100_000
"""Counters and rows that a process remembers not to be due yet. It looks all others up again."""

_RULES: Final = "rules"
_HOLDER: Final = "holder"
_UNTIL: Final = "until"
_SWEPT: Final = "swept"
"""The counter behind which the sweep continues. Missing when it has ended."""
_SINCE: Final = "since"
"""When the rules were written, in milliseconds of the store, or later. Missing until the first renewal after that."""
_COVERED: Final = "covered"
"""Since when there are thresholds, as JSON; see `thresholds.covered`."""
_COMMIT: Final = "commit"
"""The mark of the last commit."""
_TOLD: Final = "told"
"""The mark that was reported last."""
_AT: Final = "at"
"""When that was, in microseconds."""


def _feed_key(place: DatastorePlace) -> Key:
    return place.key(place.kinds.fleet, "feed")


def owe(request: Any, place: DatastorePlace, shards: Collection[tuple[str, int]], told: Told) -> None:
    """Add to the request what a commit owes that adds to these shards."""
    prefixes = told.prefixes()
    for counter, shard in shards if prefixes else ():
        if counter.startswith(prefixes):
            _part(request, place.owed(counter, shard), _COMMIT, uuid4().hex)


def _part(request: Any, key: Key, name: str, value: str) -> Any:
    """Write these properties of the entity, and keep the others. Returns the mutation, to be changed."""
    mutation = request.mutations.add()
    mutation.upsert.key.CopyFrom(key)
    mutation.property_mask.paths.append(name)
    unindexed(mutation.upsert, name).string_value = value
    return mutation


class FeedRules:
    """The rules in the store, as a process that commits knows them."""

    def __init__(self, client: DatastoreClient) -> None:
        self._client = client
        self._clock = client.clock
        self._looked = -inf
        self._told = told_of("")
        self._until = StoreMillis(0)

    async def now(self) -> tuple[Told, StoreMillis]:
        """The rules, and until when a commit may follow them. Later rules are written later than the look that saw
        these, and their sweep begins `FOLLOWED` after that.
        """
        now = self._clock.monotonic()
        if now - self._looked > BELIEVED:
            found = await self._client.look_up([_feed_key(self._client.place)])
            self._told = told_of(_text(found.entities[0].entity, _RULES) if found.entities else "")
            time = found.time or self._client.told()
            self._until = StoreMillis(millis(time) + FOLLOWED)
            self._looked = now
        return self._told, self._until


class _Store(Snapshots, CounterNames, StoreClock, Protocol):
    """What the book reads."""


class DatastoreFeedBook:
    """The flusher with the lease reports. For a moment, two may: then the receiver gets events twice."""

    def __init__(self, client: DatastoreClient, store: _Store, lease: float) -> None:
        """`lease`: seconds after which another flusher reports, if this one does not renew its lease."""
        self._client = client
        self._place = client.place
        self._store = store
        self._clock = client.clock
        self._id = uuid4().hex
        self._lease = lease
        self._asked = self._renewed = -inf
        """When it last looked at the lease, and when it last got it; -inf if it has not got it."""
        self._since: StoreMillis | None = None
        self._swept: str | None = None
        self._covered: Mapping[str, int] = {}
        self._text, self._version, self._now = "", 0, StoreMillis(0)
        self._judge = Judge(client, store)
        self._owed, self._reached = _Pages(client, client.place.kinds.owed), _Pages(client, client.place.kinds.reached)
        self._read: Mapping[str, Sequence[Any]] = {}
        self._next: Lately[Hashable, float] = Lately(MOST_NOT_DUE)
        """When a counter or what it reached may be reported, by the clock of this process."""
        self._due: dict[Hashable, float] = {}
        """Since when they have been due."""

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
        now = millis(found.time or self._client.told())
        if seen is not None and _is_held(seen.entity, now) and _text(seen.entity, _HOLDER) != self._id:
            self._renewed, self._due = -inf, {}
            return False
        self._covered = json.loads(_text(seen.entity, _COVERED) or "{}") if seen is not None else {}
        if seen is not None and text == before:
            self._swept = _text(seen.entity, _SWEPT) if _SWEPT in seen.entity.properties else None
            self._written(StoreMillis(integer(seen.entity, _SINCE)) or millis(micros(seen.update_time)))
        else:
            self._swept, self._since = "", None
            self._covered = covered(self._covered, told.thresholds)
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
        if self._covered:
            unindexed(entity, _COVERED).string_value = json.dumps(self._covered)
        try:
            response = await self._client.commit_over(request)
        except ContendedError:
            self._renewed = -inf
            return False
        self._text, self._version, self._now = text, response.mutation_results[0].version, now
        if self._since is None:
            self._written(millis(micros(response.commit_time)))
        self._renewed = begun if text and not free else -inf
        return bool(text)

    def _written(self, since: StoreMillis) -> None:
        """Now it is known when the rules were written. The next renewal says so in the store."""
        self._since = since
        self._covered = {prefix: one or since for prefix, one in self._covered.items()}

    async def owed(self, limit: int) -> Owed:
        told, until = told_of(self._text), StoreMillis(self._now + int(self._lease * 1_000))
        while told.thresholds and await self._judge.judge(told, self._covered, until):
            pass
        changes = await self._changes(limit, told)
        return Owed(changes, await self._reaches(limit, told) if told.thresholds else ())

    async def _changes(self, limit: int, told: Told) -> Sequence[Change]:
        self._read = {}
        counters: dict[str, list[Key]] = {}
        for key in await self._owed.next():
            if (shard := shard_of(key)) is not None and self._may(shard[0]):
                counters.setdefault(shard[0], []).append(key)
        for some in pages(counters, limit):  # until something is due: a new process does not know what rests
            async with self._store.snapshot() as snapshot:
                # In this order: on the emulator, a later look may see more of the same instant.
                keys = [key for name in some for key in counters[name]]
                found = await self._client.look_up(keys, read_time=snapshot.time)
                self._read = await self._sorted_out(found.entities, snapshot.time, told)
                totals, _ = await snapshot.read([*self._read], ())
            for counter in [counter for counter, total in totals.items() if total.flaw]:
                self._put_off(counter, UNREADABLE)
            if self._read:
                return [
                    Change(counter, total.value, snapshot.time, snapshot.as_of)
                    for counter, total in totals.items()
                    if not total.flaw
                ]
        return ()

    async def _sorted_out(self, found: Sequence[Any], now: Instant, told: Told) -> Mapping[str, Sequence[Any]]:
        """What is due of these entities, by counter. The others wait for the end of their interval, or go behind it."""
        counters: dict[str, list[Any]] = {}
        for one in found:
            if (shard := shard_of(one.entity.key)) is not None:
                counters.setdefault(shard[0], []).append(one)
        due: dict[str, Sequence[Any]] = {}
        over: list[Any] = []
        for counter, entities in counters.items():
            at = max(one.entity.properties[_AT].integer_value for one in entities)
            rule = rule_of(told.feed, counter)
            anew = at // 1_000 < (self._since or 0)  # what was told before these rules went to another receiver
            rests = at // 1_000 + rule.interval - millis(now) if rule and not anew else 0
            if rests > 0:
                self._put_off(counter, rests)
            elif any(_text(one.entity, _COMMIT) != _text(one.entity, _TOLD) for one in entities):
                due[counter] = entities
                self._due.setdefault(counter, self._clock.monotonic())
            else:
                over += entities
        await self._client.delete_seen(over)
        return due

    async def _reaches(self, limit: int, told: Told) -> Sequence[Reach]:
        """The reached thresholds that are due. Deletes those that no rule names any more."""
        keys = [key for key in await self._reached.next() if self._may(name_of(key)[1])][:limit]
        found = (await self._client.look_up(keys)).entities if keys else ()
        reaches = [*kept(found)]
        had = {one.row for one in reaches if (rule := rule_of(told.thresholds, one.counter)) and rule.has(one.levels)}
        await self._client.delete_seen([one for one in found if name_of(one.entity.key)[1] not in had])
        for row in had:
            self._due.setdefault(row, self._clock.monotonic())
        return [one for one in reaches if one.row in had]

    def _may(self, key: Hashable) -> bool:
        return self._next.get(key, -inf) <= self._clock.monotonic()

    async def settle(self, changes: Sequence[tuple[Change, Millis]], reaches: Sequence[tuple[Reach, int]]) -> None:
        request = self._client.commit_request()
        for change, _ in changes:
            for one in self._read.get(change.counter, ()):
                mutation = _part(request, one.entity.key, _TOLD, _text(one.entity, _COMMIT))
                mutation.property_mask.paths.append(_AT)
                unindexed(mutation.upsert, _AT).integer_value = change.at
        for reach, level in reaches:
            if level < reach.levels.last:
                keep(
                    request, self._place, reach._replace(levels=reach.levels._replace(first=level + reach.levels.step))
                )
            else:
                request.mutations.add().delete.CopyFrom(self._place.key(self._place.kinds.reached, str(reach.row)))
            self._due.pop(reach.row, None)
        for some in pages(request.mutations, DELETES_AT_ONCE):
            part = self._client.commit_request()
            part.mutations.extend(some)
            await self._client.commit(part)
        for change, interval in changes:
            self._put_off(change.counter, interval)

    async def put_off(self, changes: Sequence[tuple[Change, Millis]], reaches: Sequence[tuple[Reach, Millis]]) -> None:
        pauses = [*((one.counter, pause) for one, pause in changes), *((one.row, pause) for one, pause in reaches)]
        for key, pause in pauses:  # they stay due
            self._next[key] = self._clock.monotonic() + pause / 1_000

    def _put_off(self, key: Hashable, pause: int) -> None:
        self._next[key] = self._clock.monotonic() + pause / 1_000
        self._due.pop(key, None)

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
        """Let another flusher report. If that fails, it reports when the lease has ended."""
        if self._renewed > -inf:
            with contextlib.suppress(TransientError):
                await self._write(self._text, self._version, self._now, -inf, free=True)


class _Pages:
    """Keys of a kind, page by page, and again from the first one after the last: none has to wait for those before."""

    def __init__(self, client: DatastoreClient, kind: str) -> None:
        self._client = client
        self._kind = kind
        self._after = ""

    async def next(self) -> Sequence[Key]:
        query = within(query_of(self._kind, PAGE, order=KEY, keys_only=True), self._client.place, "", self._after)
        keys = [one.entity.key for one in await self._client.query(query)]
        self._after = name_of(keys[-1])[1] if len(keys) == PAGE else ""
        return keys


def _is_held(entity: Any, now: StoreMillis) -> bool:
    return bool(_text(entity, _HOLDER)) and now < entity.properties[_UNTIL].integer_value


def _text(entity: Any, name: str) -> str:
    return str(entity.properties[name].string_value) if name in entity.properties else ""
