"""Reads totals and receipts at one instant, and changes dead receipts over the version that was read."""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from shared.counters.pending import ids_of
from shared.datastore import buckets
from shared.datastore.buckets import closed_at, followed_at
from shared.datastore.client import DatastoreClient, micros, millis
from shared.datastore.keys import (
    COUNT,
    COUNTERS,
    DEAD,
    DELETED,
    NUM_SHARDS,
    DatastorePlace,
    Operator,
    flaw_of,
    integer,
    name_of,
    query_of,
    receipt_of,
    where,
    write,
)
from shared.model.buckets import Counts, Instant, WallMillis, WallSeconds
from shared.model.dead_letters import entries_of_dead
from shared.model.errors import AlreadyAppliedError, TransientError
from shared.model.words import Guard, Lately, Receipt, Total, shard_key

_log = logging.getLogger(__name__)

_MOST_NUMBERS: Final = 100_000
_MOST_TOLD: Final = 100
"""How many flaws are logged, at most."""
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


class SnapshotQuestion:
    """The keys that a reading asks for, and the answer that what was found adds up to."""

    def __init__(
        self, place: DatastorePlace, counters: Sequence[str], receipts: Collection[str], numbers: LastShardNumbers
    ) -> None:
        self._place = place
        self._numbers = numbers
        self._asked = {counter: numbers.get(counter, 1) for counter in counters}
        configs = [place.config(counter) for counter in self._asked]
        shards = [key for counter, number in self._asked.items() for key in place.shards(counter, 0, number)]
        guards = [place.guard(counter) for counter in self._asked]
        self._receipts = {*receipts}
        self.keys = [*configs, *guards, *shards, *(place.receipt(key) for key in self._receipts)]
        self._found: dict[tuple[str, str], Any] = {}
        self._updated: dict[tuple[str, str], int] = {}
        self._guards: dict[str, Guard] = {}
        self._dead: dict[str, list[Receipt]] = {}

    def learn(self, entities: Sequence[Any]) -> None:
        self._found |= {name_of(one.entity.key): one.entity for one in entities}
        self._updated |= {name_of(one.entity.key): millis(micros(one.update_time)) for one in entities}
        for one in entities:
            kind, name = name_of(one.entity.key)
            if kind == self._place.kinds.guard:
                self._guards[name] = Guard(one.version, one.entity.properties[DELETED].boolean_value)
                if DEAD in one.entity.properties:
                    self._dead.setdefault(name, [])

    def marked(self) -> Collection[str]:
        """Counters that may have dead receipts, as far as their guards are known."""
        return [*self._dead]

    def learn_dead(self, counter: str, entities: Sequence[Any]) -> None:
        self._dead[counter] += [receipt_of(one.entity) for one in entities]

    def more(self) -> list[Any]:
        """Keys that were not asked for yet: of shards in the configs, and of the ids in dead receipts."""
        dead = {counter: entries_of_dead(receipts, counter)[0] for counter, receipts in self._dead.items()}
        ids = {key for entries in dead.values() for key in ids_of(entries)} - self._receipts
        self._receipts |= ids
        keys = [self._place.receipt(key) for key in ids]
        for counter, asked in self._asked.items():
            number = self._number(counter)
            keys += self._place.shards(counter, asked, number)
            self._asked[counter] = max(asked, number)
            self._numbers[counter] = number
        return keys

    def answer(self) -> tuple[Mapping[str, Total], Collection[str]]:
        totals = {}
        for counter in self._asked:
            shards = self._shards(counter)
            value = sum([integer(shard, COUNT) for shard in shards])
            entries, sure_until = entries_of_dead(self._dead.get(counter, ()), counter)
            guard = self._guards.get(counter, Guard())
            flaw = self._flaw(counter, shards)
            updated = max([self._updated[name_of(shard.key)] for shard in shards], default=0)
            totals[counter] = Total(value, self._number(counter), guard, entries, sure_until, flaw, updated)
        receipts = [one for (kind, _), one in self._found.items() if kind == self._place.kinds.receipt]
        return totals, {one.key for one in map(receipt_of, receipts) if one.settled}

    def _number(self, counter: str) -> int:
        config = self._found.get((self._place.kinds.config, counter))
        return integer(config, NUM_SHARDS) if config is not None else 0

    def _shards(self, counter: str) -> Sequence[Any]:
        kind = self._place.kinds.shard
        found = [self._found.get((kind, shard_key(counter, index))) for index in range(self._number(counter))]
        return [shard for shard in found if shard is not None]

    def _flaw(self, counter: str, shards: Sequence[Any]) -> str:
        """Why a counter cannot be read exactly, by its first unreadable entity; empty if it can. Logs new ones."""
        config = self._found.get((self._place.kinds.config, counter))
        flaws = [flaw_of(config, NUM_SHARDS)] if config is not None else []
        flaws += [flaw_of(shard, COUNT) for shard in shards]
        flaw = next(filter(None, flaws), "")
        if flaw and self._numbers.is_news(flaw):
            _log.error("counter %r can't be read exactly: %s. Its application has to correct it", counter, flaw)
        return flaw


