"""Builds the parts of a process from the settings, and what exports its traces and metrics."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

from shared.config import urls
from shared.config.settings import Settings, receipts_live
from shared.counters.compaction import compactor_of
from shared.counters.start_job import JobStarter
from shared.fleet.fleet_view import CHANGE_WITHIN, FleetView
from shared.fleet.membership import Membership, in_memory, new_member
from shared.memory.overlay import MemberOverlay, ProcessOverlay
from shared.memory.tasks import MemoryTasks
from shared.model.errors import SettingsError
from shared.model.words import Backlog
from shared.ports.broker import DeadLetters, Publisher, Subscription
from shared.ports.feed import FeedBook
from shared.ports.overlay import Overlay
from shared.ports.store import Balance, Jobs, Store, Tasks
from shared.runtime.clock import Clock, SystemClock
from shared.runtime.traces import Traces
from shared.sqlite.audit_data import backlog_of, balance_of
from shared.sqlite.broker import SqliteDeadLetters, SqliteOverlay, SqlitePublisher, SqliteSubscription, topic_of
from shared.sqlite.database import Database
from shared.sqlite.feed import SqliteFeedBook
from shared.sqlite.jobs import ExportRoom, SqliteJobs, SqliteTasks
from shared.sqlite.store import SqliteStore
from shared.wiring.datastore import store_of
from shared.wiring.files import BROKER, OVERLAY, Queue, needs, only_file, open_database, open_spool, with_spooled

if TYPE_CHECKING:
    from shared.redis.overlay import RedisOverlay
    from shared.runtime.otlp import OtlpMetrics

SPOOL_AFTER = 2.0
"""Seconds for which a publish is retried before the spool takes it."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything outside itself that a process uses, and how to close it."""

    publisher: Publisher
    subscription: Subscription
    store: Store
    overlay: Overlay
    clock: Clock
    topic: str
    one_file: bool
    """Whether broker, store and overlay are one file, which knows which receipts are still needed. Elsewhere receipts
    expire by the clock alone, and each message and each receipt costs money.
    """
    where: str
    """Where the data is, as messages say it."""
    obstacles: Callable[[bool], Awaitable[Sequence[str]]]
    """Returns the reasons for a process not to start, each with what to do; told whether it flushes. `TransientError`
    if they cannot be found out now.
    """
    letters: Callable[[], DeadLetters]
    """Opens a pass through the dead letters."""
    jobs: Jobs
    tasks: Tasks
    spool: Queue | None = None
    """Takes envelopes while the broker is unavailable."""
    balance: Callable[[], Balance] | None = None
    """Reads the accounts, if broker and store are one file."""
    spare: Callable[[], int] | None = None
    """Free bytes of the disk with the data or the spool, beyond those that are reserved. It may raise `OSError`."""
    backlog: Callable[[], Backlog] | None = None
    """Reads what waits to be applied. With Pub/Sub: what this process published."""
    looks: FleetView | None = None
    """Looks at the fleet, if there may be publishers that the broker cannot list."""
    feed: FeedBook | None = None
    """Keeps what is owed to the receiver of the feed. None where nothing is told."""
    traces: Traces | None = None
    """Makes spans, if this process is configured to."""
    _files: Sequence[Database] = ()
    _ends: Sequence[Callable[[], Awaitable[None]]] = ()
    _in_fleet: "RedisOverlay | MemberOverlay | None" = None
    """The overlay, if it has something to do in the background."""

    async def open(self) -> None:
        """Start the background work. It does not wait for a server that is unavailable."""
        if self._in_fleet is not None:
            await self._in_fleet.open()

    async def check_files(self) -> None:
        """Raise `DamagedError` if a file was removed or replaced since it was opened. A process that only reads would
        not notice otherwise.
        """
        for database in self._files:
            database.check()

    async def close(self, patience: float = CHANGE_WITHIN) -> None:
        """Close everything, in the reverse order of opening. For `patience` seconds, the process tries to say in the
        store what it leaves behind.
        """
        async with AsyncExitStack() as stack:
            for end in self._ends:
                stack.push_async_callback(end)
            if self._in_fleet is not None:
                stack.push_async_callback(self._in_fleet.close, patience)


