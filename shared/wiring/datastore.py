"""Opens the store in Datastore and what is kept beside it, and what `countersink import` reads."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from shared.config import urls
from shared.config.findings import Setup
from shared.config.settings import Settings
from shared.model.errors import SettingsError
from shared.model.imports import By, Source, Variant
from shared.ports.feed import FeedBook
from shared.ports.store import Arrivals, FleetBook, Jobs, Store
from shared.runtime.clock import Clock, SystemClock, ToldClock
from shared.wiring.files import STORE, needs, until_closed

if TYPE_CHECKING:
    from shared.datastore.keys import DatastorePlace


class Stored(NamedTuple):
    """A store, what is kept beside it, and how to let go of it."""

    store: Store
    jobs: Jobs
    book: FleetBook
    close: Callable[[], Awaitable[None]]
    clock: Clock
    """The store's time, as far as it is known."""
    obstacles: Callable[[], Awaitable[Sequence[str]]]
    """See `Parts.obstacles`."""
    setup: Setup
    arrivals: Arrivals
    feed: FeedBook


def store_of(settings: Settings, clock: Clock) -> Stored:
    place = datastore_place(settings)
    with needs("google", STORE, settings.store):
        from shared.datastore.buckets import DatastoreArrivals  # noqa: PLC0415 (the extra may be missing)
        from shared.datastore.client import DatastoreClient, millis  # noqa: PLC0415 (the extra may be missing)
        from shared.datastore.feed import DatastoreFeedBook  # noqa: PLC0415
        from shared.datastore.fleet import DatastoreFleetBook  # noqa: PLC0415
        from shared.datastore.jobs import DatastoreJobs  # noqa: PLC0415
        from shared.datastore.setup import DatastoreSetup, Ttl, obstacles  # noqa: PLC0415
        from shared.datastore.store import DatastoreStore  # noqa: PLC0415
    client = DatastoreClient(place, clock, emulator())
    store = DatastoreStore(client)
    kinds = [place.kinds.receipt, *([place.kinds.buckets] if settings.windows else ())]
    told = ToldClock(clock, lambda: millis(client.told()))
    return Stored(
        store=store,
        jobs=DatastoreJobs(client, most_exports=settings.max_exports),
        book=DatastoreFleetBook(client),
        close=client.close,
        clock=told,
        obstacles=partial(obstacles, store),
        setup=DatastoreSetup(client, [Ttl(place, kind) for kind in kinds], emulator=emulator()),
        arrivals=DatastoreArrivals(client),
        feed=DatastoreFeedBook(client, store, settings.lease),
    )


def emulator() -> str:
    return os.environ.get("DATASTORE_EMULATOR_HOST", "")


def datastore_place(settings: Settings) -> "DatastorePlace":
    if urls.scheme_of(settings.store) != "datastore":
        raise SettingsError(
            f"{STORE}={settings.store!r}: with a Pub/Sub broker it must be datastore://PROJECT[/DATABASE]"
        )
    with needs("google", STORE, settings.store):
        from shared.datastore.keys import DatastorePlace, Kinds  # noqa: PLC0415 (the extra may be missing)
    there = urls.datastore(STORE, settings.store)
    kinds = Kinds(settings.kind_config, settings.kind_shard)
    return DatastorePlace(there.project, there.database, there.namespace, kinds)


# Opens, by its arguments, what `countersink import` reads.


FROM: Final = "--from"


@asynccontextmanager
async def source_of(
    settings: Settings, variant: Variant, url: str, *, kind: str = "", names: Collection[str] = ()
) -> AsyncIterator[Source]:
    """Enter it inside a running event loop. `SettingsError` says which argument cannot be used."""
    there = urls.datastore(FROM, url)
    refuse_ours(settings, variant, there, variant.kinds(kind))
    with needs("google", FROM, url):
        from shared.datastore.client import DatastoreClient  # noqa: PLC0415 (the extra may be missing)
        from shared.datastore.importing import source_in  # noqa: PLC0415
        from shared.datastore.keys import DatastorePlace  # noqa: PLC0415
    place = DatastorePlace(there.project, there.database, there.namespace)
    client = DatastoreClient(place, SystemClock(), emulator())
    async with until_closed(client, client.close):
        yield source_in(client, variant, name=name_of(variant, there, kind), kind=kind, names=names)


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
