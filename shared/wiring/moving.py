"""Opens what `countersink import` reads, and both ends of `countersink copy`."""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from shared.config import urls
from shared.config.settings import Settings, promise_of
from shared.memory import ProcessOverlay
from shared.model.buckets import Millis
from shared.model.errors import SettingsError
from shared.model.jobs import EXPORT
from shared.model.moving import FIRESTORE, REDIS, VARIANTS, By, Origin, Source, Variant
from shared.moving.firestore_counter import FirestoreCounters
from shared.moving.ours import CopyFile, ExportSource, StoreOrigin, written
from shared.ports.overlay import Overlay
from shared.ports.store import Arrivals, FleetBook, Store
from shared.runtime.clock import Clock, SystemClock
from shared.sqlite.audit_data import backlog_of
from shared.sqlite.backup import copy, went_on
from shared.sqlite.broker import SqliteOverlay, topic_of
from shared.sqlite.buckets import SqliteArrivals
from shared.sqlite.database import Database
from shared.sqlite.store import SqliteStore
from shared.wiring.files import STORE, data_file, elsewhere, needs, until_closed
from shared.wiring.process import datastore_emulator, datastore_place, store_of

FORMS = ("sqlite:///FILE", "datastore://PROJECT[/DATABASE][?namespace=NS]", "FILE.ndjson")
FROM: Final = "--from"


@asynccontextmanager
async def source_of(
    settings: Settings,
    variant: str,
    url: str,
    *,
    kind: str = "",
    names: Collection[str] = (),
    match: str = "*",
    fields: Sequence[str] = (),
) -> AsyncIterator[Source]:
    """What `countersink import` reads. Enter it inside a running event loop. `SettingsError` says which argument cannot
    be used. `match`: the keys of Redis to read, as its SCAN takes it. `fields`: those of documents of Firestore that
    count.
    """
    if variant == EXPORT:
        yield ExportSource(Path(url))
        return
    source: Source
    if variant == FIRESTORE:
        place, emulator = urls.firestore(FROM, url), os.environ.get("FIRESTORE_EMULATOR_HOST", "")
        with needs("firestore", FROM, url):
            import google.auth.transport.requests  # noqa: F401, PLC0415 (the extra may be missing)
        source = counters = FirestoreCounters(place, fields, emulator)
        close = counters.close
    elif variant == REDIS:
        urls.redis(FROM, url)
        with needs("redis", FROM, urls.shown(url)):
            from shared.moving.redis_keys import RedisKeys  # noqa: PLC0415 (the extra may be missing)
        source = keys = RedisKeys(url, match)
        close = keys.close
    else:
        one, there = VARIANTS[variant], urls.datastore(FROM, url)
        refuse_ours(settings, one, there, one.kinds(kind))
        with needs("google", FROM, url):
            from shared.datastore.client import DatastoreClient  # noqa: PLC0415 (the extra may be missing)
            from shared.datastore.importing import source_in  # noqa: PLC0415
            from shared.datastore.keys import DatastorePlace  # noqa: PLC0415
        client = DatastoreClient(DatastorePlace(*there), SystemClock(), datastore_emulator())
        source = source_in(client, one, name=name_of(one, there, kind), kind=kind, names=names)
        close = client.close
    async with until_closed(source, close):
        yield source


def name_of(variant: Variant, there: urls.Datastore, kind: str) -> str:
    """The name under which marks are kept. It must be the same however the URL is spelled."""
    namespace = f"?namespace={there.namespace}" if there.namespace else ""
    kind = f" {kind or variant.shard}" if variant.renamed else ""
    return f"{variant.name} datastore://{there.project}/{there.database or '(default)'}{namespace}{kind}"


def refuse_ours(settings: Settings, variant: Variant, there: urls.Datastore, theirs: Collection[str]) -> None:
    """Refuse kinds that Countersink uses itself: they are the same data, or it would misread them."""
    if urls.scheme_of(settings.store) != "datastore" or urls.datastore(STORE, settings.store) != there:
        return
    ours = {*asdict(datastore_place(settings).kinds).values()}
    both = {one for one in ours if one in theirs or (variant.by is By.KIND and one.startswith(variant.shard))}
    if not both:
        return
    if variant.by is By.CONFIG and {settings.kind_config, settings.kind_shard} == {*theirs}:
        raise SettingsError(
            f"{FROM} and {STORE} are the same place: Countersink reads these counters and adds to them as they are,"
            " so there is nothing to import"
        )
    raise SettingsError(
        f"{STORE} is the same place, and {' and '.join(sorted(both))} of {variant.name} would also be kinds of"
        " Countersink: give Countersink a namespace of its own (?namespace=…), or other kinds"
        " (COUNTERSINK_KIND_SHARD, COUNTERSINK_KIND_CONFIG)"
    )


# Both ends of `countersink copy`.


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


def lines_of(origin: Origin, prefix: str) -> AsyncGenerator[bytes, None]:
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
