"""Keeps messages durably while the broker is unavailable, and forwards them when it is back."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from shared.model.buckets import BEGINNING, NEVER, StoreMillis
from shared.model.errors import (
    BrokerRejectedError,
    DoubtfulError,
    OverloadedError,
    StoodStillError,
    StorageFullError,
    TooLargeError,
    TransientError,
    UnkeptError,
    amount,
)
from shared.model.words import Delivery, Message
from shared.ports.broker import Check, Publisher, Subscription, at_any_time
from shared.runtime import metrics
from shared.runtime.clock import Clock, deadline
from shared.runtime.retry import Backoff

# One step of a spool: publishes the messages that wait, and finds out which of them the broker refuses.


PAUSE: Final = 60.0
"""Seconds until the broker is asked again for a message that it refused alone."""
MOST_IN_VAIN_FORWARDED: Final = 10
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
        if len(self.refused) >= MOST_IN_VAIN_FORWARDED and not self.taken:
            raise error

    def _done(self, deliveries: Sequence[Delivery]) -> list[str]:
        for delivery in deliveries:
            del self._left[delivery.token]
        return [delivery.token for delivery in deliveries]


_log = logging.getLogger(__name__)

MOST_FORWARDED: Final = 500
MOST_BYTES_FORWARDED: Final = 5_000_000
MOST_BAD_ROWS: Final = 10_000
"""Refused rows that are remembered."""
WAIT: Final = 0.2
BELIEVED: Final = 3_600.0
"""Seconds for which an answer of the store is used. It moves on with time, and promises stay in force for longer."""
LONGEST_FORWARD: Final = 600.0
"""Seconds for which a row may be published after its age was judged."""
TOO_OLD: Final = (
    "it waited in the spool for so long that receipts may have expired: if it was published before, it would count"
    " twice; set COUNTERSINK_SPOOL_AGE for flushers as for ingests"
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
                f"Pub/Sub is unavailable ({self._said}), and the spool is full (COUNTERSINK_SPOOL_BYTES): try"
                " again later",
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
        if len(self._refused) > MOST_BAD_ROWS:
            self._refused.clear()
        self._refused.update(delivery.message_id for delivery in step.refused)
        now = self._clock.monotonic()
        if step.refused and now >= self._quiet_until:
            self._quiet_until = now + PAUSE
            _log.error(
                "the broker refuses %s of the spool, which keeps them and tries again every %g s: %s",
                amount(len(step.refused), "message"),
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
                    f"Pub/Sub has been unavailable for {age:.0f} s, and COUNTERSINK_SPOOL_AGE"
                    f" allows {self._longest_age:g}: try again later",
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
