"""A small simulation: the services' own `Publishing` and `Window`, random increments, and time that is turned."""

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from countersink_server.cli.traffic_plan import Operations, TrafficPlan
from flusher.flush.window import FlushPolicy, Window
from flusher.service import MOST_IN_WINDOW
from ingest.accept.drafts import Pace
from ingest.accept.publishing import Publishing
from shared.memory import ProcessOverlay
from shared.model.buckets import BrokerMillis
from shared.model.words import APPLIED, Delivery, Increment, Message
from shared.ports.broker import Check, at_any_time
from shared.wire.codec import decode
from tests.interleavings.simulation.loop import VirtualLoop
from tests.world.manual_clock import ManualClock
from tests.world.memory.broker import MemoryBroker

SHORT: Final = 1.0
"""Seconds of a window while it has not grown."""


class SlowBroker(MemoryBroker):
    """A publish takes some time. Keeps when each message came."""

    def __init__(self, plan: TrafficPlan) -> None:
        super().__init__(ManualClock())
        self._seconds = plan.publish
        self.came: list[tuple[float, Message]] = []

    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
        await asyncio.sleep(self._seconds)
        now = asyncio.get_running_loop().time()
        self.came += [(now, message) for message in messages]


def simulated(plan: TrafficPlan, seconds: float, seed: int = 1) -> Operations:
    """Operations per second for receipts and shards. Nothing is read here."""
    random_ = random.Random(seed)
    came = [one for _ in range(plan.ingests) for one in published(plan, seconds, random_)]
    flushers: list[list[tuple[float, Message]]] = [[] for _ in range(plan.flushers)]
    for one in sorted(came, key=lambda one: one[0]):
        random_.choice(flushers).append(one)
    rates = [flushed(one, plan.interval) for one in flushers]
    receipts, shards = (sum(each) for each in zip(*rates, strict=True))
    return Operations(receipts + shards, 0.0, receipts)


def published(plan: TrafficPlan, seconds: float, random_: random.Random) -> list[tuple[float, Message]]:
    """What one ingest publishes, and when."""
    broker = SlowBroker(plan)
    traffic, rate = plan.traffic, plan.traffic.rate / plan.ingests

    async def run() -> None:
        loop = asyncio.get_running_loop()
        clock = ManualClock()
        pace = Pace(plan.linger, metered=True)
        publishing = Publishing(
            broker, ProcessOverlay(clock), clock, pace=pace, max_waiting=10**9, read_lately=lambda _: False
        )
        until = loop.time() + seconds

        def come() -> None:
            counter = f"c{random_.randrange(traffic.counters)}"
            if traffic.ids == "each":
                publishing.add_keyed(Increment(counter, 1, f"{random_.random()}"))
            else:
                publishing.add(counter, 1)
            if (then := loop.time() + random_.expovariate(rate)) < until:
                loop.call_at(then, come)

        loop.call_at(loop.time() + random_.expovariate(rate), come)
        await asyncio.sleep(seconds)
        await publishing.drain()

    VirtualLoop().run_to_end(run())
    return broker.came


def flushed(came: Sequence[tuple[float, Message]], interval: float) -> tuple[float, float]:
    """Receipts and shards that one flusher writes per second, in all windows that ended, once they have grown to the
    interval. Its commits take no time.
    """
    policy = FlushPolicy(min(SHORT, interval), MOST_IN_WINDOW, 10**9, longest=interval)
    window, begun, receipts, shards = Window(), 0.0, 0, 0
    since: float | None = None
    for number, (now, message) in enumerate(came):
        if policy.due(window, begun, now, urgent=False):
            policy.closed(window)
            while since is not None and (plan := window.plan(10**9)).envelopes:
                keys = plan.receipt_keys()
                window.learn(keys, APPLIED)
                receipts, shards = receipts + len(keys), shards + len(plan.sums)
            window = Window()
        if not window:
            begun = now
            if since is None and policy.patience == interval:
                since = now
        delivery = Delivery(str(number), message, str(number), BrokerMillis(0))
        window.add(delivery, decode(delivery, "t"))
    assert since is not None, "the windows did not grow"
    return receipts / (begun - since), shards / (begun - since)
