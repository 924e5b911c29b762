"""Pulls messages into windows and flushes them; and does background work: sweeps, growth, cleanup (`_steps`)."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, Protocol
from uuid import uuid4

from flusher.cleanup import CounterRemover
from flusher.flush.commit_loop import MOST_BUGS, Flush, FlushTools
from flusher.flush.window import FlushPolicy, Window
from flusher.shards import CounterCooler, CounterGrower
from shared.fleet import FleetView
from shared.model.buckets import NEVER, BrokerMillis, StoreMillis
from shared.model.errors import BROKEN, NewerError, TransientError, UnreadableError, amount, said_of_bug
from shared.model.fleet import HOLDS, REPORTS, WATCHES, Fleet, gone, leaves, reported
from shared.model.words import Delivery
from shared.ports.broker import Subscription
from shared.runtime import metrics
from shared.runtime.clock import Clock
from shared.runtime.retry import Stop, all_of, forever
from shared.wire.codec import decode

# Messages of a newer version are left to newer processes: they are neither counted nor buried, and delay nothing else.


_log = logging.getLogger(__name__)

LEFT_FOR: Final = 60.0
"""Seconds until such a message is delivered again, to any process. Without the pause it would come back at once. Also
the seconds between two lines in the log.
"""


class NewerMessages:
    """Lets each of them go for `LEFT_FOR`. They take no room in the window, so others are pulled meanwhile."""

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
        if now - self._said >= LEFT_FOR:
            last = delivery.message_id
            _log.error("%s for a newer process, the last one is %s: %s", amount(self._number, "message"), last, why)
            self._said, self._number = now, 0

    async def put_off(self) -> None:
        """Let their leases end after the pause. If this fails, they end by themselves."""
        if not self._taken:
            return
        self._oldest, self._until = self.oldest(), self._clock.monotonic() + LEFT_FOR
        taken, self._taken = self._taken, []
        try:
            await self._subscription.extend([delivery.token for delivery in taken], LEFT_FOR)
        except TransientError as error:
            _log.warning("%s for newer processes, until the leases end: %s", amount(len(taken), "message"), error)

    def oldest(self) -> BrokerMillis | None:
        """When the oldest message was published that is not applied, as a newer process has to do it; None once none
        was seen for `LEFT_FOR`, because each comes again by then.
        """
        if self._until <= self._clock.monotonic():
            self._oldest = None
        times = [delivery.published for delivery in self._taken]
        return min(times if self._oldest is None else [*times, self._oldest], default=None)


# The fleet's record of this flusher: that it may hold messages, and, if a member is gone, how old they are.


GAP: Final = 30.0
"""Seconds without a pull after which a flusher starts to watch again from the beginning."""


class BacklogWitness:
    """Lets a flusher pull only while its record is in the store, and the store was not away for too long."""

    def __init__(self, looks: FleetView, clock: Clock, topic: str) -> None:
        self._looks = looks
        self._clock = clock
        self._topic = topic
        self._id = ""
        self._seen: list[tuple[StoreMillis, StoreMillis, BrokerMillis]] = []
        """What was seen, by the minute: from when, until when, and when the oldest of it was published."""
        self._pulled = self._tended = float("-inf")

    def ready(self) -> bool:
        """Whether the flusher may hold messages."""
        return bool(self._id) and self._clock.monotonic() - self._looks.at < HOLDS

    def saw(self, oldest: BrokerMillis | None) -> None:
        """Note a pull, and when the oldest message that came or is held was published."""
        self._note_gap()
        self._pulled = self._clock.monotonic()
        if oldest is not None:
            self._note(oldest)

    def _note_gap(self) -> None:
        """Without pulls it does not know what there is, so it may be anything."""
        if self._clock.monotonic() - self._pulled > GAP:
            self._note(BrokerMillis(NEVER))

    def _note(self, oldest: BrokerMillis) -> None:
        now = self._looks.now()
        if self._seen and now - self._seen[-1][0] < REPORTS * 1000:
            begun, _, before = self._seen.pop()
            self._seen.append((begun, now, min(before, oldest)))
        else:
            self._seen = [one for one in self._seen if now - one[1] <= WATCHES * 1000]
            self._seen.append((now, now, oldest))

    def _clear(self) -> StoreMillis:
        """The time before which nothing was published that it saw in the last `WATCHES`."""
        self._note_gap()
        now = self._looks.now()
        return StoreMillis(
            min((oldest for _, until, oldest in self._seen if now - until <= WATCHES * 1000), default=now)
        )

    async def tend(self) -> bool:
        """Report, at most now and then. Returns False if others took this flusher for dead: it must hold nothing."""
        if not self._id:
            await self._enter()
        if self._clock.monotonic() - self._tended < REPORTS:
            return True
        self._tended = self._clock.monotonic()
        look = await self._looks.get(REPORTS / 2)
        if look is None:
            return True
        record = look.fleet.flushers.get(self._id)
        if record is None or record.struck:
            _log.warning("other flushers took this flusher for dead: it gives its messages back and starts again")
            self._id = ""
            return False
        if gone(look.fleet, self._topic):
            await self._report()
        return True

    async def _enter(self) -> None:
        name = uuid4().hex[:12]
        await self._looks.change(lambda fleet, now: fleet.flushes(name, self._topic, now))
        self._id, self._pulled = name, self._clock.monotonic()

    async def _report(self) -> None:
        name = self._id

        def step(fleet: Fleet, now: StoreMillis) -> Fleet | None:
            return reported(fleet, name, clear=self._clear(), now=now) if name in fleet.flushers else None

        await self._looks.change(step)

    async def leave(self) -> None:
        """Remove the record. The flusher must hold nothing."""
        name, self._id = self._id, ""

        def step(fleet: Fleet, now: StoreMillis) -> Fleet | None:
            return leaves(fleet, name, clear=self._clear(), now=now) if name in fleet.flushers else None

        if name:
            await self._looks.change(step)


MOST_PULLED: Final = 500
MOST_BYTES_PULLED: Final = 500_000
"""Bytes in one pull: decoding them keeps the event loop busy for a few hundredths of a second."""
PULL_WAIT: Final = 0.2
SWEEP_INTERVAL: Final = 10.0
REMOVAL_INTERVAL: Final = 30.0
GROWTH_INTERVAL: Final = 2.5
COOLING_INTERVAL: Final = 3_600.0
MOST_SWEPT: Final = 2_000
TEND_INTERVAL: Final = 1.0
GIVE_BACK: Final = 1.0
"""Seconds at the end to give messages back. If the broker is away, their leases run out."""
LOOK: Final = 0.01


class Waiters(Protocol):
    """Requests that wait until increments are applied."""

    def any(self) -> bool:
        """Whether there are some: then windows are flushed at once."""

    def look(self) -> None:
        """Something was applied: find the requests that need not wait any more."""


class Flusher:
    """Pulls messages into a window while it flushes the previous one. When both are full, pulling stops."""

    def __init__(
        self,
        tools: FlushTools,
        policy: FlushPolicy,
        *,
        topic: str,
        lease: float,
        removes: bool = True,
        cooling: CounterCooler | None = None,
        witness: BacklogWitness | None = None,
        waiters: Waiters | None = None,
    ) -> None:
        """`witness`: reports to the fleet what this flusher sees; None where no fleet is needed. `waiters`: requests of
        this process that wait for what is flushed.
        """
        self._tools = tools
        self._policy = policy
        self._topic = topic
        self._lease = lease
        self.removal = CounterRemover(tools.store, tools.overlay, tools.clock, grace=2 * lease) if removes else None
        self._growing = (
            CounterGrower(tools.growth, tools.store, tools.book.raised, tools.clock) if tools.growth else None
        )
        self._cooling = cooling
        self._witness = witness
        self._waiters = waiters
        self._window = Window()
        self._filled = asyncio.Event()
        """Something came into the window since it was looked at last."""
        self._begun = 0.0
        self._flushing: Window | None = None
        self._flush_begun = self._flushed_for = 0.0
        self._newer = NewerMessages(tools.subscription, tools.clock)
        self._pulling = False
        self._draining = False
        self._bugs = 0

    async def pull_once(self, wait: float = PULL_WAIT) -> int:
        """Lease as many messages as there is room for. Returns how many came."""
        room = min(self._policy.max_bytes - self._window.bytes, MOST_BYTES_PULLED)
        deliveries = await self._tools.subscription.pull(MOST_PULLED, max(room, 1), wait)
        oldest = self._see_oldest(deliveries)
        if self._witness is not None:
            self._witness.saw(oldest)
        if deliveries and not self._window:
            self._begun = self._tools.clock.monotonic()
            self._filled.set()
        # All are held before anything is awaited: what is not held would not be extended or given back.
        unreadable = [(d, why) for d in deliveries if (why := self._take(d)) is not None]
        metrics.PULLED.inc(len(deliveries))
        await self._newer.put_off()
        await all_of(self._bury(*one) for one in unreadable)
        return len(deliveries)

    def _see_oldest(self, pulled: Sequence[Delivery]) -> BrokerMillis | None:
        """When the oldest message that is held here was published."""
        now = int(self._tools.clock.now() * 1000)
        windows = [window.oldest for window in (self._window, self._flushing) if window is not None]
        held = [oldest for oldest in (*windows, self._newer.oldest()) if oldest is not None]
        oldest = min([*held, *(one.published for one in pulled)], default=None)
        metrics.OLDEST.set(0 if oldest is None else max(0, now - oldest) / 1000)
        return oldest

    async def _bury(self, delivery: Delivery, why: str) -> None:
        """Bury an unreadable message. Several run at once, so that much rubbish does not delay the next pull."""
        await self._tools.subscription.bury(delivery, why)
        metrics.DEAD.labels("unreadable").inc()
        _log.error("message %s is now a dead letter: %s", delivery.message_id, why)

    def _take(self, delivery: Delivery) -> str | None:
        """Put a message into the window, or aside if it is newer. Returns why it can't be read, if it can't."""
        if delivery.attempt > 1:
            metrics.REDELIVERED.inc()
        try:
            self._window.add(delivery, decode(delivery, self._topic), aged=not self._tools.one_file)
        except UnreadableError as error:
            return str(error)
        except NewerError as error:
            self._newer.take(delivery, error)
        except BROKEN:
            raise
        except Exception as error:
            _log.exception("message %s hit an unexpected error", delivery.message_id)
            self._bugs += 1
            if self._bugs > MOST_BUGS:  # then no single message is to blame
                raise
            return said_of_bug(error)
        return None

    def due(self) -> bool:
        if self._flushing is not None:
            return False
        if self._draining:
            return bool(self._window)
        urgent = self._waiters is not None and self._waiters.any()
        return self._policy.due(self._window, self._begun, self._tools.clock.monotonic(), urgent=urgent)

    async def flush_once(self) -> None:
        """Close the window and settle all of it."""
        self._flushing, self._window = self._window, Window()
        self._policy.closed(self._flushing)
        metrics.PATIENCE.set(self._policy.patience)
        self._flush_begun = self._tools.clock.monotonic()
        await Flush(self._flushing, self._tools).run()
        self._flushed_for, self._flushing = self.busy(), None
        if self._waiters is not None:
            self._waiters.look()

    def busy(self) -> float:
        """Seconds for which it has been flushing, all in all."""
        now = self._flush_begun if self._flushing is None else self._tools.clock.monotonic()
        return self._flushed_for + now - self._flush_begun

    async def extend_once(self) -> None:
        tokens = [delivery.token for delivery in self._held()]
        metrics.HELD.set(len(tokens))
        self._see_oldest(())  # while it can't pull, too
        if tokens:
            await self._tools.subscription.extend(tokens, self._lease)

    async def sweep_once(self) -> None:
        """Delete the receipts that have expired, in small steps, since others write at the same time."""
        store = self._tools.store
        while await store.sweep(await store.now(), MOST_SWEPT):  # noqa: ASYNC110 (it is work, no waiting)
            await asyncio.sleep(LOOK)

    async def tend_once(self) -> None:
        if self._witness is not None and not await self._witness.tend():
            await self.give_back()

    async def leave(self) -> None:
        """Leave the fleet. Call it last, when nothing is held."""
        if self._witness is not None:
            with contextlib.suppress(TransientError):  # then others find out that it is gone
                await self._witness.leave()

    async def give_back(self) -> None:
        """Give unsettled messages back, so that others get them."""
        tokens = [delivery.token for delivery in self._held()]
        self._window = Window()
        if tokens:
            with contextlib.suppress(TransientError, TimeoutError):  # then the leases run out
                async with asyncio.timeout(GIVE_BACK):
                    await self._tools.subscription.give_back(tokens)

    def _held(self) -> Iterator[Delivery]:
        for window in (self._flushing, self._window):
            if window is not None:
                for held in window.held:
                    yield held.delivery

    async def run(self, stop: Stop, drain_timeout: float) -> None:
        """Work until `stop`. Then finish what is held, for at most `drain_timeout` seconds, and give the rest back."""
        metrics.BUSY.set_function(self.busy)
        with contextlib.suppress(TransientError):  # then it is tried again soon
            await self.tend_once()
        async with asyncio.TaskGroup() as tasks:
            puller = tasks.create_task(self._pull(stop), name="pull")
            others = [tasks.create_task(forever(step, interval), name=name) for name, step, interval in self._steps()]
            flusher = tasks.create_task(self._flush(), name="flush")
            await stop.wait()
            self._draining = True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(drain_timeout):
                    while self._pulling or self._window or self._flushing:  # noqa: ASYNC110 (the window is no event)
                        await asyncio.sleep(LOOK)
            for task in (puller, flusher, *others):
                task.cancel()
        await self.give_back()
        await self.leave()

    def _steps(self) -> Iterator[tuple[str, Callable[[], Awaitable[object]], float]]:
        """The background work: what it is called, a step of it, and the seconds between two steps."""
        yield "extend leases", self.extend_once, self._lease / 3
        yield "sweep", self.sweep_once, SWEEP_INTERVAL
        yield "tend", self.tend_once, TEND_INTERVAL
        if self.removal is not None:
            yield "remove", self.removal.remove_once, REMOVAL_INTERVAL
        if self._growing is not None:
            yield "grow", self._growing.grow_once, GROWTH_INTERVAL
        if self._cooling is not None:
            yield "cool", self._cooling.cool_once, COOLING_INTERVAL

    async def _pull(self, stop: Stop) -> None:
        backoff = self._tools.backoff()
        while not stop.is_set():
            if self._witness is not None and not self._witness.ready():
                if self._window:
                    await self.give_back()
                await asyncio.sleep(LOOK)
                continue
            if self._policy.full(self._window):
                await asyncio.sleep(LOOK)
                continue
            self._pulling = True
            try:
                await self.pull_once()
            except TransientError as error:
                self._pulling = False  # a drain need not wait for the next attempt
                _log.warning("pulling failed and is retried: %s", error)
                await backoff.wait()
            else:
                backoff.reset()
        self._pulling = False

    async def _flush(self) -> None:
        while True:
            if self.due():
                await self.flush_once()
            elif self._window:
                await asyncio.sleep(LOOK)
            else:
                self._filled.clear()
                await self._filled.wait()
