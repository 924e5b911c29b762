"""Opens what `countersink import` reads outside of Datastore, and both ends of `countersink copy`."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from shared.config import urls
from shared.config.settings import Settings, promise_of
from shared.counters.origin import StoreOrigin
from shared.memory.overlay import ProcessOverlay
from shared.model.buckets import Millis
from shared.model.errors import SettingsError
from shared.model.imports import EXPORT, FIRESTORE, Source
from shared.model.moving import Origin
from shared.moving.copy_file import CopyFile, written
from shared.moving.export_file import ExportSource
from shared.moving.firestore_counter import FirestoreCounters
from shared.ports.overlay import Overlay
from shared.ports.store import Arrivals, FleetBook, Store
from shared.runtime.clock import Clock, SystemClock
from shared.sqlite.audit_data import backlog_of
from shared.sqlite.backup import copy, went_on
from shared.sqlite.broker import SqliteOverlay, topic_of
from shared.sqlite.buckets import SqliteArrivals
from shared.sqlite.database import Database
from shared.sqlite.store import SqliteStore
from shared.wiring.datastore import FROM, store_of
from shared.wiring.files import data_file, elsewhere, needs, until_closed

FORMS = ("sqlite:///FILE", "datastore://PROJECT[/DATABASE][?namespace=NS]", "FILE.ndjson")


@asynccontextmanager
async def source_of(variant: str, url: str, match: str, fields: Sequence[str]) -> AsyncIterator[Source]:
    """Enter it inside a running event loop. `SettingsError` says which argument cannot be used. `match`: the keys of
    Redis to read, as its SCAN takes it. `fields`: those of documents of Firestore that count.
    """
    if variant == EXPORT:
        yield ExportSource(Path(url))
        return
    if variant == FIRESTORE:
        place, emulator = urls.firestore(FROM, url), os.environ.get("FIRESTORE_EMULATOR_HOST", "")
        with needs("firestore", FROM, url):
            import google.auth.transport.requests  # noqa: F401, PLC0415 (the extra may be missing)
        counters = FirestoreCounters(place, fields, emulator)
        async with until_closed(counters, counters.close):
            yield counters
        return
    urls.redis(FROM, url)
    with needs("redis", FROM, urls.shown(url)):
        from shared.moving.redis_keys import RedisKeys  # noqa: PLC0415 (the extra may be missing)
    keys = RedisKeys(url, match)
    async with until_closed(keys, keys.close):
        yield keys


class End(NamedTuple):
    origin: Origin
    store: Store
    arrivals: Arrivals
    overlay: Overlay
    clock: Clock
    waits: Millis = Millis(0)
    """How long a message may wait until it is applied, if the store does not know which messages wait."""
    book: FleetBook | None = None
    """Knows the fleet, if there is one."""


def file_of(url: str) -> Path | None:
    if "://" in url:
        return None
    if not url.endswith(".ndjson"):
        raise SettingsError(f"{url!r}: must be {', '.join(FORMS[:-1])} or {FORMS[-1]}")
    return Path(url)


def origin_in(file: Path) -> Origin:
    return CopyFile(file, SystemClock())


def lines_of(origin: Origin, prefix: str) -> AsyncIterator[bytes]:
    """The lines of a file with everything that a copy takes along."""
    return written(origin, prefix, int(SystemClock().now() * 1_000))


@asynccontextmanager
async def _opened(
    file: Path, reserve: int, *, makes: bool, still: bool
) -> AsyncIterator[tuple[Database, Callable[[], bool]]]:
    """The file, and what says whether it has gone on since it was copied."""
    with ExitStack() as stack:
        copied, used = None, file
        if still:
            data_file(file).recognise()
            used = Path(stack.enter_context(TemporaryDirectory(prefix="countersink-copy-")), file.name)
            if not makes or await asyncio.to_thread(file.exists):
                copied = await asyncio.to_thread(copy, file, used)
        database = Database(used, None if still else elsewhere(file), reserve)
        async with until_closed(database, database.close):
            yield database, lambda: copied is not None and went_on(file, copied)


@asynccontextmanager
async def end_of(settings: Settings, argument: str, url: str, *, makes: bool, still: bool) -> AsyncIterator[End]:
    """Open a store. Enter it inside a running event loop. `makes`: a SQLite file may be missing. `still`: it is not
    written, whatever is done with the store, since a copy of it is opened, which is of one instant.
    """
    match urls.scheme_of(url):
        case "sqlite":
            file = urls.sqlite_file(argument, url)
            async with _opened(file, settings.disk_reserve, makes=makes, still=still) as (database, has_gone_on):
                clock = SystemClock()

                async def waiting() -> int:
                    return backlog_of(database, clock).increments

                store = SqliteStore(database, clock)
                origin = StoreOrigin(store, f"sqlite {topic_of(database)}", waiting, has_gone_on)
                overlay = SqliteOverlay(database, topic_of(database))
                yield End(origin, store, SqliteArrivals(database), overlay, clock)
        case "datastore":
            there = urls.datastore(argument, url)
            stored = store_of(replace(settings, store=url), SystemClock())

            async def unknown() -> None:
                return None

            waits = promise_of(settings).life
            kinds = f" {settings.kind_config} {settings.kind_shard}"
            name = f"datastore {there.project}/{there.database or '(default)'}/{there.namespace}{kinds}"
            origin = StoreOrigin(stored.store, name, unknown)
            here = ProcessOverlay(stored.clock)
            async with until_closed(stored, stored.close):
                yield End(origin, stored.store, stored.arrivals, here, stored.clock, waits, stored.book)
        case _:
            raise SettingsError(f"{argument}={url!r}: must be {', '.join(FORMS[:-1])} or {FORMS[-1]}")
