"""Chooses, by the settings, what provision and doctor look at, and tells what keeps a fleet's reads from being
exact.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import UTC, datetime
from functools import partial
from typing import Final

from shared.config import urls
from shared.config.findings import FAIL, OK, WARN, Finding, Setup
from shared.config.settings import Settings
from shared.fleet import unsettled
from shared.model.buckets import StoreMillis
from shared.model.errors import SettingsError, TransientError
from shared.model.fleet import LOOK_EVERY, Fleet, PublisherRecord, begun
from shared.ports.store import FleetBook, ReceiptBook
from shared.runtime.clock import SystemClock
from shared.sqlite.setup import SqliteSetup
from shared.sqlite.spool import SpoolSetup
from shared.wiring.files import BROKER, OVERLAY, elsewhere, needs, only_file, spool_flaw, spool_path, until_closed
from shared.wiring.process import store_of

# Tells operators what keeps reads from being exact, and takes their word that nothing is missing.


_PART: Final = "fleet"
LOOKED_WITHIN: Final = 3 * LOOK_EVERY
"""Seconds within which every running process has looked at the fleet."""


class FleetSetup:
    """Looks at the fleet from outside, without being a member."""

    def __init__(self, book: FleetBook, store: ReceiptBook) -> None:
        self._book = book
        self._store = store

    async def make(self) -> AsyncIterator[Finding]:
        """Make the entity, if it is missing, and say if that failed."""
        try:
            await self._book.change(begun)
        except TransientError as error:
            yield Finding(WARN, _PART, f"can't make the record of the fleet: {error}")

    async def findings(self) -> Sequence[Finding]:
        try:
            fleet = (await self._book.look()).fleet
            missing = {name: await self._missing(name, record) for name, record in fleet.apart().items()}
        except TransientError as error:
            return [Finding(WARN, _PART, f"can't find out whether reads are exact: {error}")]
        if not fleet.overlay.epoch:
            return [Finding(OK, _PART, "no process uses a shared overlay (COUNTERSINK_OVERLAY), so no read is exact")]
        found = [
            Finding(
                WARN, _PART, f"{_described(name, record, missing[name])}: no read is exact until {_end(record, fleet)}"
            )
            for name, record in fleet.apart().items()
        ]
        if fleet.whole():
            said = f"the overlay holds all that is pending; ingests that publish: {len(fleet.members)}"
            found.append(Finding(OK, _PART, said))
        return found

    async def trust(self, which: str | None = None, *, patience: float = LOOKED_WITHIN) -> Sequence[str]:
        """Remove the records that keep reads from being exact, or only that of one member or spool. Return what they
        stood for, in words.

        Nothing is removed if the store lacks a receipt that one of them listed when it stopped, unless `which` is the
        name of that one. All of them are struck first. A running process sees that within `patience` seconds and
        changes its record, which is then kept.
        """
        seen = (await self._refuse_missing(which)).members
        before: dict[str, PublisherRecord] = {}

        def strike(fleet: Fleet, now: StoreMillis) -> Fleet:
            before.clear()
            apart = [(name, one) for name, one in fleet.apart().items() if not one.listed or seen.get(name) == one]
            before.update({name: one for name, one in apart if which is None or which in {name, one.spool} - {""}})
            for name in before:
                fleet = fleet.strikes(name, now)
            return fleet

        struck = (await self._book.change(strike)).fleet.members
        if which is not None and not before:
            raise SettingsError(f"no process or spool {which!r} keeps reads from being exact: see countersink doctor")
        if before:
            await asyncio.sleep(patience)

        def remove(fleet: Fleet, _: int) -> Fleet:
            return fleet.without(*(name for name in before if fleet.members.get(name) == struck[name]))

        left = (await self._book.change(remove)).fleet.members
        if alive := sorted(before.keys() & left):
            raise SettingsError(
                f"{', '.join(alive)}: still running, and its increments are not in the overlay: end the process, or"
                " wait until it has reached the overlay, then run this again"
            )
        return [_described(name, one) for name, one in before.items()]

    async def _missing(self, name: str, record: PublisherRecord) -> int | None:
        """How many messages of a stopped member are not applied, by its list; None if there is none."""
        keys = await self._book.left_by(name) if record.listed else None
        return None if keys is None else len(await unsettled(self._store, [*keys]))

    async def _refuse_missing(self, which: str | None) -> Fleet:
        """The fleet, unless messages of a stopped member are missing, for which `which` stands without naming it."""
        fleet = (await self._book.look()).fleet
        found = {
            name: missing
            for name, record in fleet.apart().items()
            if which in {None, record.spool} and which != name and (missing := await self._missing(name, record))
        }
        if found:
            members = fleet.members
            raise SettingsError(
                "; ".join(
                    f"{_described(name, members[name], missing)}: {_flushers(members[name], fleet)}, and try again when"
                    f" they are applied; to give them up, name the process: --trust-overlay {name}"
                    for name, missing in found.items()
                )
            )
        return fleet


def _described(name: str, record: PublisherRecord, missing: int | None = None) -> str:
    said = f"process {name}"
    if record.topic:
        said += f" on {record.topic}"
    if record.spool:
        said += f", with the spool {record.spool},"
    if record.gone():
        when = datetime.fromtimestamp((record.struck or record.stopped) / 1000, UTC).isoformat(timespec="seconds")
        stopped = f"stopped at {when}" if record.stopped else f"ended at {when} or before"
        if missing is not None:
            return f"{said} {stopped}, and {missing:,} of its messages are not applied"
        return f"{said} {stopped}, and may have accepted increments that are neither applied nor in the overlay"
    return f"{said} accepts increments that are not in the overlay"


def _flushers(record: PublisherRecord, fleet: Fleet) -> str:
    """What an operator does so that the messages of a stopped member are applied."""
    if any(one.topic == record.topic and not one.struck for one in fleet.flushers.values()):
        return "wait for the flushers of its topic"
    return "no flusher of its topic runs: start one"


def _end(record: PublisherRecord, fleet: Fleet) -> str:
    if record.listed:
        return f"what it accepted is applied ({_flushers(record, fleet)})"
    if record.spool and record.gone():
        return "an ingest runs on its spool file, or you say that nothing is in it (doctor --trust-overlay)"
    if record.gone():
        return "flushers have found that none of its messages are left, or you say so (doctor --trust-overlay)"
    return "it has reached the overlay, or has ended"


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


def _file_setup(settings: Settings) -> AbstractAsyncContextManager[Setup]:
    file, existing = only_file(settings), settings.existing == "yes"
    return nullcontext(SqliteSetup(file, settings.disk_reserve, elsewhere(file), existing=existing))


class _StoreSetup:
    """The store, and the record of the fleet in it, which is looked at only if the store has no FAIL."""

    def __init__(self, store: Setup, fleet: FleetSetup) -> None:
        self._store = store
        self._fleet = fleet

    async def provision(self) -> AsyncIterator[Finding]:
        async for finding in self._store.provision():
            yield finding
        async for finding in self._fleet.make():
            yield finding

    async def findings(self) -> AsyncIterator[Finding]:
        failed = False
        async for finding in self._store.findings():
            failed |= finding.mark == FAIL
            yield finding
        if not failed:
            for finding in await self._fleet.findings():
                yield finding


def _store_setup(settings: Settings) -> AbstractAsyncContextManager[Setup]:
    stored = store_of(settings, SystemClock())
    return until_closed(_StoreSetup(stored.setup, FleetSetup(stored.book, stored.store)), stored.close)


def _spool_setup(settings: Settings) -> AbstractAsyncContextManager[Setup]:
    file, existing = spool_path(settings), settings.existing == "yes"
    flaw = spool_flaw(settings)
    return nullcontext(SpoolSetup(file, settings.disk_reserve, flaw, elsewhere(file), existing=existing))


def _pubsub_setup(settings: Settings) -> AbstractAsyncContextManager[Setup]:
    there = urls.pubsub(BROKER, settings.broker)
    with needs("google", BROKER, settings.broker):
        from shared.pubsub.client import PubsubClient, PubsubPlace  # noqa: PLC0415 (the extra may be missing)
        from shared.pubsub.setup import PubsubSetup  # noqa: PLC0415
    host = os.environ.get("PUBSUB_EMULATOR_HOST", "")
    client = PubsubClient(host)
    place = PubsubPlace(*there)
    setup = PubsubSetup(client, place, lease=settings.lease, retention=settings.retention, emulator=host)
    return until_closed(setup, client.close)


def _redis_setup(settings: Settings) -> AbstractAsyncContextManager[Setup]:
    urls.redis(OVERLAY, settings.overlay)
    with needs("redis", OVERLAY, urls.shown(settings.overlay)):
        from shared.redis.server import Links, RedisSetup, Server  # noqa: PLC0415
    server = Server(settings.overlay, Links(settings.overlay))
    return until_closed(RedisSetup(server), server.close)


async def trust_overlay(settings: Settings, which: str | None = None) -> Sequence[str]:
    """Take an operator's word that everything outside the overlay has been applied; see `FleetSetup.trust`."""
    if urls.scheme_of(settings.broker) != "pubsub":
        raise SettingsError(
            f"{BROKER} is a file, which knows all pending increments: --trust-overlay is only for Pub/Sub"
        )
    stored = store_of(settings, SystemClock())
    async with until_closed(FleetSetup(stored.book, stored.store), stored.close) as fleet:
        return await fleet.trust(which)
