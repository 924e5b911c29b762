"""One ingest service: how its parts are put together, started and stopped."""

import asyncio
import logging
import socket
from functools import partial

from ingest.accept.drafts import Pace
from ingest.accept.new_names import NewNames
from ingest.accept.publishing import INTERVAL, Publishing, settle_due
from ingest.accept.spool import Spool
from ingest.access.door import Door, Doors, is_local
from ingest.api import openapi
from ingest.api.counters import ALL_BY_VALUE, READS, ChangeRoutes, ReadRoutes, render
from ingest.api.dead_letters import DeadLetterRoutes
from ingest.api.events import EventRoutes
from ingest.api.fleet import FleetRoute
from ingest.api.increments import IncrementRoutes, Totals
from ingest.api.jobs import JobRoutes
from ingest.api.pages import ServiceRoutes
from ingest.api.pictures import PictureRoutes, Pictures
from ingest.api.receipts import MOST_WAITS, AppliedWaits, ReceiptRoutes, Tracking
from ingest.api.series import SeriesRoutes
from ingest.api.watch import LEAST, MOST_PLACES, Watches, WatchRoutes
from ingest.http.bodies import Bodies
from ingest.http.fast_path import FastPath
from ingest.http.router import LOG, UNDER_WAY, Routes, refusal
from ingest.statsd.statsd import MOST_STREAMS, Statsd, StatsdSockets
from shared.config.settings import Settings, promise_of, receipts_live
from shared.counters.jobs import JobResults
from shared.counters.reader import AllNames, Largest, Reader
from shared.counters.series import SeriesReader
from shared.counters.setter import Setter, compactor_of
from shared.http.server import ADMINS, SPARE, HttpServer, room_for
from shared.http.shares import FairLock
from shared.model.buckets import StoreMillis
from shared.model.receipts import Promises
from shared.ports.broker import LetterDesk
from shared.runtime.retry import forever
from shared.wiring.process import Parts, starter_of

_log = logging.getLogger(__name__)


