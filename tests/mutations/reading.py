"""Mutations of reading: the arithmetic of exact reads, the reader, and overlays in memory."""

import asyncio
from dataclasses import replace
from typing import Any

from tests.mutations.mutation import around, mutation, replaced, returning, returning_later, text
from tests.mutations.places import DEAD, LARGEST, MEMORY, NEWER, PENDING_SINCE, RACES, RANKING, SEEDS, STORE


def _each_entry(view: Any, **fields: Any) -> Any:
    return replace(view, entries=tuple(replace(entry, **fields) for entry in view.entries))


mutation("what came since is not known to be applied", "shared.counters.pending.pending_since", PENDING_SINCE)(
    lambda since: lambda base, *rest: since(base._replace(settled=()), *rest)
)

mutation("what came since may be pending twice", "shared.counters.pending.pending_since", PENDING_SINCE)(
    lambda since: lambda base, *rest: since(base._replace(total=replace(base.total, dead=())), *rest)
)


@replaced("an entry that is confirmed twice counts twice", "shared.counters.pending.Pending.confirm", PENDING_SINCE)
def _(self: Any, number: int) -> None:
    self._unconfirmed.discard(number)
    self._grow(number)


@around(
    "overlay dropped too early: when a message is pulled", "tests.world.memory.broker.MemoryBroker.pull", MEMORY, SEEDS
)
async def _(pull: Any, self: Any, *limits: Any, **more: Any) -> Any:
    deliveries = await pull(self, *limits, **more)
    for number in [int(one.message_id) for one in deliveries]:
        if number in self.pending:
            self.pending.settle([number], 0)
    return deliveries


mutation("an entry removed without raising the floor", "shared.memory.ProcessOverlay.settle", MEMORY, SEEDS)(
    lambda settle: lambda self, applied, _: settle(self, applied, 0)
)

mutation("an entry made anew is not late", "shared.counters.pending.Pending.add", RACES)(
    lambda add: lambda self, *what, confirmed=True, late=False: add(self, *what, confirmed=confirmed)
)

mutation("an unconfirmed entry counts", "shared.counters.pending.pending", RACES)(
    lambda pending: lambda base, view, *each: pending(base, _each_entry(view, confirmed=True), *each)
)

mutation("a base from before the floor is believed", "shared.counters.pending.pending", RACES, SEEDS)(
    lambda pending: lambda base, view, *each: pending(base._replace(time=max(base.time, view.floor)), view, *each)
)

mutation("a late entry is believed to be unapplied", "shared.counters.pending.pending", RACES)(
    lambda pending: lambda base, view, *each: pending(base, _each_entry(view, late=False), *each)
)

mutation("receipts of unconfirmed entries are not asked for", "shared.counters.pending.keys_of", RACES)(
    lambda keys_of: lambda view: keys_of(replace(view, entries=tuple(one for one in view.entries if one.confirmed)))
)

mutation(
    "a view from before the base is believed",
    "shared.counters.reader.Reader._combine",
    "tests/unit/counters/test_reader.py",
)(lambda combine: lambda self, name, base, *more, **how: combine(self, name, base._replace(viewed=0), *more, **how))

mutation("the overlay is viewed before the instant is chosen", "shared.counters.reader._is_too_early", RACES)(
    returning(False)
)

mutation("dead receipts are settled in the overlay, and not counted", "shared.counters.pending.pending", DEAD)(
    lambda pending: lambda base, view, *each: pending(base._replace(total=replace(base.total, dead=())), view, *each)
)

mutation(
    "readings are exact beside a message that nobody here can read", "shared.counters.pending.Pending.exact", NEWER
)(lambda _: property(lambda self: self._exact))


@mutation(
    "the answer to an increment has a total that was read before it was accepted",
    "ingest.api.increments.Totals._join",
    "tests/http/test_waiting.py",
)
def _(join: Any) -> Any:
    flights: dict[Any, Any] = {}

    def mutant(self: Any, names: Any) -> Any:
        flight = flights.get(tuple(names))
        if flight is None or flight.done():
            flights[tuple(names)] = flight = join(self, names)
        return flight

    return mutant


@around(
    "a read joins a look that has begun",
    "ingest.http.fast_path.FastPath._read_cached",
    "tests/http/test_connections.py",
    "-k",
    "shares_only_looks",
)
async def _(read: Any, self: Any, age: Any, asked: Any) -> None:
    asyncio.get_running_loop().call_soon(self._asked.__setitem__, age, asked)
    try:
        await read(self, age, asked)
    finally:
        self._asked.pop(age, None)


mutation("what is pending takes places of the largest", "shared.sqlite.store.SqliteStore.largest", LARGEST)(
    lambda largest: lambda self, snapshot, prefixes, limit, pending: largest(self, snapshot, prefixes, limit, {})
)
mutation("a reading may lack what the largest have shown", "shared.counters.reader.Reader.forget", LARGEST)(
    returning_later()
)
mutation("the largest are sought among what is stored alone", "shared.counters.pending.Pending.under", LARGEST)(
    lambda under: lambda self, prefixes: ({}, under(self, prefixes)[1])
)
mutation("in Datastore, equal totals are not ranked by name", "shared.datastore.ranking._Ranking._read_equal", RANKING)(
    returning_later(None)
)
mutation(
    "in Datastore, several shards are ranked as if each were all", "shared.datastore.ranking._Ranking._may_be", RANKING
)(lambda _: lambda self, name, count: count + self._swings.get(name, (0, 0))[1])
mutation("in Datastore, what is pending does not lift a counter", "shared.datastore.ranking._swing", RANKING)(
    lambda swing: lambda view: (swing(view)[0], 0)
)
mutation(
    "in Datastore, totals that are not positive are not ranked", "shared.datastore.ranking._Ranking.walk", RANKING
)(returning_later(True))
mutation("the largest are ranked by their first shards", "shared.sqlite.store._SEVERAL", STORE)(
    text("shard > 0", "shard < 0")
)
