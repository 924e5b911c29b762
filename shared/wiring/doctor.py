"""Chooses, by the settings, what provision and doctor look at."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Protocol, TypeVar

from shared.config import urls
from shared.config.findings import FAIL, Finding
from shared.config.settings import Settings
from shared.model.errors import SettingsError
from shared.runtime.clock import SystemClock
from shared.sqlite.setup import SqliteSetup
from shared.sqlite.spool_setup import SpoolSetup
from shared.wiring.datastore import datastore_place, emulator, store_of
from shared.wiring.extras import needs
from shared.wiring.files import BROKER, OVERLAY, STORE, elsewhere, only_file, spool_flaw, spool_path
from shared.wiring.fleet_setup import FleetSetup

T = TypeVar("T")


class Setup(Protocol):
    """A part of the set-up, which operators make and check before anything runs."""

    def provision(self) -> AsyncIterator[Finding]:
        """Make what is missing, and report it. What exists and is wrong is a FAIL. A second run changes nothing."""
        ...

    def findings(self) -> AsyncIterator[Finding]:
        """Look at everything, within a bounded time. What cannot be reached is a finding, too: nothing is raised."""
        ...


Opening = Callable[[], AbstractAsyncContextManager[Setup]]


def setups(settings: Settings) -> Sequence[Opening]:
    """The parts of the set-up, each to be entered inside a running event loop. Entering one raises `SettingsError` if
    its settings cannot be used; the others can still be looked at.
    """
    if urls.scheme_of(settings.broker) != "pubsub":
        return [partial(_file_setup, settings)]
    openings: list[Opening] = [partial(_pubsub_setup, settings), partial(_store_setup, settings)]
    if settings.spool != "off":
        openings.append(partial(_spool_setup, settings))
    if settings.overlay != "memory://":
        openings.append(partial(_redis_setup, settings))
    return openings


@asynccontextmanager
async def _until_closed(part: T, close: Callable[[], Awaitable[None]]) -> AsyncIterator[T]:
    try:
        yield part
    finally:
        await close()


def _file_setup(settings: Settings) -> AbstractAsyncContextManager[Setup]:
    file, existing = only_file(settings), settings.existing == "yes"
    return nullcontext(SqliteSetup(file, settings.disk_reserve, elsewhere(file), existing=existing))


class _StoreSetup:
    """The store, and the record of the fleet in it, which is looked at only if the store has no FAIL."""

    def __init__(self, store: Setup, fleet: Callable[[], AbstractAsyncContextManager[FleetSetup]]) -> None:
        self._store = store
        self._fleet = fleet

    async def provision(self) -> AsyncIterator[Finding]:
        async for finding in self._store.provision():
            yield finding
        async with self._fleet() as fleet:
            await fleet.make()

    async def findings(self) -> AsyncIterator[Finding]:
        failed = False
        async for finding in self._store.findings():
            failed |= finding.mark == FAIL
            yield finding
        if not failed:
            async with self._fleet() as fleet:
                for finding in await fleet.findings():
                    yield finding


@asynccontextmanager
async def _store_setup(settings: Settings) -> AsyncIterator[Setup]:
    async with _datastore_setup(settings) as store:
        yield _StoreSetup(store, partial(_fleet_setup, settings))


def _spool_setup(settings: Settings) -> AbstractAsyncContextManager[Setup]:
    file, existing = spool_path(settings), settings.existing == "yes"
    flaw = spool_flaw(settings)
    return nullcontext(SpoolSetup(file, settings.disk_reserve, flaw, elsewhere(file), existing=existing))


def _pubsub_setup(settings: Settings) -> AbstractAsyncContextManager[Setup]:
    there = urls.pubsub(BROKER, settings.broker)
    with needs("google", BROKER, settings.broker):
        from shared.google.pubsub.client import PubsubClient, PubsubPlace  # noqa: PLC0415 (the extra may be missing)
        from shared.google.pubsub.setup import PubsubSetup  # noqa: PLC0415
    host = os.environ.get("PUBSUB_EMULATOR_HOST", "")
    client = PubsubClient(host)
    place = PubsubPlace(there.project, there.topic, there.subscription)
    setup = PubsubSetup(client, place, lease=settings.lease, retention=settings.retention, emulator=host)
    return _until_closed(setup, client.close)


def _redis_setup(settings: Settings) -> AbstractAsyncContextManager[Setup]:
    urls.redis(OVERLAY, settings.overlay)
    with needs("redis", OVERLAY, urls.shown(settings.overlay)):
        from shared.redis.links import Links  # noqa: PLC0415 (the extra may be missing)
        from shared.redis.server import Server  # noqa: PLC0415
        from shared.redis.setup import RedisSetup  # noqa: PLC0415
    server = Server(settings.overlay, Links(settings.overlay))
    return _until_closed(RedisSetup(server), server.close)


def _fleet_setup(settings: Settings) -> AbstractAsyncContextManager[FleetSetup]:
    stored = store_of(settings, SystemClock())
    return _until_closed(FleetSetup(stored.book, stored.store), stored.close)


async def trust_overlay(settings: Settings, which: str | None = None) -> Sequence[str]:
    """Take an operator's word that everything outside the overlay has been applied; see `FleetSetup.trust`."""
    if urls.scheme_of(settings.broker) != "pubsub":
        raise SettingsError(
            f"{BROKER} is a file, which knows all pending increments: --trust-overlay is only for Pub/Sub"
        )
    async with _fleet_setup(settings) as setup:
        return await setup.trust(which)


def _datastore_setup(settings: Settings) -> AbstractAsyncContextManager[Setup]:
    place = datastore_place(settings)
    with needs("google", STORE, settings.store):
        from shared.google.datastore.client import DatastoreClient  # noqa: PLC0415 (the extra may be missing)
        from shared.google.datastore.setup import DatastoreSetup  # noqa: PLC0415
        from shared.google.datastore.ttl_policy import Ttl  # noqa: PLC0415
    clock = SystemClock()
    client = DatastoreClient(place.project, place.database, clock, emulator())
    kinds = [place.kinds.receipt, *([place.kinds.buckets] if settings.windows else ())]
    ttls = [Ttl(place, kind) for kind in kinds]
    return _until_closed(DatastoreSetup(client, place, clock, ttls, emulator=emulator()), client.close)
