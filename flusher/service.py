"""One flusher: its parts, made in one visible order."""

from flusher.expiry import DailyExpiry
from flusher.flush.commit_loop import FirstShards, FlushTools, PromiseKeeper, ShardBook
from flusher.flush.flusher import BacklogWitness, Flusher, Waiters
from flusher.flush.window import FlushPolicy
from flusher.jobs.kinds import Adding, Compacting, Exporting, Resetting, Visit
from flusher.jobs.worker import Runner, Worker
from flusher.shards import CounterCooler, Growth
from shared.config.settings import Settings, promise_of, receipts_live
from shared.counters.compaction import compactor_of
from shared.counters.reader import AllNames, Reader
from shared.counters.series import SeriesReader
from shared.counters.setter import Setter
from shared.counters.start_job import starter_of
from shared.fleet.fleet_view import FleetView
from shared.model.jobs import ADD, COMPACT, DELETE, EXPIRE, EXPORT, RESET
from shared.model.receipts import DAY_SECONDS
from shared.ports.broker import Subscription
from shared.ports.overlay import Overlay
from shared.ports.store import Jobs, Store, Tasks
from shared.runtime.clock import Clock
from shared.runtime.retry import Backoff
from shared.runtime.traces import Traces

MOST_IN_WINDOW = 20_000
MOST_MESSAGES_IN_WINDOW = 250
"""Messages in one window of a SQLite file. Its commits cost little, and requests that count wait for each of them."""
SHARE_OF_PENDING = 16
"""A window of a SQLite file has at most 1/16 of what may be pending: it is flushed before clients are refused."""


def make_tools(
    subscription: Subscription,
    store: Store,
    overlay: Overlay,
    clock: Clock,
    settings: Settings,
    *,
    one_file: bool = False,
    traces: Traces | None = None,
) -> FlushTools:
    """`one_file`: whether broker and store are one file."""
    return FlushTools(
        store=store,
        subscription=subscription,
        overlay=overlay,
        book=FirstShards(settings.shards) if one_file else ShardBook(store, clock, settings.shards),
        clock=clock,
        promise_keeper=PromiseKeeper(store, clock, promise_of(settings)),
        backoff=Backoff,
        one_file=one_file,
        rules=settings.windows,
        growth=Growth(settings.shard_writes, settings.max_shards) if not one_file else None,
        traces=traces,
    )


def make_flusher(
    tools: FlushTools,
    settings: Settings,
    *,
    topic: str,
    looks: FleetView | None = None,
    waiters: Waiters | None = None,
) -> Flusher:
    """`looks`: how to look at the fleet, if there is one. `waiters`: the requests that wait in this process."""
    policy = FlushPolicy(
        settings.flush_interval, MOST_IN_WINDOW, settings.max_window_bytes, longest=settings.max_flush_interval
    )
    if tools.one_file:
        policy.longest, policy.max_messages = 0.0, MOST_MESSAGES_IN_WINDOW
        policy.max_bytes = min(policy.max_bytes, settings.max_pending_bytes // SHARE_OF_PENDING)
    return Flusher(
        tools,
        policy,
        topic=topic,
        lease=settings.lease,
        removes=settings.ndb_writers == "no",
        cooling=_cooling(tools, settings),
        witness=BacklogWitness(looks, tools.clock, topic) if looks is not None else None,
        waiters=waiters,
    )


def _cooling(tools: FlushTools, settings: Settings) -> CounterCooler | None:
    """Lowers numbers of shards. None for a file, which has one writer, and would have to be read as a whole."""
    if not settings.compact_after or tools.one_file:
        return None
    compactor = compactor_of(tools.store, tools.clock, settings)
    return CounterCooler(tools.store, compactor, tools.clock, settings.shards, settings.compact_after * DAY_SECONDS)


def make_worker(
    tasks: Tasks, jobs: Jobs, store: Store, overlay: Overlay, *, clock: Clock, settings: Settings
) -> Worker:
    """The worker for tasks of jobs. Each kind of job is listed here."""
    reader = Reader(store, overlay, clock, settings.cache_ttl)
    resetting = Resetting(Setter(reader, store, overlay, clock, receipts_live(settings)))
    visits: dict[str, Visit] = {
        ADD: Adding(store, reader, overlay, exact=overlay.shared, new_counter=settings.shards),
        RESET: resetting,
        DELETE: resetting,
        EXPIRE: resetting,
        EXPORT: Exporting(reader, SeriesReader(store, overlay, clock, settings.windows)),
        COMPACT: Compacting(store, reader, compactor_of(store, clock, settings)),
    }
    return Worker(tasks, jobs, store, AllNames(store, overlay), visits, clock=clock)


def make_expiry(
    tasks: Tasks, jobs: Jobs, store: Store, overlay: Overlay, *, clock: Clock, settings: Settings
) -> DailyExpiry:
    return DailyExpiry(
        settings.expire, jobs, starter_of(jobs, tasks, store, overlay, clock=clock, settings=settings), clock
    )


def make_runner(tasks: Tasks, worker: Worker, settings: Settings, *, at_once: int | None = None) -> Runner:
    return Runner(tasks, worker, at_once=at_once or settings.job_tasks, lease=settings.lease)
