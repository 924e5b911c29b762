"""The composition root: settings in, ports out. It and `setups` alone name adapters."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from shared import urls
from shared.clock import Clock, SystemClock, ToldClock
from shared.errors import SettingsError
from shared.files import BROKER, OVERLAY, STORE, only_file, spool_file
from shared.job_ports import Jobs, Tasks
from shared.memory.jobs import MemoryTasks
from shared.memory.overlay import ProcessOverlay
from shared.ports import DeadLetters, Overlay, Publisher, Store, Subscription
from shared.receipts import lifetime
from shared.settings import Settings
from shared.sqlite.balance import SqliteBalance
from shared.sqlite.broker import SqlitePublisher, SqliteSubscription, claim, topic_of
from shared.sqlite.database import Database
from shared.sqlite.jobs import SqliteJobs
from shared.sqlite.letters import SqliteDeadLetters
from shared.sqlite.overlay import SqliteOverlay
from shared.sqlite.reserve import Reserve
from shared.sqlite.store import SqliteStore
from shared.sqlite.tasks import SqliteTasks
from shared.sqlite.time import FileTime
from shared.words import Balance

if TYPE_CHECKING:
    from shared.google.datastore_keys import Place as DatastorePlace
    from shared.redis.overlay import RedisOverlay

SPOOL_LEASE = 5.0
"""Seconds for which what one process forwards is kept from the others on the same file, and from its next life."""
SPOOL_PATIENCE = 2.0
"""Seconds in which a publish is tried again before the spool takes it."""


class Obstacles(Protocol):
    """Why a process should not start, each with what to do; `TransientError` if that can't be found out now."""

    async def __call__(self, *, flushes: bool) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True)
class Queue:
    """A durable broker of this machine."""

    publisher: Publisher
    subscription: Subscription
    clock: Clock
    """By which it dates what it takes: the store's time, as far as that is known."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything that a process needs of the outside, and how to let go of it."""

    publisher: Publisher
    subscription: Subscription
    store: Store
    overlay: Overlay
    clock: Clock
    topic: str
    ages: bool
    """Whether receipts expire by the clock alone; a file knows which of them are still needed."""
    metered: bool
    """Whether each message and each receipt is paid for, so that it is worth while to wait for company."""
    where: str
    """Of the data, for people."""
    obstacles: "Obstacles"
    letters: Callable[[], DeadLetters]
    """A way through what was buried."""
    jobs: Jobs
    tasks: Tasks
    spool: "Queue | None" = None
    """What takes envelopes while the broker is away."""
    balance: Callable[[], Balance] | None = None
    """Where broker and store are one file."""
    _begins: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    _ends: list[Callable[[], Awaitable[None]]] = field(default_factory=list)

    async def open(self) -> None:
        """Begin what has to go on all the time; waits for no server that is away."""
        for begin in self._begins:
            await begin()

    async def close(self) -> None:
        """The last that was opened first."""
        async with AsyncExitStack() as stack:
            for end in self._ends:
                stack.push_async_callback(end)


def connect(settings: Settings, environment: Mapping[str, str] = os.environ, *, publishes: bool = False) -> Parts:
    """Inside a running event loop. Reaches no server yet. `SettingsError` says which setting can't be used."""
    if urls.scheme_of(settings.broker) == "pubsub":
        return _on_pubsub(settings, environment, publishes=publishes)
    return _embedded(settings)


def _embedded(settings: Settings) -> Parts:
    file = only_file(settings)
    clock = SystemClock()
    database = Database(file)
    topic = topic_of(database)
    reserve = Reserve(database.path, settings.disk_reserve)
    return Parts(
        publisher=SqlitePublisher(database, clock, settings.max_pending_bytes, reserve),
        subscription=SqliteSubscription(database, clock, settings.lease),
        store=SqliteStore(database, clock, reserve),
        overlay=SqliteOverlay(database, topic),
        clock=clock,
        topic=topic,
        ages=False,
        metered=False,
        where=str(database.path.absolute()),
        obstacles=_none,
        letters=partial(SqliteDeadLetters, database),
        jobs=SqliteJobs(database, reserve),
        tasks=SqliteTasks(database, clock, settings.lease),
        balance=SqliteBalance(database).read,
        _ends=[database.close],
    )


