"""Opens the store in Datastore, and what is kept beside it."""

import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from shared.config import urls
from shared.config.settings import Settings
from shared.model.errors import SettingsError
from shared.ports.fleet import FleetBook
from shared.ports.jobs import Jobs
from shared.ports.store import Store
from shared.runtime.clock import Clock, ToldClock
from shared.sqlite.database import Database
from shared.wiring.extras import needs
from shared.wiring.files import STORE, elsewhere

if TYPE_CHECKING:
    from shared.google.datastore.keys import DatastorePlace


def opener(*, makes: bool) -> Callable[[Path], Database]:
    """How files are opened. A missing file is made if `makes`, and an error otherwise."""
    return lambda file: Database(file, elsewhere(file), makes=makes)


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


def store_of(settings: Settings, clock: Clock) -> Stored:
    place = datastore_place(settings)
    with needs("google", STORE, settings.store):
        from shared.google.datastore.client import DatastoreClient  # noqa: PLC0415 (the extra may be missing)
        from shared.google.datastore.fleet import DatastoreFleetBook  # noqa: PLC0415
        from shared.google.datastore.jobs import DatastoreJobs  # noqa: PLC0415
        from shared.google.datastore.setup import obstacles  # noqa: PLC0415
        from shared.google.datastore.store import DatastoreStore  # noqa: PLC0415
        from shared.google.datastore.time import millis  # noqa: PLC0415
    client = DatastoreClient(place.project, place.database, clock, emulator())
    store = DatastoreStore(client, place, clock)
    told = ToldClock(clock, lambda: millis(client.time.bound(clock.monotonic())))
    book = DatastoreFleetBook(client, place, clock)
    jobs = DatastoreJobs(client, place, store, most_exports=settings.max_exports)
    return Stored(store, jobs, book, client.close, told, partial(obstacles, store))


def emulator() -> str:
    """Where Datastore's emulator is; empty for Google Cloud."""
    return os.environ.get("DATASTORE_EMULATOR_HOST", "")


def datastore_place(settings: Settings) -> "DatastorePlace":
    if urls.scheme_of(settings.store) != "datastore":
        raise SettingsError(
            f"{STORE}={settings.store!r}: with a Pub/Sub broker it must be datastore://PROJECT[/DATABASE]"
        )
    with needs("google", STORE, settings.store):
        from shared.google.datastore.keys import DatastorePlace, Kinds  # noqa: PLC0415 (the extra may be missing)
    there = urls.datastore(STORE, settings.store)
    kinds = Kinds(settings.kind_config, settings.kind_shard)
    return DatastorePlace(there.project, there.database, there.namespace, kinds)
