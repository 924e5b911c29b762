"""Runs ingest and flusher, together or apart, until SIGTERM or Ctrl-C; then drains them."""

import asyncio
import contextlib
import gc
import logging
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from math import nan
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import uvloop
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from countersink import __version__
from countersink_server.serve.sockets import PREFIX, Address, Sockets, listening, url_of
from flusher.announcer import Announcer
from flusher.cleanup import INTERVAL, DailyExpiry, sweep_jobs
from flusher.dead_letters.desk import OneAtATime
from flusher.flush.flusher import Waiters
from flusher.service import make_flusher, make_runner
from ingest.access.door import Doors
from ingest.service import Ingest
from shared.config import urls
from shared.config.settings import Settings
from shared.fleet import CHANGE_WITHIN
from shared.http.answers import SECURE
from shared.http.server import ADMINS, SPARE, HttpServer, room_for
from shared.model.errors import CountersinkError, SettingsError, TransientError
from shared.model.feed import NOTHING
from shared.runtime import metrics
from shared.runtime.metrics import REGISTRY, watch_process
from shared.runtime.retry import Backoff, Stop, ended, forever, insist
from shared.wiring.files import until_closed
from shared.wiring.process import (
    Parts,
    connect,
    metrics_pusher_of,
    receiver_of,
    starter_of,
    told_by,
    traces_of,
)

if TYPE_CHECKING:
    from shared.runtime.otlp import OtlpMetrics

Say = Callable[[str], None]

_log = logging.getLogger(__name__)

LOOK_AT_FILES = 0.5
"""Seconds between two checks that the files are still those that were opened."""
MARGIN: Final = 5.0
"""Seconds after its drain time-out until a process that was told to stop may be killed."""
CLOSING_TAKES: Final = 1.0
"""Seconds of these that are kept for closing what is open."""
REFRESH = 1.0
"""Seconds for which other workers show what a gauge was."""
PATHS: Final = ("/healthz", "/metrics")
"""What a flusher that runs apart answers."""
CLOSING: Final = 1.0
"""Seconds for a request to it that is under way."""


async def ingest(settings: Settings, sockets: Sockets, say: Say, parent: int | None = None) -> None:
    """Run ingest until it is stopped. It also stops when `parent` does, a pipe from the process that started it."""
    async with _running(settings, publishes=True) as (parts, stop):
        if parent is not None:
            _follow(parent, stop)
        else:
            await ready(parts, flushes=False)
        async with asyncio.TaskGroup() as tasks:
            watcher = tasks.create_task(forever(parts.check_files, LOOK_AT_FILES), name="watch the files")
            gauges = tasks.create_task(forever(_read_gauges, REFRESH), name="read gauges")
            async with _serving(ingest_of(parts, settings), sockets):
                say(f"countersink ingest is up on {sockets.described()}, {of_data(parts)}")
                await stop.wait()
            for task in (watcher, gauges):
                task.cancel()


async def flusher(settings: Settings, sockets: Sockets, say: Say) -> None:
    """Run a flusher until it is stopped. It serves its metrics on the admin socket, or on the public one."""
    async with _running(settings) as (parts, stop), contextlib.AsyncExitStack() as status:
        doors = Doors(settings, parts.clock)
        await ready(parts, flushes=True)
        announcer = await feed_of(parts, settings)
        for sock in filter(None, (sockets.public, sockets.admin)):
            paths = PATHS if sock is sockets.admin or sockets.admin is None else PATHS[:1]
            server = await serve_status(sock, doors.at(sock), settings, paths)
            status.push_async_callback(server.stop, CLOSING)
        measured = sockets.admin or sockets.public
        at = f" with its metrics on {url_of(measured)}/metrics" if measured is not None else ""
        say(f"countersink flusher is up{at}, {of_data(parts)}")
        async with asyncio.TaskGroup() as tasks:
            reader = tasks.create_task(doors.tend(), name="read the keys")
            await _flush(parts, settings, stop, announcer)
            reader.cancel()


async def serve_status(
    sock: socket.socket,
    refuse: Callable[[web.BaseRequest], Awaitable[web.Response | None]],
    settings: Settings,
    paths: Sequence[str] = PATHS,
) -> HttpServer:
    """Answer on a bound socket until `stop`. `refuse` returns the answer to a request that may not be served."""

    async def answer(request: web.BaseRequest) -> web.Response:
        response = await refuse(request) or _answer(request, paths)
        response.headers["Server"] = SECURE["Server"]
        return response

    most = room_for(min(ADMINS, settings.max_connections), ADMINS + SPARE)
    server = HttpServer(answer, most, settings.head_timeout, settings.idle_timeout)
    await server.start(sock)
    return server


