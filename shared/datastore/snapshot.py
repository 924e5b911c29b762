"""Reads totals and receipts at one instant, and changes dead receipts over the version that was read."""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from shared.counters.pending import ids_of
from shared.datastore.buckets import counts_at
from shared.datastore.client import DatastoreClient, micros, millis
from shared.datastore.keys import (
    COUNT,
    COUNTERS,
    DEAD,
    DELETED,
    NUM_SHARDS,
    Operator,
    flaw_of,
    integer,
    query_of,
    receipt_of,
    where,
    write,
)
from shared.model.buckets import NEVER, Counts, Instant, StoreMillis, WallMillis, WallSeconds
from shared.model.dead_letters import entries_of_dead
from shared.model.errors import AlreadyAppliedError, TransientError
from shared.model.words import Entry, Guard, Lately, Receipt, Total, shard_key

_log = logging.getLogger(__name__)

_MOST_NUMBERS: Final = 100_000
_MOST_TOLD: Final = 100
_PAGE: Final = 100
"""Dead receipts in one answer: each may be almost 1 MiB."""


class LastShardNumbers(Lately[str, int]):
    """How many shards counters had last, so that they can be asked for together with the config. Where that is not
    known, ask for one: most counters have one, and it costs no second Lookup then.
    """

    def __init__(self) -> None:
        super().__init__(_MOST_NUMBERS)
        self._told: set[str] = set()

    def is_news(self, flaw: str) -> bool:
        """Whether to log this flaw: it was not logged before, nor were too many others."""
        if flaw in self._told or len(self._told) >= _MOST_TOLD:
            return False
        self._told.add(flaw)
        return True


class PastSnapshot:
    """The state at an instant of the server's clock. Every Lookup names that instant."""

    def __init__(self, client: DatastoreClient, numbers: LastShardNumbers, time: Instant) -> None:
        self.time = time
        self.as_of = WallSeconds(time / 1_000_000)
        self.now = millis(time)
        self.client = client
        self.place = client.place
        self._numbers = numbers
        self._totals: dict[str, Total] = {}
        """The totals that were read before, without dead receipts."""

    async def read(
        self, counters: Sequence[str], receipts: Collection[str]
    ) -> tuple[Mapping[str, Total], Collection[str]]:
        known = {name: self._totals[name] for name in counters if name in self._totals} if self._totals else {}
        totals, settled = await self._ask([name for name in counters if name not in known], receipts)
        self._totals |= {name: total for name, total in totals.items() if not total.dead}
        return {**known, **totals}, settled

    async def _ask(
        self, counters: Sequence[str], receipts: Collection[str]
    ) -> tuple[Mapping[str, Total], Collection[str]]:
        """Ask for the shards that counters had last, together with their configs; then for what these answers name."""
        place = self.place
        asked = {counter: self._numbers.get(counter, 1) for counter in counters}
        keys = [*map(place.config, asked), *map(place.guard, asked), *map(place.receipt, {*receipts})]
        keys += [key for counter, number in asked.items() for key in place.shards(counter, 0, number)]
        try:
            found = await self.client.find(keys, read_time=self.time)
            guards = {counter: found.get((place.kinds.guard, counter)) for counter in asked}
            marked = [counter for counter, guard in guards.items() if guard and DEAD in guard.entity.properties]
            dead = dict(zip(marked, await asyncio.gather(*map(self._dead_of, marked)), strict=True))
            ids = {key for entries, _ in dead.values() for key in ids_of(entries)}
            keys = [*map(place.receipt, ids.difference(receipts))]
            for counter, number in asked.items():
                self._numbers[counter] = there = self._number(counter, found)
                keys += place.shards(counter, number, there)
            if keys:
                found |= await self.client.find(keys, read_time=self.time)
        except TransientError:
            self.client.time.doubt()  # perhaps this instant cannot be read: choose the next one from new responses
            raise
        totals = {counter: self._total(counter, found, *dead.get(counter, ((), NEVER))) for counter in asked}
        their = [receipt_of(one.entity) for (kind, _), one in found.items() if kind == place.kinds.receipt]
        return totals, {one.key for one in their if one.settled}

    async def _dead_of(self, counter: str) -> tuple[tuple[Entry, ...], StoreMillis]:
        """What its dead receipts say of a counter whose guard is marked. The built-in index of `counters` is enough."""
        query = where(query_of(self.place.kinds.receipt, _PAGE), COUNTERS, Operator.EQUAL, string_value=counter)
        pages = self.client.pages(query, read_time=self.time)
        return entries_of_dead([receipt_of(one.entity) async for page in pages for one in page], counter)

    def _number(self, counter: str, found: Mapping[tuple[str, str], Any]) -> int:
        config = found.get((self.place.kinds.config, counter))
        return integer(config.entity, NUM_SHARDS) if config else 0

    def _total(
        self,
        counter: str,
        found: Mapping[tuple[str, str], Any],
        dead: tuple[Entry, ...],
        sure_until: StoreMillis,
    ) -> Total:
        kinds, number = self.place.kinds, self._number(counter, found)
        there = [found.get((kinds.shard, shard_key(counter, index))) for index in range(number)]
        shards = [shard for shard in there if shard]
        config, guard = found.get((kinds.config, counter)), found.get((kinds.guard, counter))
        flaws = [flaw_of(config.entity, NUM_SHARDS) if config else "", *(flaw_of(one.entity, COUNT) for one in shards)]
        flaw = next(filter(None, flaws), "")
        if flaw and self._numbers.is_news(flaw):
            _log.error("counter %r can't be read exactly: %s. Its application has to correct it", counter, flaw)
        return Total(
            value=sum([integer(shard.entity, COUNT) for shard in shards]),
            shards=number,
            guard=Guard(guard.version, guard.entity.properties[DELETED].boolean_value) if guard else Guard(),
            dead=dead,
            sure_until=sure_until,
            flaw=flaw,
            updated=max([millis(micros(shard.update_time)) for shard in shards], default=0),
        )

    async def counts(self, counter: str, by: str, begin: WallMillis, end: WallMillis) -> Counts:
        return await counts_at(self.client, self.time, counter=counter, by=by, begin=begin, end=end)


# Changes dead receipts, each only over the version that was read, or the commit fails.


async def revive(client: DatastoreClient, request: Any, revived: Sequence[Receipt]) -> None:
    """Add the changes to the request. `AlreadyAppliedError` if one of the receipts does not exist, or is not dead."""
    if not revived:
        return
    found = (await client.look_up(client.place.receipt(receipt.key) for receipt in revived)).entities
    there = {before.key: (before, one.version) for one in found if (before := receipt_of(one.entity)).state == "dead"}
    if len(there) < len(revived):
        raise AlreadyAppliedError("a receipt to be revived is not dead")
    for receipt in revived:
        before, version = there[receipt.key]
        write(request, client.place.receipt_entity(receipt.over(before)), version)