class Ingest:
    """Accepts increments over HTTP, publishes them as envelopes, and answers reads."""

    def __init__(
        self,
        parts: Parts,
        settings: Settings,
        *,
        letters: LetterDesk,
        version: str,
        short: bool = True,
    ) -> None:
        """Without `short` there is no fast path. The answers are the same; tests and benchmarks compare the two."""
        store, overlay, clock, jobs, traces = parts.store, parts.overlay, parts.clock, parts.jobs, parts.traces
        metered = not parts.one_file
        self._settings = settings
        self._spool = _spool_of(parts, settings)
        self._publisher = publisher = self._spool or parts.publisher
        self._overlay = overlay
        self._settle = partial(settle_due, store, overlay)
        self.server: HttpServer | None = None
        self._admin_server: HttpServer | None = None
        self.reader = Reader(store, overlay, clock, settings.cache_ttl)
        series = SeriesReader(store, overlay, clock, settings.windows) if settings.windows else None
        readers = (self.reader, series) if series else (self.reader,)
        self.publishing = Publishing(
            publisher,
            overlay,
            clock,
            pace=Pace(settings.linger_ms / 1000, metered=metered),
            max_waiting=settings.max_waiting,
            traces=traces,
            read_lately=(lambda names: any(one.read_lately(names) for one in readers)) if metered else None,
        )
        self.bodies = bodies = Bodies(settings.max_body_bytes, settings.body_timeout)
        tracking, names = Tracking(store, overlay), AllNames(store, overlay)
        half = max(settings.max_connections // 2, 1)  # places for what may last long: others are left for the rest
        self.waits = AppliedWaits(tracking, clock, min(MOST_WAITS, half))
        most_watched = min(MOST_PLACES, half * LEAST)
        self.watches = Watches(self.reader, names, render, clock, most_watched)
        lives = receipts_live(settings)
        compactor = compactor_of(store, clock, settings)
        self._doors = Doors(settings, clock, self.watches.end_all)
        self.door, self._admin_door = self._doors.add(), self._doors.add()
        new_names = NewNames(store, overlay, settings.max_counters, clock)
        # Without limits, only the new names of publishable keys are limited, whose requests take the routes.
        limited = new_names if settings.max_counters else None
        self.statsd = Statsd(self._doors.add(), self.publishing, new_names, settings)
        turns = FairLock(READS)
        largest, top = Largest(store, overlay, clock, self.reader), settings.top if metered else ALL_BY_VALUE
        reads = ReadRoutes(self.reader, names, turns, largest=largest, top=top)
        fast_path = FastPath(self.door, self.publishing, reads, bodies, limited, log=LOG, traced=traces is not None)
        self._fast_path = fast_path if short else None
        writes = IncrementRoutes(self.publishing, self.waits, Totals(self.reader), new_names)
        setter = Setter(self.reader, store, overlay, clock, lives, new_counter=settings.shards)
        pictures = Pictures(settings.pixels, settings.badges)
        self.chapters = (
            writes,
            reads,
            EventRoutes(writes, self.publishing, new_names),
            ChangeRoutes(setter, store, compactor, settings.max_shards, new_names),
            SeriesRoutes(series, turns),
            WatchRoutes(self.watches, clock, turns),
            ReceiptRoutes(tracking, turns),
            PictureRoutes(pictures, writes, self.publishing, self.reader),
            JobRoutes(jobs, JobResults(jobs, store), starter_of(parts, settings), settings.max_shards),
            DeadLetterRoutes(letters),
            FleetRoute(parts.looks),
            ServiceRoutes(self._ready, version, partial(openapi.document, version)),
        )
        self.routes = Routes(bodies, self.chapters, traces)

    async def _ready(self) -> None:
        self._overlay.check()
        await self._publisher.check()

    async def start(
        self, sock: socket.socket, admin: socket.socket | None = None, statsd: StatsdSockets | None = None
    ) -> None:
        """Load what is pending, then answer requests on a bound socket. With `admin`, requests of administrators are
        answered only there. With `statsd`, count the lines that come there.
        """
        await self._overlay.view(())
        LOG.start(self._settings.log_requests)
        others = MOST_STREAMS if statsd is not None else 0
        if admin is not None:
            others += ADMINS + SPARE
            self._admin_server = await self._serve(admin, self._admin_door, ADMINS, others)
        if statsd is not None:
            await self.statsd.start(statsd)
        most, public, fast_path = self._settings.max_connections, admin is not None, self._fast_path
        self.server = await self._serve(sock, self.door, most, others, public=public, fast_path=fast_path)

    async def _serve(
        self,
        sock: socket.socket,
        door: Door,
        most: int,
        others: int,
        *,
        public: bool = False,
        fast_path: FastPath | None = None,
    ) -> HttpServer:
        door.is_local = is_local(sock)
        server = HttpServer(
            self.routes.behind(door, public=public),
            room_for(min(most, self._settings.max_connections), others),
            self._settings.head_timeout,
            self._settings.idle_timeout,
            plain=fast_path,
            refuse=partial(refusal, door),
        )
        UNDER_WAY.servers.add(server)
        await server.start(sock)
        return server

    async def tend(self) -> None:
        """Do the background work until cancelled. Raises the error after which the service can't go on, such as damaged
        data.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.publishing.until_broken(), name="notice damage")
            tasks.create_task(self.publishing.awake.watch(), name="notice a standstill")
            tasks.create_task(self._doors.tend(), name="read the keys")
            tasks.create_task(self.statsd.tend(), name="count StatsD lines")
            tasks.create_task(forever(self._settle, INTERVAL), name="settle")
            if self._spool is not None:
                tasks.create_task(self._spool.forward(), name="forward")

    async def stop(self) -> None:
        """Stop listening, answer requests under way, and publish the increments that were accepted with ack=none.
        Requests wait until they are applied for half of the time.
        """
        LOG.stop()
        await self.watches.stop()
        patience = self._settings.drain_timeout
        giving_up = asyncio.get_running_loop().call_later(patience / 2, self.waits.give_up)
        try:
            async with asyncio.timeout(patience):
                servers = filter(None, (self.server, self._admin_server))
                await asyncio.gather(self.statsd.stop(), *(server.stop(patience) for server in servers))
                await self.publishing.drain()
        except TimeoutError:
            _log.warning("some requests were not finished within %g seconds", patience)
        giving_up.cancel()
        await self.waits.stop()


def _spool_of(parts: Parts, settings: Settings) -> Spool | None:
    """What keeps envelopes while the broker is away, if something does."""
    if (queue := parts.spool) is None:
        return None

    async def oldest() -> StoreMillis:
        """The time before which it must not have accepted what it forwards: its receipts may be gone."""
        promises = Promises(promise_of(settings), await parts.store.promises())
        return promises.oldest_spooled(await parts.store.now())

    age, keeps = settings.spool_age, queue.keeps
    return Spool(parts.publisher, queue.publisher, queue.subscription, parts.clock, age, keeps=keeps, oldest=oldest)
