"""Acknowledges, extends and gives back leases on Pub/Sub, in batches within its limits."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from shared.google.pubsub.client import PATIENCE, PubsubClient, patiently
from shared.google.pubsub.requests import ack_batches
from shared.model.errors import BrokerRejectedError
from shared.runtime.supervise import all_of

LONGEST: Final = 600
"""Seconds of the longest lease that Pub/Sub allows."""
SIDE_BY_SIDE: Final = 8
"""How many requests are in flight at once, at most."""

_Call = Callable[[Sequence[str], float], Awaitable[None]]


class Leases:
    """Every operation on a lease may be repeated, so each one is retried for a while."""

    def __init__(self, client: PubsubClient, subscription: str, patience: float = PATIENCE) -> None:
        self._client = client
        self._subscription = subscription
        self._patience = patience
        self._slots = asyncio.Semaphore(SIDE_BY_SIDE)

    async def ack(self, ack_ids: Sequence[str]) -> None:
        await self._all(ack_ids, lambda ids, timeout: self._client.acknowledge(self._subscription, ids, timeout))

    async def extend(self, ack_ids: Sequence[str], seconds: float) -> None:
        """Let them end in whole seconds, at most `LONGEST`; 0 gives the messages back."""
        await self._set(ack_ids, min(max(math.ceil(seconds), 0), LONGEST))

    async def give_back(self, ack_ids: Sequence[str]) -> None:
        await self._set(ack_ids, 0)

    async def _set(self, ack_ids: Sequence[str], seconds: int) -> None:
        await self._all(
            ack_ids, lambda ids, timeout: self._client.set_deadline(self._subscription, ids, seconds, timeout)
        )

    async def _all(self, ack_ids: Sequence[str], call: _Call) -> None:
        await all_of(self._batch(batch, call) for batch in ack_batches(ack_ids))

    async def _batch(self, batch: Sequence[str], call: _Call) -> None:
        try:
            async with self._slots:
                await patiently(lambda timeout: call(batch, timeout), self._patience)
        except BrokerRejectedError:
            # One id that Pub/Sub does not know any more fails the whole batch. Its lease was lost, which is no error.
            if len(batch) > 1:
                half = len(batch) // 2
                await self._batch(batch[:half], call)
                await self._batch(batch[half:], call)
