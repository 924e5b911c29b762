"""Pulls from a subscription on Pub/Sub, with leases in batches and flow control of our own; tasks of jobs and dead
letters, too.
"""

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shared.model.buckets import BEGINNING, Instant
from shared.model.errors import BrokerRejectedError, CountersinkError, TransientError, amount
from shared.model.jobs import Lease, Task, written
from shared.model.words import Delivery, Lately, Letter, Message, batches
from shared.pubsub.client import RETRY_FOR, PubsubClient, PubsubPlace, SetupError, patiently
from shared.pubsub.publisher import (
    KeptPublisher,
    PubsubPublisher,
    ack_batches,
    dead_letter,
    from_wire,
    letter_of,
    published,
)
from shared.runtime.clock import Clock
from shared.runtime.retry import all_of, set_within

# Acknowledges, extends and gives back leases on Pub/Sub, in batches within its limits.


LONGEST: Final = 600
"""Seconds of the longest lease that Pub/Sub allows."""
SIDE_BY_SIDE: Final = 8

_Call = Callable[[Sequence[str], float], Awaitable[None]]


class Leases:
    """Every operation on a lease may be repeated, so each one is retried for a while."""

    def __init__(self, client: PubsubClient, subscription: str, patience: float = RETRY_FOR) -> None:
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


_log = logging.getLogger(__name__)

MOST_ASKED: Final = 1_000
ROUND_TRIP: Final = 0.5
"""Seconds that a caller waits for the request that it caused, even if it does not want to wait for messages."""
CLOSING: Final = 1.0
"""Seconds that `close` may take beyond the linger."""
REMEMBERED: Final = 50_000
"""Messages whose deliveries are counted."""