def starter_of(parts: Parts, settings: Settings) -> JobStarter:
    return JobStarter(
        parts.jobs,
        parts.tasks,
        parts.overlay,
        compactor_of(parts.store, parts.clock, settings),
        parts.clock,
        store=parts.store,
        receipts_live=receipts_live(settings),
        rules=settings.windows,
    )


def connect(settings: Settings, *, publishes: bool = False, makes: bool = False) -> Parts:
    """Build the parts. Call it inside a running event loop; no server is contacted yet. `SettingsError` says which
    setting cannot be used.

    `makes`: missing files are made, unless COUNTERSINK_EXISTING says that they must exist.
    """
    makes = makes and settings.existing == "no"
    if urls.scheme_of(settings.broker) == "pubsub":
        if settings.expire and settings.overlay == "memory://":
            raise SettingsError(
                "COUNTERSINK_EXPIRE deletes only what can be read exactly, which with Pub/Sub needs"
                " COUNTERSINK_OVERLAY=redis://…: set it for all processes, or remove COUNTERSINK_EXPIRE"
            )
        return _on_pubsub(settings, publishes=publishes, makes=makes)
    return _embedded(settings, makes=makes)


def _embedded(settings: Settings, *, makes: bool) -> Parts:
    clock = SystemClock()
    database = open_database(only_file(settings), settings, makes=makes)
    topic = topic_of(database)
    return Parts(
        publisher=SqlitePublisher(database, clock, settings.max_pending_bytes),
        subscription=SqliteSubscription(database, clock, settings.lease),
        store=SqliteStore(database, clock),
        overlay=SqliteOverlay(database, topic),
        clock=clock,
        topic=topic,
        one_file=True,
        where=str(database.path.absolute()),
        obstacles=_none,
        letters=partial(SqliteDeadLetters, database),
        jobs=SqliteJobs(database, ExportRoom(settings.max_exports, settings.max_export_bytes)),
        tasks=SqliteTasks(database, clock, settings.lease),
        balance=partial(balance_of, database),
        spare=database.reserve.spare,
        backlog=partial(backlog_of, database, clock),
        feed=SqliteFeedBook(database, clock),
        _files=[database],
        _ends=[database.close],
    )


def _on_pubsub(settings: Settings, *, publishes: bool, makes: bool) -> Parts:
    broker = urls.pubsub(BROKER, settings.broker)
    with needs("google", BROKER, settings.broker):
        from shared.pubsub.client import RETRY_FOR, PubsubClient, PubsubPlace  # noqa: PLC0415 (the extra may be missing)
        from shared.pubsub.publisher import KeptPublisher  # noqa: PLC0415
        from shared.pubsub.setup import obstacles  # noqa: PLC0415
        from shared.pubsub.subscription import PubsubDeadLetters, PubsubSubscription, PubsubTasks  # noqa: PLC0415
    stored = store_of(settings, SystemClock())
    clock = stored.clock
    looks = FleetView(stored.book, clock, settings.look)
    client = PubsubClient(os.environ.get("PUBSUB_EMULATOR_HOST"))
    place = PubsubPlace(broker.project, broker.topic, broker.subscription)
    subscription = PubsubSubscription(client, place, lease=settings.lease)
    tasks = PubsubTasks(client, place, lease=settings.lease)

    async def close_pulls() -> None:
        """Close both at once, since each waits for its outstanding pulls."""
        await asyncio.gather(subscription.close(), tasks.close())

    ends = [stored.close, client.close, close_pulls]
    spool = open_spool(settings, clock, place.topic, makes=makes) if publishes else None
    if spool is not None:
        ends.append(spool.close)
    in_redis = settings.overlay != "memory://"
    membership: Membership | None = None
    if publishes:
        member = new_member() if in_redis else in_memory(place.topic, spool.id if spool is not None else "")
        membership = Membership(looks, clock, member=member, topic=place.topic, spool=spool)
    in_fleet: RedisOverlay | MemberOverlay | None = None
    if in_redis:
        in_fleet = redis_overlay(settings, looks, clock, membership, stored.store)
    elif membership is not None:
        in_fleet = MemberOverlay(clock, looks, membership)

    async def look(flushes: bool) -> Sequence[str]:
        return [*await obstacles(client, place, settings.retention, flushes), *await stored.obstacles()]

    return Parts(
        publisher=KeptPublisher(
            client, place.topic, place.subscription, patience=SPOOL_AFTER if spool and spool.keeps else RETRY_FOR
        ),
        subscription=subscription,
        store=stored.store,
        overlay=in_fleet or ProcessOverlay(clock),
        clock=clock,
        topic=place.topic,
        one_file=False,
        where=f"{settings.broker} and {settings.store}",
        obstacles=look,
        letters=lambda: with_spooled(
            settings, place.topic, PubsubDeadLetters(client, place, lease=settings.lease, clock=clock)
        ),
        jobs=stored.jobs,
        tasks=tasks,
        spool=spool,
        spare=spool.file.reserve.spare if spool is not None else None,
        backlog=in_fleet.backlog if in_fleet is not None and publishes else None,
        feed=stored.feed,
        looks=looks,
        _files=[spool.file] if spool is not None else [],
        _ends=ends,
        _in_fleet=in_fleet,
    )


