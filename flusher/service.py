"""One flusher: its parts, made in one visible order."""

from flusher.flush.commit_loop import FirstShards, FlushTools, PromiseKeeper, ShardBook
from flusher.flush.flusher import BacklogWitness, Flusher, Waiters
from flusher.flush.window import FlushPolicy
from flusher.jobs import Adding, Compacting, Exporting, Resetting, Runner, Visit, Worker
from flusher.shards import CounterCooler, Growth
from shared.config.settings import Settings, promise_of, receipts_live
from shared.counters.reader import AllNames, Reader
from shared.counters.series import SeriesReader
from shared.counters.setter import Setter, compactor_of
from shared.model.buckets import DAY_SECONDS
from shared.model.jobs import ADD, COMPACT, DELETE, EXPIRE, EXPORT, RESET
from shared.runtime.retry import Backoff
from shared.wiring.process import Parts

MOST_IN_WINDOW = 20_000
MOST_MESSAGES_IN_WINDOW = 250
"""Messages in one window of a SQLite file. Its commits cost little, and requests that count wait for each of them."""
SHARE_OF_PENDING = 16
"""A window of a SQLite file has at most 1/16 of what may be pending: it is flushed before clients are refused."""


def make_tools(parts: Parts, settings: Settings) -> FlushTools:
    store, clock, one_file = parts.store, parts.clock, parts.one_file
    return FlushTools(
        store=store,
        subscription=parts.subscription,
        overlay=parts.overlay,
        book=FirstShards(settings.shards) if one_file else ShardBook(store, clock, settings.shards),
        clock=clock,
        promise_keeper=PromiseKeeper(store, clock, promise_of(settings)),
        backoff=Backoff,
        one_file=one_file,
        rules=settings.windows,
        growth=Growth(settings.shard_writes, settings.max_shards) if not one_file else None,
        traces=parts.traces,
    )


def make_flusher(parts: Parts, settings: Settings, waiters: Waiters | None = None) -> Flusher:
    """`waiters`: the requests that wait in this process."""
    policy = FlushPolicy(
        settings.flush_interval, MOST_IN_WINDOW, settings.max_window_bytes, longest=settings.max_flush_interval
    )
    if parts.one_file:
        policy.longest, policy.max_messages = 0.0, MOST_MESSAGES_IN_WINDOW
        policy.max_bytes = min(policy.max_bytes, settings.max_pending_bytes // SHARE_OF_PENDING)
    return Flusher(
        make_tools(parts, settings),
        policy,
        topic=parts.topic,
        lease=settings.lease,
        removes=settings.ndb_writers == "no",
        cooling=_cooling(parts, settings),
        witness=BacklogWitness(parts.looks, parts.clock, parts.topic) if parts.looks is not None else None,
        waiters=waiters,
    )


def _cooling(parts: Parts, settings: Settings) -> CounterCooler | None:
    """Lowers numbers of shards. None for a file, which has one writer, and would have to be read as a whole."""
    if not settings.compact_after or parts.one_file:
        return None
    compactor = compactor_of(parts.store, parts.clock, settings)
    return CounterCooler(parts.store, compactor, parts.clock, settings.shards, settings.compact_after * DAY_SECONDS)


def make_worker(parts: Parts, settings: Settings) -> Worker:
    """The worker for tasks of jobs. Each kind of job is listed here."""
    store, overlay, clock = parts.store, parts.overlay, parts.clock
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
    return Worker(parts.tasks, parts.jobs, store, AllNames(store, overlay), visits, clock=clock)


def make_runner(parts: Parts, settings: Settings, *, at_once: int | None = None) -> Runner:
    worker = make_worker(parts, settings)
    return Runner(parts.tasks, worker, at_once=at_once or settings.job_tasks, lease=settings.lease)
