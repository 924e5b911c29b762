"""Flushers of tests: what one works with, one on fakes whose clock a test turns, and one that runs."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final

from flusher.flush.commit_loop import FlushTools, PromiseKeeper, ShardBook
from flusher.flush.flusher import Flusher
from flusher.flush.window import FlushPolicy
from flusher.shards import Growth
from shared.model.buckets import DAY, Instant, Millis, Rules
from shared.model.receipts import Promise, promised
from shared.model.words import Commit, Envelope
from shared.ports.broker import Subscription
from shared.ports.overlay import Overlay
from shared.ports.store import Store
from shared.runtime.clock import Clock
from shared.runtime.retry import Backoff, Stop
from shared.wire.codec import encode
from tests.world.manual_clock import ManualClock
from tests.world.memory.broker import MemoryBroker, MemoryOverlay
from tests.world.memory.store import MemoryStore

PROMISE: Final = promised(Millis(7 * DAY), DAY)


class Gate:
    """A store before which a process stands still, at its first commit, until it is let go."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.reached, self.go = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def apply(self, commit: Commit) -> Instant:
        if not self.reached.is_set():
            self.reached.set()
            await self.go.wait()
        return await self._store.apply(commit)


def tools_of(
    store: Store,
    subscription: Subscription,
    overlay: Overlay,
    clock: Clock,
    *,
    promise: Promise = PROMISE,
    pick: Callable[[int], int] = random.randrange,
    backoff: Callable[[], Backoff] = Backoff,
    one_file: bool = False,
    growth: Growth | None = None,
    rules: Rules = (),
) -> FlushTools:
    """New counters get one shard."""
    return FlushTools(
        store=store,
        subscription=subscription,
        overlay=overlay,
        book=ShardBook(store, clock, 1, pick),
        clock=clock,
        promise_keeper=PromiseKeeper(store, clock, promise),
        backoff=backoff,
        one_file=one_file,
        rules=rules,
        growth=growth,
    )


@asynccontextmanager
async def running(
    run: Callable[[Stop, float], Coroutine[Any, Any, None]], drain: float = 5.0
) -> AsyncIterator["asyncio.Task[None]"]:
    """A flusher, or a worker of jobs. At the end it is told to stop, and has to."""
    stop = Stop()
    async with asyncio.timeout(60):
        task = asyncio.create_task(run(stop, drain))
        yield task
        stop.set()
        await task


class Bench:
    """A flusher on fakes, and a clock to turn."""

    def __init__(
        self, store: Callable[[ManualClock], MemoryStore] = MemoryStore, *, ages: bool = False, longest: float = 0.0
    ) -> None:
        """`longest`: see `FlushPolicy`."""
        self.clock = ManualClock()
        self.broker = MemoryBroker(self.clock)
        self.store = store(self.clock)
        self.pauses: list[float] = []

        async def pause(seconds: float) -> None:
            self.pauses.append(seconds)
            await asyncio.sleep(0)

        tools = tools_of(
            self.store,
            self.broker,
            MemoryOverlay(self.broker),
            self.clock,
            backoff=lambda: Backoff(sleep=pause, jitter=lambda: 1.0),
            one_file=not ages,
        )
        self.flusher = Flusher(tools, FlushPolicy(1.0, 100, 10_000, longest), topic="t", lease=60.0)

    async def publish(self, *envelopes: Envelope) -> None:
        await self.broker.publish([encode(envelope) for envelope in envelopes])

    async def flush(self, *envelopes: Envelope) -> None:
        """Publish these, and apply what one pull brings."""
        await self.publish(*envelopes)
        await self.flusher.pull_once(0)
        await self.flusher.flush_once()

    async def total(self, counter: str = "a") -> int:
        async with self.store.snapshot() as snapshot:
            totals, _ = await snapshot.read([counter], ())
        return totals[counter].value

    async def published_ago(self, name: str, milliseconds: int) -> None:
        """By a maker whose clock is now somewhere else."""
        self.clock.turn(-milliseconds / 1000)
        await self.publish(Envelope(name, {"a": 1}, {}, (), int(self.clock.now() * 1000) + 5 * DAY))
        self.clock.turn(milliseconds / 1000)
