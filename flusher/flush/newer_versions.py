"""Leaves messages of a newer version to newer processes: neither counts nor buries them, and delays nothing else."""

import logging
from typing import Final

from shared.model.buckets import BrokerMillis
from shared.model.errors import NewerError, TransientError
from shared.model.words import Delivery
from shared.ports.broker import Subscription
from shared.runtime import metrics
from shared.runtime.clock import Clock

_log = logging.getLogger(__name__)

PAUSE: Final = 60.0
"""Seconds until such a message is delivered again, to any process. Without the pause it would come back at once. Also
the seconds between two lines in the log.
"""


class NewerMessages:
    """Lets each of them go for `PAUSE`. They take no room in the window, so others are pulled and flushed meanwhile."""

    def __init__(self, subscription: Subscription, clock: Clock) -> None:
        self._subscription = subscription
        self._clock = clock
        self._taken: list[Delivery] = []
        self._oldest: BrokerMillis | None = None
        self._until = self._said = float("-inf")
        self._number = 0

    def take(self, delivery: Delivery, why: NewerError) -> None:
        """Take the message until the next `put_off`."""
        self._taken.append(delivery)
        metrics.NEWER.inc()
        self._number += 1
        now = self._clock.monotonic()
        if now - self._said >= PAUSE:
            last = delivery.message_id
            _log.error("%d messages need a newer process, the last one is %s: %s", self._number, last, why)
            self._said, self._number = now, 0

    async def put_off(self) -> None:
        """Let their leases end after the pause. If this fails, they end by themselves."""
        if not self._taken:
            return
        self._oldest, self._until = self.oldest(), self._clock.monotonic() + PAUSE
        taken, self._taken = self._taken, []
        try:
            await self._subscription.extend([delivery.token for delivery in taken], PAUSE)
        except TransientError as error:
            _log.warning("%d messages for newer processes wait until their leases end: %s", len(taken), error)

    def oldest(self) -> BrokerMillis | None:
        """When the oldest message was published that is not applied, as a newer process has to do it; None once none
        was seen for `PAUSE`, because each comes again by then.
        """
        if self._until <= self._clock.monotonic():
            self._oldest = None
        times = [delivery.published for delivery in self._taken]
        return min(times if self._oldest is None else [*times, self._oldest], default=None)