def _on_pubsub(settings: Settings, environment: Mapping[str, str], *, publishes: bool) -> Parts:
    broker = urls.pubsub(BROKER, settings.broker)
    try:
        from shared.google.pubsub_client import PATIENCE, Place, PubsubClient  # noqa: PLC0415 (the extra may be missing)
        from shared.google.pubsub_letters import PubsubDeadLetters  # noqa: PLC0415
        from shared.google.pubsub_publisher import PubsubPublisher  # noqa: PLC0415
        from shared.google.pubsub_setup import obstacles  # noqa: PLC0415
        from shared.google.pubsub_subscription import PubsubSubscription  # noqa: PLC0415
        from shared.google.pubsub_tasks import PubsubTasks  # noqa: PLC0415
    except ImportError as error:
        raise extra_missing(BROKER, settings.broker, "google") from error
    store, jobs, end, clock, spool_clock = _store(settings, SystemClock(), environment)
    client = PubsubClient(environment.get("PUBSUB_EMULATOR_HOST"))
    place = Place(broker.project, broker.topic, broker.subscription)
    subscription = PubsubSubscription(client, place, lease=settings.lease)
    overlay: Overlay = ProcessOverlay(clock)
    begins: list[Callable[[], Awaitable[None]]] = []
    tasks = PubsubTasks(client, place, lease=settings.lease)

    async def close_pulls() -> None:
        """At once: each waits for what it has asked Pub/Sub for."""
        await asyncio.gather(subscription.close(), tasks.close())

    ends = [end, client.close, close_pulls]
    spool = None
    if publishes and (file := spool_file(settings)) is not None:
        database = Database(file)
        ends.append(database.close)
        claim(database, place.topic)
        spool = Queue(
            SqlitePublisher(
                database, spool_clock, settings.spool_bytes, Reserve(file, settings.disk_reserve, applied=False)
            ),
            SqliteSubscription(database, clock, SPOOL_LEASE),
            spool_clock,
        )
    if settings.overlay != "memory://":
        overlay = of_fleet = redis_overlay(settings, place.topic, store, clock, member=publishes)
        begins.append(of_fleet.open)
        ends.append(of_fleet.close)
    return Parts(
        publisher=PubsubPublisher(client, place.topic, patience=SPOOL_PATIENCE if spool else PATIENCE),
        subscription=subscription,
        store=store,
        overlay=overlay,
        clock=clock,
        topic=place.topic,
        ages=True,
        metered=True,
        where=f"{settings.broker} and {settings.store}",
        obstacles=partial(obstacles, client, place, settings.retention),
        letters=partial(PubsubDeadLetters, client, place, lease=settings.lease, clock=clock),
        jobs=jobs,
        tasks=tasks,
        spool=spool,
        _begins=begins,
        _ends=ends,
    )


def _store(
    settings: Settings, clock: Clock, environment: Mapping[str, str]
) -> tuple[Store, Jobs, Callable[[], Awaitable[None]], Clock, Clock]:
    """The store, its jobs and its end; the clock for what people see; and one for what a spool takes."""
    scheme = urls.scheme_of(settings.store)
    if scheme == "sqlite":
        database = Database(urls.sqlite_file(STORE, settings.store))
        spool_clock = ToldClock(clock, FileTime(database, clock).now)
        return SqliteStore(database, clock), SqliteJobs(database), database.close, clock, spool_clock
    if scheme != "datastore":
        raise wrong_store(settings)
    try:
        from shared.google.datastore_client import DatastoreClient  # noqa: PLC0415 (the extra may be missing)
        from shared.google.datastore_jobs import DatastoreJobs  # noqa: PLC0415
        from shared.google.datastore_store import DatastoreStore  # noqa: PLC0415
    except ImportError as error:
        raise extra_missing(STORE, settings.store, "google") from error
    place = datastore_place(settings)
    client = DatastoreClient(place.project, place.database, clock, environment)
    store = DatastoreStore(client, place, clock)
    told = ToldClock(clock, lambda: client.time.bound(clock.boot()) // 1_000)
    return store, DatastoreJobs(client, place, store), client.close, told, told


def datastore_place(settings: Settings) -> "DatastorePlace":
    from shared.google.datastore_keys import Kinds, Place  # noqa: PLC0415 (the extra may be missing)

    there = urls.datastore(STORE, settings.store)
    kinds = Kinds(
        settings.kind_config,
        settings.kind_shard,
        settings.kind_receipt,
        settings.kind_guard,
        settings.kind_mark,
        settings.kind_job,
        settings.kind_task,
    )
    return Place(there.project, there.database, there.namespace, kinds)


def redis_overlay(settings: Settings, topic: str, store: Store, clock: Clock, *, member: bool) -> "RedisOverlay":
    """All processes on one topic are a fleet."""
    urls.redis(OVERLAY, settings.overlay)
    try:
        from shared.redis.overlay import RedisOverlay  # noqa: PLC0415 (the extra may be missing)
    except ImportError as error:
        raise extra_missing(OVERLAY, urls.shown(settings.overlay), "redis") from error
    return RedisOverlay(
        settings.overlay,
        topic,
        store,
        clock,
        member=member,
        receipts_live=lifetime(settings.retention * 1000, of_client=True),
        flusher_lease=settings.lease,
    )


def extra_missing(variable: str, url: str, extra: str) -> SettingsError:
    return SettingsError(
        f"{variable}={url!r} needs more packages: install Countersink with its extra {extra!r}"
        f" (in a checkout: pip install --editable '.[{extra}]')"
    )


def tasks_of_process(clock: Clock, lease: float) -> Tasks:
    """A queue that ends with the process, for who does a job alone."""
    return MemoryTasks(clock, lease)


async def _none(*, flushes: bool) -> Sequence[str]:  # noqa: ARG001 (the file is made at the start, and by it)
    return ()


def wrong_store(settings: Settings) -> SettingsError:
    return SettingsError(
        f"{STORE}={settings.store!r}: with a Pub/Sub broker it must be datastore://PROJECT[/DATABASE] or sqlite:///FILE"
    )
