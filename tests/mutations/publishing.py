"""Mutations of publishing: what is answered before it is durable, and what is said of a publish that failed."""

import contextlib
from typing import Any

from shared.model.errors import TooLargeError, UnkeptError
from tests.mutations.mutation import around, instead, mutation, replaced, returning
from tests.mutations.places import NEW_NAMES, PUBLISHING, SEEDS, SPOOL


@around("a 202 before the publish is durable", "ingest.accept.publishing.Publishing.durable", SEEDS)
def _(durable: Any, self: Any, draft: Any) -> Any:
    future = durable(self, draft)
    future.set_result(None)
    return future


@replaced(
    "what failed to be published is forgotten by the spool",
    "ingest.accept.spool.Forwarding.give_back",
    SPOOL,
    SEEDS,
)
async def _(self: Any) -> None:
    if self._left:
        await self._waiting.ack([*self._left], 0)


mutation("a refusal of the broker that passes taken as final", "ingest.accept.spool.Forwarding._set_aside", SPOOL)(
    lambda set_aside: lambda self, delivery, error: set_aside(self, delivery, TooLargeError(str(error)))
)

mutation("a refusal taken as proof that nothing was published", "ingest.accept.publishing._NOT_TAKEN", PUBLISHING)(
    instead((Exception,))
)


@around(
    "published where no subscription would keep it",
    "shared.pubsub.publisher.KeptPublisher._look",
    "tests/emulators/test_pubsub_kept.py",
)
async def _(look: Any, self: Any) -> None:
    with contextlib.suppress(UnkeptError):
        await look(self)


mutation("who stood still for weeks publishes what it holds", "shared.runtime.clock.StandstillWatch.check", PUBLISHING)(
    returning(None)
)

mutation(
    "a batch under an Idempotency-Key counts in part, so that a retry which finds room seems to count the rest",
    "ingest.accept.new_names.NewNames.admit_together",
    NEW_NAMES,
)(lambda _: lambda self, names, trial, hint: self.admit(names, trial))

mutation(
    "new names that the store does not have yet take no room under COUNTERSINK_MAX_COUNTERS",
    "ingest.accept.new_names.NewNames._take",
    NEW_NAMES,
)(returning(None))

mutation(
    "a name that is counted by the store keeps its room of a new one",
    "ingest.accept.new_names.NewNames._release",
    "tests/unit/accept/test_new_names.py",
)(lambda _: lambda self, name: None)
