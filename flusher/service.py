"""One flusher: its parts, made in one visible order."""

from flusher.adding import Adding
from flusher.flush import Tools
from flusher.policy import FlushPolicy
from flusher.runner import Runner
from flusher.shardbook import ShardBook
from flusher.tasks import Worker
from flusher.worker import Flusher
from shared.backoff import Backoff
from shared.clock import Clock
from shared.job_ports import Jobs, Tasks
from shared.jobs import ADD
from shared.ports import Overlay, Store, Subscription
from shared.receipts import lifetime
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


def make_worker(tasks: Tasks, jobs: Jobs, store: Store, clock: Clock, settings: Settings) -> Worker:
    """What does one task of a job."""
    receipts_live = lifetime(settings.retention * 1000, of_client=True)
    visits = {ADD: Adding(store, clock, receipts_live)}
    return Worker(tasks, jobs, store, visits, clock=clock, receipts_live=receipts_live)


def make_runner(tasks: Tasks, worker: Worker, settings: Settings, *, at_once: int | None = None) -> Runner:
    return Runner(tasks, worker, at_once=at_once or settings.job_tasks, lease=settings.lease)
