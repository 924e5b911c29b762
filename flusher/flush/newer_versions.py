"""Puts aside messages of a newer version: they wait for a newer process."""

import logging
from collections.abc import Sequence
from typing import Final

from shared.model.errors import NewerError, TransientError
from shared.model.times import BrokerMillis
from shared.model.words import Delivery
from shared.ports.broker import Subscription
from shared.runtime import metrics
from shared.runtime.clock import Clock

_log = logging.getLogger(__name__)

FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 300.0
"""Seconds until the message is delivered again, to any process. They double with each delivery. Without the pause it
would come back at once."""
SAYS: Final = 60.0
"""Seconds between two lines in the log."""
MOST: Final = 50_000
"""Messages that are remembered, so that they can be given back at the end."""


class NewerMessages:
    """Holds messages that need a newer process.

    They take no room in the window, so others are pulled and flushed meanwhile. They are not applied, so `oldest`
    includes them.
    """

    def __init__(self, subscription: Subscription, clock: Clock) -> None:
        self._subscription = subscription
        self._clock = clock
        self._taken: list[Delivery] = []
        self._waiting: dict[str, tuple[float, BrokerMillis]] = {}
        """By token: when its lease ends, and when it was published."""
        self._others: tuple[float, BrokerMillis] | None = None
        """All messages beyond `MOST` together: when the last lease ends, and when the oldest was published."""
        self._number = 0
        self._said = float("-inf")

    def take(self, delivery: Delivery, why: NewerError) -> None:
        """Hold the message until the next `put_off`."""
        self._taken.append(delivery)
        metrics.NEWER.inc()
        self._number += 1
        now = self._clock.monotonic()
        if now - self._said >= SAYS:
            _log.error(
                "%d messages need a newer process, the last one is %s: %s", self._number, delivery.message_id, why
            )
            self._said, self._number = now, 0

    async def put_off(self) -> None:
        """Let the leases of the held messages end after a pause. If this fails, they end by themselves."""
        taken, self._taken = self._taken, []
        by_pause: dict[float, list[Delivery]] = {}
        for delivery in taken:
            pause = min(FIRST_PAUSE * 2 ** min(delivery.attempt - 1, 10), LONGEST_PAUSE)
            by_pause.setdefault(pause, []).append(delivery)
        for pause, deliveries in by_pause.items():
            until = self._clock.monotonic() + pause
            for delivery in deliveries:
                self._remember(delivery, until)
            try:
                await self._subscription.extend([delivery.token for delivery in deliveries], pause)
            except TransientError as error:
                _log.warning("%d messages for newer processes wait until their leases end: %s", len(deliveries), error)

    def oldest(self) -> BrokerMillis | None:
        """When the oldest message whose lease has not ended was published."""
        self._forget()
        times = [published for _, published in self._waiting.values()]
        if self._others is not None:
            times.append(self._others[1])
        return min([*times, *(delivery.published for delivery in self._taken)], default=None)

    def tokens(self) -> Sequence[str]:
        """The tokens of all messages that can be given back at the end of the process."""
        self._forget()
        return [*self._waiting, *(delivery.token for delivery in self._taken)]

    def _remember(self, delivery: Delivery, until: float) -> None:
        if len(self._waiting) < MOST:
            self._waiting[delivery.token] = (until, delivery.published)
        elif self._others is None:
            self._others = (until, delivery.published)
        else:
            self._others = (max(until, self._others[0]), min(delivery.published, self._others[1]))

    def _forget(self) -> None:
        """Forget messages whose leases have ended."""
        now = self._clock.monotonic()
        if any(until <= now for until, _ in self._waiting.values()):
            self._waiting = {token: one for token, one in self._waiting.items() if one[0] > now}
        if self._others is not None and self._others[0] <= now:
            self._others = None