def _answer(request: web.BaseRequest, paths: Sequence[str]) -> web.Response:
    if request.method not in {"GET", "HEAD"}:
        return web.Response(status=405, headers={"Allow": "GET"})
    if request.path not in paths:
        return web.Response(status=404, text=f"this port has only {' and '.join(paths)}\n")
    if request.path == "/healthz":
        return web.Response(text='{"status":"alive"}\n', content_type="application/json")
    return web.Response(body=generate_latest(REGISTRY), headers={"Content-Type": CONTENT_TYPE_LATEST})


async def up(settings: Settings, sockets: Sockets, say: Say) -> None:
    """Run both in one process. The flusher stops last, so that it applies what ingest has just accepted."""
    async with _running(settings, publishes=True) as (parts, stop):
        await ready(parts, flushes=True)
        announcer = await feed_of(parts, settings)
        service = ingest_of(parts, settings)
        last = Stop()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_flush(parts, settings, last, announcer, service.waits), name="flusher")
            async with _serving(service, sockets):
                say(f"countersink is up on {sockets.described()}, {of_data(parts)}")
                await stop.wait()
                say("countersink is stopping: it finishes what it has accepted")
            last.set()


@contextlib.asynccontextmanager
async def _serving(service: Ingest, sockets: Sockets) -> AsyncIterator[None]:
    """The service answers inside it, and has finished at its end."""
    async with asyncio.TaskGroup() as tasks:
        tender = tasks.create_task(service.tend(), name="tend")
        try:
            assert sockets.public is not None  # noqa: S101 (only flushers have none)
            await service.start(sockets.public, sockets.admin, sockets.statsd)
            yield
        finally:  # also on failure: waiting clients get an answer, and the socket closes before the event loop
            await service.stop()
        tender.cancel()


async def ready(parts: Parts, *, flushes: bool) -> None:
    """Refuse to start on a set-up that can't work or would lose counts. A service that is away is waited for."""
    try:
        obstacles = await parts.obstacles(flushes)
    except TransientError as error:
        _log.warning("a server does not answer; this process starts anyway and keeps trying: %s", error)
        return
    if obstacles:
        more = len(obstacles) - 1
        raise SettingsError(obstacles[0] + (f" ({more} more: run countersink doctor)" if more else ""))


def ingest_of(parts: Parts, settings: Settings) -> Ingest:
    return Ingest(parts, settings, letters=OneAtATime(parts, settings), version=__version__)


async def _flush(
    parts: Parts, settings: Settings, stop: Stop, announcer: Announcer | None = None, waiters: Waiters | None = None
) -> None:
    """Apply messages and work on jobs until `stop`."""
    drain = settings.drain_timeout
    expiry = DailyExpiry(settings.expire, parts.jobs, starter_of(parts, settings), parts.clock)
    async with asyncio.TaskGroup() as tasks:
        sweeper = tasks.create_task(forever(partial(sweep_jobs, parts.jobs, parts.store), INTERVAL), name="forget jobs")
        watcher = tasks.create_task(forever(parts.check_files, LOOK_AT_FILES), name="watch the files")
        daily = tasks.create_task(expiry.run(), name="delete old counters each day")
        tasks.create_task(make_runner(parts, settings).run(stop, drain), name="jobs")
        flush = tasks.create_task(make_flusher(parts, settings, waiters).run(stop, drain), name="flush")
        told = Stop()
        feeds = announcer.run(told) if announcer is not None else _begin_feed(parts, settings)
        feed = tasks.create_task(feeds, name="tell others")
        await stop.wait()
        for task in (sweeper, watcher, daily):
            task.cancel()
        await flush
        told.set()
        if announcer is None:
            feed.cancel()


async def feed_of(parts: Parts, settings: Settings) -> Announcer | None:
    """What tells; None if nothing is to be told. `SettingsError` if these settings can't be used, so call it before the
    process says that it is up.
    """
    announcer = None
    if parts.feed is not None and settings.feed_to:
        receiver, where = receiver_of(settings, parts.topic, parts.clock)
        announcer = Announcer(parts.feed, receiver, where, told_by(settings))
    if parts.one_file:
        await _begin_feed(parts, settings)
    return announcer


async def _begin_feed(parts: Parts, settings: Settings) -> None:
    """Have commits owe what these settings say, or nothing. `SettingsError` if another process on the file tells by
    others. On Google Cloud it is tried until it succeeds.
    """
    if parts.feed is not None:
        told = told_by(settings) if settings.feed_to else NOTHING
        await insist(partial(parts.feed.open, told), TransientError, lambda: not parts.one_file, Backoff())


