"""Mutations of the flusher: what it commits, when it acknowledges, and what it takes for applied."""

from collections.abc import Iterator
from dataclasses import replace
from math import inf
from typing import Any

from flusher.flush.window import TOO_OLD
from shared.model.words import APPLIED, DEAD, DROPPED
from tests.mutations.mutation import LOOPS, around, instead, mutation, replaced, returning, returning_later
from tests.mutations.places import ACCOUNTS, FLUSH_AND_REPLAY, FLUSHER, PUBLISHING, SEEDS


@around("ack before commit", "flusher.flush.commit_loop.Flush.run", *FLUSH_AND_REPLAY, SEEDS)
async def _(run: Any, self: Any, longest: float = inf) -> None:
    await self._ack([*self.window.held])
    await run(self, longest)


mutation("windows never grow", "flusher.flush.window.FlushPolicy.closed", *FLUSHER)(returning(None))
mutation("nobody ever waits", "ingest.accept.publishing.Publishing._is_patient", PUBLISHING)(returning(True))
mutation("receipts name no envelopes", "shared.model.words.Envelope.is_minted", *FLUSHER)(
    lambda _: property(lambda self: False)
)
mutation("receipts name the envelopes of clients, too", "shared.model.words.Envelope.is_minted", *FLUSHER)(
    lambda _: property(lambda self: True)
)


@replaced("ALREADY_EXISTS taken as success", "flusher.flush.commit_loop.Flush._look_up", *FLUSHER, SEEDS)
async def _(self: Any, keys: Any, _: Any) -> None:
    self.window.learn(keys, APPLIED)


@around("a receipt found dead taken as applied", "flusher.flush.window.Window.found", *FLUSH_AND_REPLAY)
def _(found: Any, self: Any, keys: Any, receipts: Any) -> None:
    alive = {
        key: receipt if self._revives and receipt.state == DEAD else receipt._replace(state=APPLIED)
        for key, receipt in receipts.items()
    }
    found(self, keys, alive)


@around("a repeated id counted twice in one commit", "flusher.flush.window.Plan.take", *FLUSH_AND_REPLAY)
def _(take: Any, self: Any, envelope: Any, known: Any) -> Any:
    before = self.ids
    self.ids = dict.fromkeys(before.keys() - {*envelope.ids})
    taken = take(self, envelope, known)
    self.ids = before | self.ids
    return taken


mutation("what is too old to be judged is applied", "flusher.flush.window.Held.late", *FLUSH_AND_REPLAY, LOOPS)(
    returning(False)
)

mutation(
    "a flusher does not say until when its commit may be applied", "flusher.flush.commit_loop.Flush._bounds", *FLUSHER
)(lambda bounds: lambda self, _, __: bounds(self, None, []))


@replaced(
    "what came too late, and may be applied, is kept as dead for sure",
    "flusher.flush.window.Window.holder",
    *FLUSH_AND_REPLAY,
)
def _(self: Any, envelope: Any, _: int) -> Any:
    return next((held for held in self.held for one in held.envelopes if envelope.key == one.key), None)


mutation(
    "a letter is replayed as it is, though readers have counted the body of its receipt",
    "flusher.flush.window.Window._revived",
    ACCOUNTS,
)(lambda _: lambda self, envelope: envelope.in_place_of(self.attempts[envelope.key], self.dead[envelope.key]))

mutation(
    "a receipt found dead without a body gets none, and is not renewed, by who buries",
    "flusher.flush.commit_loop.Flush._renew",
    *FLUSH_AND_REPLAY,
)(returning_later())


mutation(
    "what a process knows of receipts is true for ever",
    "shared.model.receipts.Promises.in_force_until",
    *FLUSH_AND_REPLAY,
)(returning(1 << 60))


mutation("what a replay saw to be dead is true for ever", "flusher.flush.commit_loop.FORCE", *FLUSH_AND_REPLAY)(
    instead(1 << 60)
)


@around("a dead receipt gets a body however late", "flusher.flush.commit_loop.Flush._renew", *FLUSH_AND_REPLAY)
async def _(renew: Any, self: Any, envelope: Any) -> None:
    self._holds_until = 1 << 60
    for held in self.window.held:
        held.until = None
    await renew(self, envelope)


@replaced(
    "a second use of an id that came too late is tried for ever",
    "flusher.flush.window.Window.late",
    *FLUSH_AND_REPLAY,
    SEEDS,
)
def _(self: Any) -> Iterator[Any]:
    for held in [*self.held]:
        for envelope in held.envelopes:
            late, left = held.late, self._left(envelope)
            if left is None:
                continue
            if self.known.get(envelope.key) in {DEAD, DROPPED}:
                yield held, left, TOO_OLD
            elif late:
                yield held, envelope, TOO_OLD


@around("a second use of a key is taken for a copy, and counted nowhere", "flusher.flush.window.Window._left", SEEDS)
def _(left: Any, self: Any, envelope: Any, plan: Any = None) -> Any:
    found = left(self, envelope, plan)
    return None if found is not None and found.second and not envelope.second else found


@around("a copy is taken for a second use of its key", "flusher.flush.window.Window._left", SEEDS)
def _(left: Any, self: Any, envelope: Any, plan: Any = None) -> Any:
    found = left(self, envelope, plan)
    planned, attempts = (plan.receipts, plan.attempts) if plan is not None else ({}, {})
    first = attempts.get(envelope.key) or self.attempts.get(envelope.key, "")
    if found is None and envelope.attempt and first == envelope.attempt:
        second = envelope.as_second_use()
        return None if second.key in self.known or second.key in planned else second
    return found


mutation("an increment whose id is known counts as applied", "flusher.flush.window.Plan._count", ACCOUNTS)(
    lambda count: lambda self, envelope, dropped: count(self, envelope, dropped if envelope.second else 0)
)


@around("a commit that was doubtful is not counted", "flusher.flush.commit_loop.Flush.learn", ACCOUNTS)
def _(learn: Any, self: Any, keys: Any, receipts: Any) -> None:
    self._count = lambda _: None
    try:
        learn(self, keys, receipts)
    finally:
        del self._count


@around("a replay's receipt is flipped outside of the commit", "flusher.flush.commit_loop.apply", *FLUSH_AND_REPLAY)
async def _(apply: Any, commit: Any, envelopes: Any, parts: Any) -> Any:
    if commit.revived:
        await parts.store.apply(replace(commit, receipts=(), adds=()))
    return await apply(replace(commit, revived=()), envelopes, parts)


@around("a replay does not say that the receipt must be dead", "flusher.flush.commit_loop.apply", *FLUSH_AND_REPLAY)
async def _(apply: Any, commit: Any, envelopes: Any, parts: Any) -> Any:
    return await apply(replace(commit, revived=()), envelopes, parts)