def redis_overlay(
    settings: Settings, looks: FleetView, clock: Clock, membership: Membership | None, store: Store
) -> "RedisOverlay":
    urls.redis(OVERLAY, settings.overlay)
    with needs("redis", OVERLAY, urls.shown(settings.overlay)):
        from shared.redis.overlay import RedisOverlay  # noqa: PLC0415 (the extra may be missing)
    return RedisOverlay(settings.overlay, looks, clock, membership=membership, store=store)


def tasks_of_process() -> Tasks:
    """A queue that ends with the process, for a command that does a job by itself."""
    return MemoryTasks()


async def _none(flushes: bool) -> Sequence[str]:  # noqa: ARG001 (the file is made at the start, and by it)
    return ()


# Decides by the environment variables of OpenTelemetry whether this process makes spans, and pushes its metrics.


_log = logging.getLogger(__name__)

_OTLP: Final = "OTEL_EXPORTER_OTLP_"
PROTOCOL: Final = "http/protobuf"
T = TypeVar("T")


def traces_of(version: str) -> Traces | None:
    """Makes spans. Returns None if no endpoint is set, or if spans can't be exported."""

    def make(endpoint: str) -> Traces:
        from shared.runtime.otlp import OtlpTraces  # noqa: PLC0415 (the extra may be missing)

        return OtlpTraces(version, endpoint)

    return _exporting("TRACES", "spans", make)


def metrics_pusher_of(version: str, since: float) -> "OtlpMetrics | None":

    def make(endpoint: str) -> "OtlpMetrics":
        from shared.runtime.otlp import OtlpMetrics  # noqa: PLC0415 (as above)

        return OtlpMetrics(version, endpoint, since)

    return _exporting("METRICS", "metrics", make)


def _exporting(signal: str, what: str, make: Callable[[str], T]) -> T | None:
    """What exports the signal. The variables are often set for all programs of a machine, so a missing extra does not
    end the start.
    """
    endpoint, variable = _variable(signal, "ENDPOINT")
    off = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    exporters = os.environ.get(f"OTEL_{signal}_EXPORTER") or "otlp"
    if not endpoint or off or "otlp" not in exporters.replace(" ", "").split(","):
        return None
    if urlsplit(endpoint).scheme not in {"http", "https"}:
        raise SettingsError(f"{variable}={endpoint!r} must be a URL that begins with http:// or https://")
    protocol, variable = _variable(signal, "PROTOCOL")
    if protocol not in {"", PROTOCOL}:
        _log.warning("no %s are exported: %s is %s, and Countersink knows only %s", what, variable, protocol, PROTOCOL)
        return None
    try:
        return make(endpoint)
    except ImportError:
        _log.warning(
            "no %s are exported: install Countersink with its extra 'otel' (in a checkout: make install EXTRAS=otel)",
            what,
        )
        return None
    except ValueError as error:
        raise SettingsError(f"a variable of OpenTelemetry (OTEL_…) is wrong: {error}") from None


def _variable(signal: str, name: str) -> tuple[str, str]:
    """The value of a variable for this signal or for all, and which one it is of. Empty ones count as not set."""
    for variable in (f"{_OTLP}{signal}_{name}", _OTLP + name):
        if value := os.environ.get(variable, "").strip():
            return value, variable
    return "", ""
