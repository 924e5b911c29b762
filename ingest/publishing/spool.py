"""Keeps messages durably while the broker is unavailable, and forwards them when it is back."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from ingest.publishing.forwarding import PAUSE, Forwarding
from shared.model.errors import (
    BrokerRejectedError,
    DoubtfulError,
    OverloadedError,
    StoodStillError,
    StorageFullError,
    TransientError,
    UnkeptError,
)
from shared.model.times import NEVER, StoreMillis
from shared.model.words import Delivery, Message
from shared.ports.broker import Check, Publisher, Subscription, at_any_time
from shared.runtime import metrics
from shared.runtime.backoff import Backoff
from shared.runtime.clock import Clock
from shared.runtime.standstill import deadline

_log = logging.getLogger(__name__)

MOST_FORWARDED: Final = 500
MOST_BYTES_FORWARDED: Final = 5_000_000
MOST_REMEMBERED: Final = 10_000
"""Refused rows that are remembered."""
WAIT: Final = 0.2
BELIEVED: Final = 3_600.0
"""Seconds for which an answer of the store is used. It moves on with time, and promises stay in force for longer."""
LONGEST_FORWARD: Final = 600.0
"""Seconds for which a row may be published after its age was judged."""
TOO_OLD: Final = (
    "it waited in the spool for so long that receipts may be gone: if it was published before, it would count twice;"
    " set COUNTERSINK_SPOOL_AGE for flushers as for ingests"
)


class Spool:
    """A publisher in front of the broker's. Messages in the spool go first, so the order of arrival is mostly kept.

    A message whose publish failed in an unknown way may have been published. It is spooled all the same, with the same
    id, so it counts once. If the spool has no room for it either, the error must not say that nothing was accepted.

    No answer of the broker is final. A row stays until the broker has taken it, or, if it can never fit, until an
    operator replays or drops it (`countersink dlq`).
    """

    def __init__(
        self,
        broker: Publisher,
        queue: Publisher,
        waiting: Subscription,
        clock: Clock,
        longest_age: float,
        *,
        keeps: bool = True,
        oldest: Callable[[], Awaitable[StoreMillis]] | None = None,
    ) -> None:
        """`queue` and `waiting`: a durable broker on this machine, which dates rows by `clock`. `longest_age`: seconds.
        `oldest`: the time before which a row must not have been accepted.

        If not `keeps`, the file may vanish with the process: the spool only forwards what it finds.
        """
        self._broker = broker
        self._queue = queue
        self._waiting = waiting
        self._clock = clock
        self._longest_age = longest_age
        self._keeps = keeps
        self._asks = oldest
        self._answer = NEVER, float("-inf")
        """The store's last answer, and when it came (monotonic)."""
        self._away = True
        """True until the spool is known to be empty."""
        self._oldest: int | None = None
        self._said: str | None = None
        self._refused: set[str] = set()
        """Rows that the broker refused alone. Another refusal of them says nothing about other rows."""
        self._refusing_until = float("-inf")
        """Until then (monotonic) the broker is assumed to refuse everything."""
        self._most = MOST_FORWARDED
        """Rows of the next step. There are fewer after a failed step, which may have been too large for a proxy."""
        self._quiet_until = float("-inf")
        """Until then (monotonic) refused messages are not logged again."""

    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
        if not self._keeps:
            await self._broker.publish(messages, check)
            return
        if self._away:
            await self._take(messages, check)
            return
        try:
            await self._broker.publish(messages, check)
        except (OverloadedError, StoodStillError):
            raise
        except TransientError as failure:
            self._broker_is_away(failure)
            try:
                await self._take(messages, check)
            except (OverloadedError, StorageFullError, StoodStillError) as limit:
                if isinstance(failure, UnkeptError):
                    raise
                raise DoubtfulError(limit) from limit

    async def _take(self, messages: Sequence[Message], check: Check) -> None:
        self._admit()
        try:
            await self._queue.publish(messages, check)
        except OverloadedError as error:
            raise OverloadedError(
                f"the broker is away ({self._said}), and the spool has all that COUNTERSINK_SPOOL_BYTES allows",
                error.retry_after,
            ) from error
        metrics.SPOOLED.inc(len(messages))

    async def check(self) -> None:
        if not self._keeps:
            await self._broker.check()
            return
        if not self._away:
            try:
                await self._broker.check()
            except OverloadedError:
                raise
            except TransientError:
                pass
            else:
                return
        self._admit()
        await self._queue.check()

    async def forward(self) -> None:
        """Forward waiting rows, in order, for ever."""
        backoff = Backoff(0.1, 2.0)
        while True:
            try:
                waited = await self.forward_once()
            except TransientError as error:
                self._broker_is_away(error)
                await backoff.wait()
            else:
                backoff.reset()
                if not waited:
                    await asyncio.sleep(WAIT)

    async def forward_once(self) -> int:
        """Take one step. Returns how many messages were waiting."""
        deliveries = await self._waiting.pull(self._most, MOST_BYTES_FORWARDED, 0)
        if not deliveries:
            if self._clock.monotonic() >= self._refusing_until:
                self._broker_is_back()
            return 0
        self._away = True
        pulled = len(deliveries)
        try:
            deliveries = await self._in_time(deliveries)
        except TransientError:
            await self._waiting.give_back([delivery.token for delivery in deliveries])
            raise
        if not deliveries:
            return pulled
        step = Forwarding(self._broker, self._waiting, deliveries, deadline(LONGEST_FORWARD, self._clock))
        try:
            await step.run()
            self._most = min(2 * self._most, MOST_FORWARDED)
            self._oldest = None
            self._refusing_until = float("-inf")
        except BrokerRejectedError:
            if not self._refused.issuperset(delivery.message_id for delivery in step.refused):
                self._oldest = self._oldest or int(self._clock.now() * 1000)
                self._refusing_until = self._clock.monotonic() + PAUSE
                raise
        except TransientError:
            self._most = max(len(deliveries) // 2, 1)
            ages = [one.published for one in deliveries if one.message_id not in self._refused]
            self._oldest = min(ages, default=self._oldest)
            raise
        finally:
            self._tell(step)
            await step.give_back()
        return pulled

    def _tell(self, step: Forwarding) -> None:
        if len(self._refused) > MOST_REMEMBERED:
            self._refused.clear()
        self._refused.update(delivery.message_id for delivery in step.refused)
        now = self._clock.monotonic()
        if step.refused and now >= self._quiet_until:
            self._quiet_until = now + PAUSE
            _log.error(
                "the broker refuses %d messages of the spool; it keeps them, and tries again every %g s: %s",
                len(step.refused),
                PAUSE,
                step.error,
            )
        for delivery in step.buried:
            metrics.SPOOL_BURIED.inc()
            _log.critical(
                "message %s of the spool is too large for the broker, and is kept: see countersink dlq list",
                delivery.message_id,
            )

    async def _in_time(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        """The rows that may still be forwarded. A new process asks the store before it forwards anything: the rows that
        it finds may have waited for any time, whatever this machine's clock says.
        """
        if self._asks is None:
            return deliveries
        now = self._clock.monotonic()
        answer, when = self._answer
        if now - when > BELIEVED:
            answer, when = self._answer = await self._asks(), now
        oldest = answer + int((now - when) * 1_000)
        for delivery in deliveries:
            if delivery.published < oldest:
                metrics.SPOOL_BURIED.inc()
                _log.critical(
                    "message %s is too old to be forwarded, and is kept in the spool: see countersink dlq list",
                    delivery.message_id,
                )
                await self._waiting.bury(delivery, TOO_OLD)
        return [delivery for delivery in deliveries if delivery.published >= oldest]

    def _admit(self) -> None:
        if self._oldest is not None:
            age = self._clock.now() - self._oldest / 1000
            if age > self._longest_age:
                raise OverloadedError(
                    f"the broker has been away for {age:.0f} s, COUNTERSINK_SPOOL_AGE allows {self._longest_age:g}",
                    retry_after=10.0,
                )

    def _broker_is_away(self, error: TransientError) -> None:
        metrics.SPOOLING.set(1)
        self._away = True
        if self._said is None:
            _log.warning("the broker is unavailable; increments go to the spool: %s", error)
        self._said = str(error)

    def _broker_is_back(self) -> None:
        metrics.SPOOLING.set(0)
        self._away = False
        self._oldest = None
        if self._said is not None:
            _log.warning("the broker is back; increments go to it again")
        self._said = None