class PastSnapshot:
    """The state at an instant of the server's clock. Every Lookup names that instant."""

    def __init__(
        self,
        client: DatastoreClient,
        place: DatastorePlace,
        numbers: LastShardNumbers,
        time: Instant,
    ) -> None:
        self.time = time
        self.as_of = WallSeconds(time / 1_000_000)
        self.now = millis(time)
        self.client = client
        self.place = place
        self._numbers = numbers
        self._totals: dict[str, Total] = {}
        """Those that were read before, without dead receipts."""

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
        question = SnapshotQuestion(self.place, counters, receipts, self._numbers)
        try:
            question.learn((await self.client.look_up(question.keys, read_time=self.time)).entities)
            await ask_for_dead(self.client, self.place, question, self.time)
            if more := question.more():
                question.learn((await self.client.look_up(more, read_time=self.time)).entities)
        except TransientError:
            self.client.time.doubt()  # perhaps this instant cannot be read: choose the next one from new responses
            raise
        return question.answer()

    async def counts(self, counter: str, by: str, begin: WallMillis, end: WallMillis) -> Counts:
        at = self.client, self.place, self.time
        found, followed, closed = await asyncio.gather(
            buckets.entities_at(*at, counter=counter, by=by, begin=begin, end=end), followed_at(*at), closed_at(*at)
        )
        return Counts(buckets.counted(found, by, begin, end), followed, closed)


async def ask_for_dead(
    client: DatastoreClient, place: DatastorePlace, question: SnapshotQuestion, time: Instant
) -> None:
    """Ask for the dead receipts of the counters whose guards are marked, at `time`. The built-in index of `counters` is
    enough.
    """

    async def ask(counter: str) -> None:
        query = where(query_of(place.kinds.receipt, _PAGE), COUNTERS, Operator.EQUAL, string_value=counter)
        async for page in client.pages(place.partition, query, read_time=time):
            question.learn_dead(counter, page)

    await asyncio.gather(*map(ask, question.marked()))


# Changes dead receipts, each only over the version that was read, or the commit fails.


async def revive(client: DatastoreClient, place: DatastorePlace, request: Any, revived: Sequence[Receipt]) -> None:
    """Add the changes to the request. `AlreadyAppliedError` if one of the receipts does not exist, or is not dead."""
    if not revived:
        return
    found = (await client.look_up(place.receipt(receipt.key) for receipt in revived)).entities
    there = {before.key: (before, one.version) for one in found if (before := receipt_of(one.entity)).state == "dead"}
    if len(there) < len(revived):
        raise AlreadyAppliedError("a receipt to be revived is not dead")
    for receipt in revived:
        before, version = there[receipt.key]
        write(request, place.receipt_entity(receipt.over(before)), version)
