"""One flusher: its parts, made in one visible order."""

from flusher.flush import Tools
from flusher.policy import FlushPolicy
from flusher.shardbook import ShardBook
from flusher.worker import Flusher
from shared.backoff import Backoff
from shared.clock import Clock
from shared.ports import Overlay, Store, Subscription
from shared.settings import Settings

MOST_COUNTERS = 20_000
"""In one window."""


def make_tools(subscription: Subscription, store: Store, overlay: Overlay, clock: Clock, settings: Settings) -> Tools:
    return Tools(
        store=store,
        subscription=subscription,
        overlay=overlay,
        book=ShardBook(store, clock, settings.shards),
        clock=clock,
        retention=settings.retention * 1000,
        backoff=Backoff,
    )


def make_flusher(tools: Tools, settings: Settings, *, topic: str, ages: bool) -> Flusher:
    policy = FlushPolicy(settings.flush_interval, MOST_COUNTERS, settings.max_window_bytes)
    removes = settings.remove_deleted == "on"
    return Flusher(tools, policy, topic=topic, lease=settings.lease, ages=ages, removes=removes)
