"""A snapshot of a server that cannot read at an instant."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from shared.google.datastore import buckets
from shared.google.datastore.client import DatastoreClient
from shared.google.datastore.followed_rules import closed_at, followed_at
from shared.google.datastore.keys import DatastorePlace, name_of, receipt_of
from shared.google.datastore.snapshot import LastShardNumbers, SnapshotQuestion, ask_for_dead
from shared.model.buckets import Counts
from shared.model.errors import TransientError
from shared.model.times import Instant, StoreMillis, WallMillis, WallSeconds
from shared.model.words import Total

_LONGEST_SEARCH: Final = 20.0
"""Seconds in which two looks have to agree."""


class AgreeingSnapshot:
    """What two Lookups agree on, of which the second began after the first had ended.

    It is the state at an instant between them. That instant is later than `time`, so the state may contain what was
    applied after `time`, and a reading of it is exact only while nothing is pending.
    """

    exact = False

    def __init__(
        self,
        client: DatastoreClient,
        place: DatastorePlace,
        numbers: LastShardNumbers,
        time: Instant,
        as_of: WallSeconds,
    ) -> None:
        self.time = time
        self.as_of = as_of
        self.now = StoreMillis(int(as_of * 1_000))
        self._client = client
        self._place = place
        self._numbers = numbers

    async def read(
        self, counters: Sequence[str], receipts: Collection[str]
    ) -> tuple[Mapping[str, Total], Collection[str]]:
        clock = asyncio.get_running_loop()
        until = clock.time() + _LONGEST_SEARCH
        before: Mapping[tuple[str, str], int] | None = None
        asked = {*receipts}
        while clock.time() < until:  # no pause: the sooner the second look, the more likely they agree
            question = SnapshotQuestion(self._place, counters, asked, self._numbers)
            found = await self._client.look_up(question.keys)
            question.learn(found.entities)
            dead = await ask_for_dead(self._client, self._place, question, None)
            if more := question.more():  # the next look asks for them, too
                asked |= {name for kind, name in map(name_of, more) if kind == self._place.kinds.receipt}
                before = None
                continue
            if self._lacks(found.entities, dead, counters):
                before = None
                continue
            versions = {name_of(one.entity.key): one.version for one in (*found.entities, *dead)}
            if before == versions:
                return question.answer()
            before = versions
        raise TransientError("Datastore: these entities change faster than they can be read twice")

    async def counts(self, counter: str, by: str, begin: WallMillis, end: WallMillis) -> Counts:
        """See `Snapshot`. What two looks agree on, too."""
        client, place = self._client, self._place
        followed, closed = await followed_at(client, place, None), await closed_at(client, place, None)
        clock = asyncio.get_running_loop()
        until = clock.time() + _LONGEST_SEARCH
        before: Mapping[tuple[str, str], int] | None = None
        while begin < end and clock.time() < until:
            found = await buckets.entities(client, place, buckets.bounds_of(place, counter, by, begin, end), None)
            versions = {name_of(one.entity.key): one.version for one in found}
            if before == versions:
                return Counts(buckets.counted(found, by, begin, end), followed, closed)
            before = versions
        if begin >= end:
            return Counts({}, followed, closed)
        raise TransientError("Datastore: these entities change faster than they can be read twice")

    def _lacks(self, found: Sequence[Any], dead: Sequence[Any], counters: Sequence[str]) -> bool:
        """Whether the query lacks what the Lookup found: the emulator's queries lag a little behind."""
        queried = {name_of(one.entity.key) for one in dead}
        receipts = [one.entity for one in found if name_of(one.entity.key)[0] == self._place.kinds.receipt]
        late = [receipt_of(one) for one in receipts if name_of(one.key) not in queried]
        return any(one.body and not {*one.counters}.isdisjoint(counters) for one in late)
