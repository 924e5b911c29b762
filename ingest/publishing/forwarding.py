"""One step of a spool: publishes the messages that wait, and finds out which of them the broker refuses."""

from collections.abc import Sequence
from typing import Final

from shared.model.errors import BrokerRejectedError, TooLargeError
from shared.model.times import BEGINNING
from shared.model.words import Delivery
from shared.ports.broker import Check, Publisher, Subscription
from shared.runtime import metrics

PAUSE: Final = 60.0
"""Seconds until the broker is asked again for a message that it refused alone."""
MOST_REFUSED: Final = 10
"""Messages that may be refused, one by one, before the step ends because the broker takes none at all."""


class Forwarding:
    """Sends all messages together. If the broker refuses them, it halves them until the refused ones are alone.

    A refused message stays in the spool and is tried again after `PAUSE`, so it does not hold up the others. Only a
    message that is too large for the broker is buried.
    """

    def __init__(self, broker: Publisher, waiting: Subscription, deliveries: Sequence[Delivery], check: Check) -> None:
        self._broker = broker
        self._check = check
        self._waiting = waiting
        self._left = {delivery.token: delivery for delivery in deliveries}
        self.taken = 0
        self.refused: list[Delivery] = []
        self.buried: list[Delivery] = []
        self.error: BrokerRejectedError | None = None
        """What the broker said when it refused a message."""

    async def run(self) -> None:
        """Forward the messages. Raises `TransientError` if the broker is away, `BrokerRejectedError` if it took none.
        Call `give_back` afterwards.
        """
        await self._send([*self._left.values()])
        if self.error is not None and not self.taken:
            raise self.error

    async def give_back(self) -> None:
        if self._left:
            await self._waiting.give_back([*self._left])

    async def _send(self, deliveries: Sequence[Delivery]) -> None:
        try:
            await self._broker.publish([delivery.message for delivery in deliveries], self._check)
        except (BrokerRejectedError, TooLargeError) as error:
            if len(deliveries) == 1:
                await self._set_aside(deliveries[0], error)
            else:
                half = len(deliveries) // 2
                await self._send(deliveries[:half])
                await self._send(deliveries[half:])
        else:
            self.taken += len(deliveries)
            await self._waiting.ack(self._done(deliveries), BEGINNING)
            metrics.FORWARDED.inc(len(deliveries))

    async def _set_aside(self, delivery: Delivery, error: BrokerRejectedError | TooLargeError) -> None:
        if isinstance(error, TooLargeError):
            self._done([delivery])
            await self._waiting.bury(delivery, f"it is too large to be sent: {error}")
            self.buried.append(delivery)
            return
        self.error = error
        self.refused.append(delivery)
        metrics.SPOOL_REFUSED.inc()
        await self._waiting.extend(self._done([delivery]), PAUSE)
        if len(self.refused) >= MOST_REFUSED and not self.taken:
            raise error

    def _done(self, deliveries: Sequence[Delivery]) -> list[str]:
        for delivery in deliveries:
            del self._left[delivery.token]
        return [delivery.token for delivery in deliveries]
