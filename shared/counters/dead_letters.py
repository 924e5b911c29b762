"""Shows the dead letters of two places as one list: first the spool's, then the broker's."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

from shared.model.buckets import Instant
from shared.model.words import Delivery, Letter
from shared.ports.broker import DeadLetters

SPOOL: Final = "spool-"
"""Prefix of the ids of the spool's letters. Both places use numbers, which could be equal."""


class BothDeadLetters:
    """The spool's letters come first, so that you can see and replay them while the broker is away."""

    complete = False

    def __init__(self, spool: DeadLetters, broker: DeadLetters, close: Callable[[], Awaitable[None]]) -> None:
        """`close` closes the spool's file."""
        self._spool = spool
        self._broker = broker
        self._close = close

    async def pull(self, limit: int, max_bytes: int) -> Sequence[Letter]:
        if letters := await self._spool.pull(limit, max_bytes):
            return [replace(letter, delivery=_marked(letter.delivery)) for letter in letters]
        return await self._broker.pull(limit, max_bytes)

    def continue_after(self, token: str) -> None:
        """Do nothing: Pub/Sub has no order of letters."""

    async def ack(self, tokens: Sequence[str], floor: Instant) -> None:
        if spooled := [token.removeprefix(SPOOL) for token in tokens if token.startswith(SPOOL)]:
            await self._spool.ack(spooled, floor)
        if others := [token for token in tokens if not token.startswith(SPOOL)]:
            await self._broker.ack(others, floor)

    async def bury(self, delivery: Delivery, reason: str) -> None:
        if delivery.token.startswith(SPOOL):
            await self._spool.bury(replace(delivery, token=delivery.token.removeprefix(SPOOL)), reason)
        else:
            await self._broker.bury(delivery, reason)

    async def close(self) -> None:
        try:
            await self._broker.close()
        finally:
            await self._close()


def _marked(delivery: Delivery) -> Delivery:
    return replace(delivery, token=f"{SPOOL}{delivery.token}", message_id=f"{SPOOL}{delivery.message_id}")
