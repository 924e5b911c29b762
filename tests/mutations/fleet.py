"""Mutations of the fleet: who is in it, who is taken for dead, and who inherits a spool."""

from dataclasses import replace
from typing import Any

from shared.fleet import OWES
from shared.fleet import STOPPED as STOPPED_STATE
from tests.mutations.mutation import Instead, altered, around, calling, mutation, replaced, returning, returning_later
from tests.mutations.places import EVIDENCE, FENCES, FLEET, HANDOVERS, MEMBERS, STOPPED, STOPS


@replaced("a member answers apart and does not say so to the store", "shared.redis.member.Member._owe", FLEET)
async def _(self: Any) -> None:
    self.membership.state = OWES
    self._changed.set()


mutation(
    "a member does not wait for looks of before it went apart",
    "shared.fleet.Membership.until_free",
    FLEET,
)(returning_later())


@around("a join does not see that its member came to owe", "shared.fleet.Membership.join", MEMBERS)
async def _(join: Any, self: Any, epoch: int) -> Any:
    async with self._turn:
        pass
    return await join(self, epoch)


mutation("a reading is exact though a member owes", "shared.model.fleet.Fleet.whole", FLEET)(
    lambda _: lambda self: bool(self.overlay.epoch)
)


@around("a record goes though it is not the one that was seen", "shared.redis.member.GoneMembers._fence", FENCES)
async def _(fence: Any, self: Any, fleet: Any, name: str, record: Any) -> None:
    async def change(_: Any) -> Any:
        return await self._looks.change(lambda now, _: now.without(name))

    await fence(altered(self, _looks=Instead(self._looks, change=change)), fleet, name, record)


mutation("a member that is gone is forgotten without a wait", "shared.model.fleet._watched", EVIDENCE, FLEET)(
    calling(WATCHES=-(10**12))
)
mutation("what flushers saw before a member's last word is evidence", "shared.model.fleet._watched", EVIDENCE)(
    calling(max=lambda one, *_: one if isinstance(one, int) else 0)
)
mutation("a flusher that stops takes with it what it saw", "shared.model.fleet.leaves", *HANDOVERS)(
    calling(gone=lambda *_: False)
)
mutation("a flusher that did not pull has seen nothing", "flusher.flush.flusher.BacklogWitness._note_gap", *HANDOVERS)(
    returning(None)
)


@around("a member that stops lists what it answered only", "shared.redis.member.Member.leave", STOPS)
async def _(leave: Any, self: Any) -> None:
    await leave(altered(self, _copy=Instead(self._copy, confirmed=list)))


mutation("a member that stops is taken for dead", "shared.model.fleet.PublisherRecord.gone", STOPS, EVIDENCE)(
    lambda _: lambda self: bool(self.struck)
)


@around("a member answers after it made its list", "shared.redis.member.Member.confirm", STOPS)
async def _(confirm: Any, self: Any, tries: Any) -> None:
    if self.membership.state != STOPPED_STATE:
        await confirm(self, tries)


@replaced("a list is settled when some of it is", "shared.fleet.StoppedMembers._settled", STOPPED)
async def _(self: Any, name: str) -> bool:
    keys = await self._looks.left_by(name) or ()
    return any(one.settled for one in (await self._store.receipts(keys)).found.values())


mutation(
    "a flusher that comes late is struck before it could report", "shared.model.fleet.Fleet.flushes", EVIDENCE, FLEET
)(lambda flushes: lambda self, flusher, topic, _: flushes(self, flusher, topic, 0))


@around(
    "who shares a spool file leaves it to the one that is gone",
    "shared.fleet.Membership._find",
    FENCES,
    "-k",
    "taken_over",
)
def _(find: Any, self: Any, fleet: Any) -> None:
    if self._heir_of is None:
        find(self, fleet)


mutation(
    "a process that stands still loses its spool file",
    "shared.fleet._removed",
    "tests/unit/fleet/test_membership.py",
)(lambda removed: lambda path: removed(path) or True)


@around(
    "what an heir has published of a spool is not awaited",
    "shared.model.fleet.Fleet.takes_over",
    EVIDENCE,
)
def _(takes_over: Any, self: Any, dead: Any, now: int) -> Any:
    after = takes_over(self, dead, now)
    members = {name: one._replace(struck=self.members[name].struck) for name, one in after.members.items()}
    return replace(after, members=members)


@around(
    "one that lives is trusted away",
    "shared.wiring.doctor.FleetSetup.trust",
    FENCES,
    "-k",
    "nobody_can_say",
)
async def _(trust: Any, self: Any, *what: Any, **how: Any) -> Any:
    struck: dict[str, Any] = {}

    async def change(step: Any) -> Any:
        """The second change finds the records as the first one left them."""
        if struck:
            return await self._book.change(
                lambda fleet, now: step(replace(fleet, members={**fleet.members, **struck}), now)
            )
        look = await self._book.change(step)
        struck.update({name: one for name, one in look.fleet.members.items() if one.struck})
        return look

    return await trust(altered(self, _book=Instead(self._book, change=change)), *what, **how)
