"""Mutations of sets, resets and deletes."""

from dataclasses import replace
from typing import Any

from shared.model.errors import ChangedError, DoubtfulError
from shared.model.words import Commit
from tests.mutations.mutation import Instead, altered, around, calling, mutation, replaced, returning, returning_later
from tests.mutations.places import (
    CHANGES_IN_FLEET,
    COMPACTIONS,
    FLEET_IN_DATASTORE,
    READER,
    SEEDS,
    SET_OVER_HTTP,
    SETS,
    SETTER,
)


def _with_look(commit: Any, change: Any) -> Any:
    """The commit of a set, which takes for what was read what `change` makes of it."""

    async def mutant(self: Any, counter: str, *what: Any) -> Any:
        *first, look, full = what
        return await commit(self, counter, *first, await change(self, counter, look), full)

    return mutant


@mutation("a set does not say which guard it saw", "shared.counters.setter.Setter._commit", SETS, SEEDS)
def _(commit: Any) -> Any:
    async def of_now(self: Any, counter: str, look: Any) -> Any:
        async with self._store.snapshot() as now:
            guard = (await now.read([counter], ()))[0][counter].guard
        return look._replace(guard=look.guard._replace(version=guard.version))

    return _with_look(commit, of_now)


@around("a set does not raise the floor", "shared.counters.setter.Setter._set", SETS, SEEDS)
async def _(set_: Any, self: Any, *what: Any, **how: Any) -> Any:
    overlay = Instead(self._overlay, changed=returning_later()(None))
    return await set_(altered(self, _overlay=overlay), *what, **how)


@around("a retry of a set does not raise the floor", "shared.counters.setter.Setter._earlier", SETS)
async def _(earlier: Any, self: Any, receipt: str) -> Any:
    return (await earlier(self, receipt))[0], 0


@around("the receipt of a set outside of its commit", "shared.counters.setter.Setter._commit", SETS, SEEDS)
async def _(commit: Any, self: Any, *what: Any) -> Any:
    store = self._store

    async def in_two(whole: Commit) -> Any:
        await store.apply(Commit((), whole.adds))
        return await store.apply(replace(whole, adds=()))

    return await commit(altered(self, _store=Instead(store, apply=in_two)), *what)


mutation("each try of a set has a receipt of its own", "shared.counters.setter.Setter.set", SET_OVER_HTTP)(
    lambda set_: lambda self, counter, wish: set_(self, counter, wish._replace(key=None))
)


@around("a set forgets what is pending", "shared.counters.setter.Setter._adds", SETS, SEEDS)
def _(adds: Any, self: Any, counter: str, wish: Any, look: Any, full: Any) -> Any:
    return adds(self, counter, wish, look._replace(reading=look.reading._replace(pending=0)), full)


@mutation("a set of what can't be read exactly", "shared.counters.setter.Setter._commit", SETTER)
def _(commit: Any) -> Any:
    async def exact(_: Any, __: str, look: Any) -> Any:
        return look._replace(reading=look.reading._replace(exact=True))

    return _with_look(commit, exact)


@around(
    "a limit after a commit that may come late is taken for the end of a set",
    "shared.counters.setter.Setter._insist",
    SETTER,
)
async def _(insist: Any, self: Any, *what: Any, **how: Any) -> Any:
    try:
        return await insist(self, *what, **how)
    except DoubtfulError as error:
        raise error.__cause__ or error from None


mutation("a set gives up when its shard was compacted", "shared.counters.setter.Setter._insist", COMPACTIONS)(
    calling(ShrunkError=ChangedError)
)


@replaced("a change in a fleet enters no mark", "shared.redis.overlay.RedisOverlay.mark", CHANGES_IN_FLEET)
async def _(self: Any, *_: Any) -> Any:
    return self._named().nonce


mutation("a change raises no floor in a fleet", "shared.redis.overlay.RedisOverlay.changed", CHANGES_IN_FLEET)(
    returning_later()
)
mutation(
    "what can't be settled is exact all the same", "shared.counters.reader._settle_found", CHANGES_IN_FLEET, READER
)(returning_later(()))
mutation("a new overlay is read at once", "shared.fleet.FleetView.young", CHANGES_IN_FLEET)(returning(0.0))
mutation("a commit does not look at its epoch", "shared.datastore.fleet.check_epoch", *FLEET_IN_DATASTORE)(
    returning_later()
)

mutation("a mark is settled without a floor", "shared.redis.overlay.RedisOverlay.settle", CHANGES_IN_FLEET)(
    lambda settle: lambda self, keys, time, *epoch: settle(self, keys, 0, *epoch)
)