@contextlib.asynccontextmanager
async def _running(settings: Settings, *, publishes: bool = False) -> AsyncIterator[tuple[Parts, Stop]]:
    stop = stopping()
    traces = traces_of(__version__)
    # The first worker pushes what all of them show.
    pusher = None if metrics.BOARD.worker else metrics_pusher_of(__version__, metrics.counted_since())
    parts = replace(connect(settings, publishes=publishes, makes=True), traces=traces)
    try:
        await parts.open()
        watch_process()
        show_in_metrics(parts, settings)
        metrics.BOARD.reads = [partial(_show_backlog, parts)]
        metrics.BOARD.refresh()
        async with _pushing(pusher):
            yield parts, stop
    finally:
        metrics.BOARD.reads = []
        for gauge in (metrics.START, metrics.MEMBERS, *metrics.OF_DATA):
            gauge.clear()
        await parts.close(patience_of(stop, settings))
        if traces is not None:
            traces.close()
        if pusher is not None:
            pusher.close()


@contextlib.asynccontextmanager
async def _pushing(pusher: "OtlpMetrics | None") -> AsyncIterator[None]:
    if pusher is None:
        yield
        return
    task = asyncio.create_task(forever(pusher.push, pusher.interval), name="push metrics")
    try:
        yield
    finally:
        await ended(task)
        await pusher.push()


def patience_of(stop: Stop, settings: Settings) -> float:
    """For how many seconds a process that has drained may try to say in the store what it leaves behind."""
    if stop.at is None:
        return CHANGE_WITHIN
    left = stop.at + settings.drain_timeout + MARGIN - CLOSING_TAKES - asyncio.get_running_loop().time()
    return max(left, CHANGE_WITHIN - CLOSING_TAKES)


def show_in_metrics(parts: Parts, settings: Settings) -> None:
    broker = urls.scheme_of(settings.broker)
    overlay = "sqlite" if broker == "sqlite" else urls.scheme_of(settings.overlay)
    metrics.START.labels(broker, urls.scheme_of(settings.store) or broker, overlay).set_to_current_time()
    if (looks := parts.looks) is not None:
        metrics.MEMBERS.labels("ingest").set_function(lambda: len(looks.last.fleet.members) if looks.last else 0)
        metrics.MEMBERS.labels("flusher").set_function(lambda: len(looks.last.fleet.flushers) if looks.last else 0)


def _show_backlog(parts: Parts) -> None:
    """Show what waits to be applied. All processes on a file see the same, so their workers show it once."""
    with contextlib.suppress(CountersinkError, OSError):  # the other metrics are shown anyway
        if parts.spare is not None:
            metrics.DISK_SPARE.set_for_all(parts.spare())
        if parts.feed is not None:
            waiting = parts.feed.waiting()
            metrics.FEED_WAITING.set_for_all(waiting.events)
            metrics.FEED_OLDEST.set_for_all(waiting.oldest)
        if parts.spool is not None:
            held, most = parts.spool.publisher.pending()
            metrics.SPOOL_USED.set_for_all(held / most)
        backlog = parts.backlog() if parts.backlog else None
        if parts.balance is None:
            if backlog is not None:
                metrics.PENDING.set(backlog.increments)
                metrics.OLDEST_PENDING.set(backlog.oldest)
            return
        balance = parts.balance()
        metrics.DRIFT.set_for_all(balance.drift)
        metrics.PENDING.set_for_all(balance.pending)
        metrics.DEAD_NOW.set_for_all(balance.dead)
        metrics.OLDEST_PENDING.set_for_all(backlog.oldest if backlog else nan)


async def _read_gauges() -> None:
    metrics.BOARD.refresh()


def stopping() -> Stop:
    stop = Stop()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def _follow(parent: int, stop: Stop) -> None:
    loop = asyncio.get_running_loop()

    def ended() -> None:
        loop.remove_reader(parent)  # an ended pipe stays readable
        if not stop.is_set():
            _log.warning("the process that started this worker is gone, so the worker finishes its work and ends")
            stop.set()

    loop.add_reader(parent, ended)


@contextlib.asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[str]:
    """The URL of the data inside it, so that a command can do with it what a service would: a Unix socket in a folder
    that only this user can open, so keys are not needed.

    Nothing is applied here: accepted increments wait for the next flusher, and reads include them.
    """
    settings = replace(settings, keys_file="", linger_ms=0)
    parts = connect(settings)
    async with until_closed(parts, parts.close):
        await parts.open()
        with TemporaryDirectory(prefix="countersink-") as folder:
            address = Address(f"{PREFIX}{folder}/socket", 0)
            with listening(address, keys=False) as sockets:
                async with _serving(ingest_of(parts, settings), sockets):
                    yield address.host


def of_data(parts: Parts) -> str:
    """The end of the line that says that a process is up."""
    return f"its data in {parts.where} (version {__version__})"


def run(main: Coroutine[object, object, None]) -> None:
    gc.freeze()  # no later collection looks through the modules, which stay
    uvloop.run(main)