class PubsubSubscription:
    """Implements `Subscription` with the promises of Pub/Sub, which are a little weaker:

    - Pub/Sub numbers deliveries only under a dead-letter policy, which we cannot use. So `attempt` counts the
      deliveries by this object, for the last `REMEMBERED` messages: its first one may be the second of another process.
    - An ack that comes too late may still succeed. That is harmless: the message was applied or buried.
    - Two processes may, rarely, hold the same message. That is harmless, too: receipts tell.

    Messages beyond the limits of a caller wait for its next pull, up to `hold` seconds; then they are given back. No
    pull is ever cancelled, because the messages of its answer would be leased to nobody.
    """

    def __init__(
        self,
        client: PubsubClient,
        place: PubsubPlace,
        *,
        lease: float,
        outstanding: int = 4,
        linger: float = 2.0,
        hold: float = 1.0,
        patience: float = RETRY_FOR,
    ) -> None:
        """`linger`: seconds that a pull stays outstanding, even if its caller has gone."""
        self._client = client
        self._place = place
        self._lease = lease
        self._outstanding = outstanding
        self._linger = linger
        self._hold = hold
        self._leases = Leases(client, place.subscription, patience)
        self._dead = KeptPublisher(
            client, place.dead_topic, place.dead_subscription, patience=patience, of="dead letters"
        )
        self._pulled: deque[_Pulled] = deque()
        self._pulls: dict[asyncio.Task[None], float] = {}
        self._asked = 0
        self._width = 1
        self._typical = 1_000.0
        self._extends: bool | None = None
        self._attempts: Lately[str, int] = Lately(REMEMBERED)
        self._failure: Exception | None = None
        self._news = asyncio.Event()
        self._reaper: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def pull(self, limit: int, max_bytes: int, wait: float) -> Sequence[Delivery]:
        until = self._loop.time() + wait
        self._ask(limit, max_bytes)
        while True:
            # No await between taking and returning: a caller that is cancelled has taken nothing.
            if deliveries := self._take(limit, max_bytes):
                return deliveries
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            now = self._loop.time()
            if now < until:
                self._ask(limit, max_bytes)
                end = until
            else:
                end = min(max(self._pulls.values(), default=0.0), until) + ROUND_TRIP
            if self._closing.is_set() or end <= now:
                return ()
            self._news.clear()
            await set_within(self._news, end - now)

    async def extend(self, tokens: Sequence[str], seconds: float) -> None:
        """Extend them by 600 seconds at most: Pub/Sub has no longer leases."""
        await self._leases.extend(tokens, seconds)

    async def ack(self, tokens: Sequence[str], floor: Instant) -> None:  # noqa: ARG002 (no overlay lives here)
        await self._leases.ack(tokens)

    async def give_back(self, tokens: Sequence[str]) -> None:
        await self._leases.give_back(tokens)

    async def bury(self, delivery: Delivery, reason: str) -> None:
        """Publish it as a dead letter, then acknowledge it. If this is repeated, or interrupted in between, there are
        two dead letters of one message id.
        """
        await self._dead.publish([dead_letter(delivery, reason, self._place.topic)])
        await self._leases.ack([delivery.token])

    async def close(self) -> None:
        """Give back everything that no pull has returned. It waits until outstanding pulls end, for `linger` and a
        second at most; it does not wait for a Pub/Sub that is unavailable.
        """
        self._closing.set()
        self._news.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._linger + CLOSING):
                while self._pulls:
                    await asyncio.wait(self._pulls)
                rest = list(self._pulled)
                self._pulled.clear()
                await self._return(rest)
                if self._reaper is not None and not self._reaper.done():
                    await asyncio.wait([self._reaper])
        for task in (*self._pulls, self._reaper):
            if task is not None:
                task.cancel()  # its messages are delivered again when their leases run out

    def _take(self, limit: int, max_bytes: int) -> list[Delivery]:
        deliveries: list[Delivery] = []
        taken, _ = next(batches(self._pulled, lambda one: one.size, max_bytes, limit), ([], 0))
        for pulled in taken:
            self._pulled.popleft()
            key = f"{pulled.message.message_id} {published(pulled.message)}"
            self._attempts[key] = attempt = self._attempts.get(key, 0) + 1
            deliveries.append(from_wire(pulled.ack_id, pulled.message, max(attempt, pulled.attempt)))
        return deliveries

    def _ask(self, limit: int, max_bytes: int) -> None:
        """Start pulls. All outstanding ones together ask for no more than the caller has room for."""
        room = min(limit, max(int(max_bytes / self._typical), 1)) - self._asked - len(self._pulled)
        free = self._width - len(self._pulls)
        while free > 0 and room > 0 and not self._closing.is_set():
            most = min(max(room // free, 1), MOST_ASKED)
            room -= most
            free -= 1
            self._asked += most
            pull = self._loop.create_task(self._fetch(most, self._linger), name="Pub/Sub pull")
            self._pulls[pull] = self._loop.time()
            pull.add_done_callback(self._fetched)

    async def _fetch(self, most: int, wait: float) -> None:
        try:
            received = await self._client.pull(self._place.subscription, most, wait)
            # Pull more at once while there is something to pull.
            self._width = min(self._width * 2, self._outstanding) if received else 1
            if received:
                await self._keep([_Pulled(r.ack_id, r.message, r.delivery_attempt) for r in received])
        except Exception as error:
            self._failure = error  # the next pull raises it
        finally:
            self._asked -= most

    def _fetched(self, pull: asyncio.Task[None]) -> None:
        del self._pulls[pull]
        self._news.set()

    async def _keep(self, pulled: "list[_Pulled]") -> None:
        await self._prolong([one.ack_id for one in pulled])
        for one in pulled:
            one.since = self._loop.time()
        self._typical = (self._typical + sum(one.size for one in pulled) / len(pulled)) / 2
        self._pulled += pulled
        if self._reaper is None or self._reaper.done():
            self._reaper = self._loop.create_task(self._reap(), name="give back what nobody takes")

    async def _prolong(self, ack_ids: Sequence[str]) -> None:
        """Extend the leases to the length that the caller relies on, if the subscription's own are shorter."""
        try:
            if self._extends is None:
                self._extends = await self._is_short()
            if self._extends:
                await self._leases.extend(ack_ids, self._lease)
        except CountersinkError as error:
            _log.warning("leases could not be extended, so messages may be delivered again, and count once: %s", error)

    async def _is_short(self) -> bool:
        try:
            subscription = await self._client.get_subscription(self._place.subscription)
        except SetupError:
            return True  # we may not look
        return bool(subscription.ack_deadline_seconds < self._lease)

    async def _reap(self) -> None:
        while self._pulled:
            over = self._loop.time() - self._hold
            if self._pulled[0].since > over:
                if await set_within(self._closing, self._pulled[0].since - over):
                    return  # `close` gives back what is left
                continue
            idle: list[_Pulled] = []
            while self._pulled and self._pulled[0].since <= over:
                idle.append(self._pulled.popleft())
            await self._return(idle)

    async def _return(self, pulled: "Sequence[_Pulled]") -> None:
        try:
            await self._leases.give_back([one.ack_id for one in pulled])
        except TransientError as error:
            _log.warning("not delivered again until the leases run out: %s: %s", amount(len(pulled), "message"), error)


@dataclass(slots=True)
class _Pulled:
    """A leased message that no caller has taken yet."""

    ack_id: str
    message: Any
    attempt: int
    since: float = 0.0

    @property
    def size(self) -> int:
        return int(self.message.ByteSize())


# Keeps the tasks of jobs on a topic of their own on Pub/Sub, so that publishers of increments cannot add tasks.


MOST_BYTES_OF_TASKS = 2**20
"""Bytes in one pull. A task has a few hundred."""


class PubsubTasks:
    """Implements `Tasks`. They are published and leased like the broker's messages."""

    def __init__(self, client: PubsubClient, place: PubsubPlace, *, lease: float) -> None:
        """`place`: that of the broker."""
        self._publisher = PubsubPublisher(client, place.tasks.topic)
        self._subscription = PubsubSubscription(client, place.tasks, lease=lease, outstanding=1)
        self._lease = lease

    async def publish(self, tasks: Sequence[Task]) -> None:
        if tasks:
            await self._publisher.publish([Message(written(task)) for task in tasks])

    async def pull(self, limit: int, wait: float) -> Sequence[Lease]:
        pulled = await self._subscription.pull(limit, MOST_BYTES_OF_TASKS, wait)
        return [Lease(delivery.token, delivery.message.data) for delivery in pulled]

    async def extend(self, tokens: Sequence[str]) -> None:
        await self._subscription.extend(tokens, self._lease)

    async def ack(self, tokens: Sequence[str]) -> None:
        await self._subscription.ack(tokens, BEGINNING)

    async def give_back(self, tokens: Sequence[str]) -> None:
        await self._subscription.give_back(tokens)

    async def close(self) -> None:
        await self._subscription.close()


# Goes through the dead letters: the messages of a subscription, which are held meanwhile.


WAIT: Final = 2.0
"""Seconds. If a pull brings nothing for so long, there is probably nothing more."""
MOST_IN_A_PULL: Final = 100
MOST_ROUNDS: Final = 20
"""How many pulls may bring only letters that are held already."""
MOST_LATE: Final = 5
"""How many pulls in a row may bring only letters buried after this began: they may never end."""


class PubsubDeadLetters:
    """Implements `DeadLetters`. It may miss some: Pub/Sub does not count them, and others may hold some."""

    complete = False

    def __init__(
        self,
        client: PubsubClient,
        place: PubsubPlace,
        *,
        lease: float,
        clock: Clock,
        wait: float = WAIT,
    ) -> None:
        """`lease`: seconds for which others do not see the letters that are held, even if this process is killed. If a
        pass takes longer, nothing is lost or counted twice: receipts tell.
        """
        self._client = client
        self._place = place
        self._lease = lease
        self._wait = wait
        self._leases = Leases(client, place.dead_subscription)
        self._publisher = PubsubPublisher(client, place.dead_topic)
        self._pulled: deque[Letter] = deque()
        self._held: dict[str, str] = {}
        """Tokens by the broker's ids of the letters."""
        self._began = clock.now() * 1_000
        self._late = 0
        """How many pulls in a row, up to now, brought only letters that were buried since this began."""
        self._reburied: set[str] = set()
        """Ids of messages that were buried again, as new letters."""

    async def pull(self, limit: int, max_bytes: int) -> Sequence[Letter]:
        for _ in range(MOST_ROUNDS):
            if self._pulled or self._late == MOST_LATE or not await self._fetch():
                break
        taken = batches(self._pulled, lambda one: len(one.delivery.message.data), max_bytes, limit)
        letters, _ = next(taken, ([], 0))
        for _ in letters:
            self._pulled.popleft()
        return letters

    def continue_after(self, token: str) -> None:
        """Do nothing: Pub/Sub has no order of letters."""

    async def ack(self, tokens: Sequence[str], floor: Instant) -> None:  # noqa: ARG002 (no overlay lives here)
        await self._leases.ack(tokens)
        gone = {*tokens}
        self._held = {letter: token for letter, token in self._held.items() if token not in gone}

    async def bury(self, delivery: Delivery, reason: str) -> None:
        """Publish it as a new letter, which is kept for the whole retention, and acknowledge the old one. If this is
        interrupted in between, both letters remain.
        """
        self._reburied.add(delivery.message_id)
        await self._publisher.publish([dead_letter(delivery, reason, self._place.topic)])
        await self.ack([delivery.token], BEGINNING)

    async def close(self) -> None:
        tokens, self._held = [*self._held.values()], {}
        self._pulled.clear()
        try:
            await self._leases.give_back(tokens)
        except TransientError as error:
            _log.warning("%d dead letters stay hidden for up to %g seconds: %s", len(tokens), self._lease, error)

    async def _fetch(self) -> bool:
        """Pull once, and return whether anything came, new or not."""
        subscription = self._place.dead_subscription
        received = await patiently(lambda _: self._client.pull(subscription, MOST_IN_A_PULL, self._wait))
        await self._leases.extend([one.ack_id for one in received], self._lease)
        late = all(published(one.message) > self._began for one in received)
        self._late = self._late + 1 if late else 0
        for one in received:
            new = one.message.message_id not in self._held
            self._held[one.message.message_id] = one.ack_id
            letter = letter_of(one.ack_id, one.message, self._place.topic)
            if new and letter.delivery.message_id not in self._reburied:
                self._pulled.append(letter)
        return bool(received)
