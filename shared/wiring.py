"""The composition root: settings in, ports out. The one place that names adapters."""

import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from shared import urls
from shared.clock import Clock, SystemClock
from shared.errors import SettingsError
from shared.memory.overlay import ProcessOverlay
from shared.ports import Overlay, Publisher, Store, Subscription
from shared.settings import Settings
from shared.sqlite.broker import SqlitePublisher, SqliteSubscription, topic_of
from shared.sqlite.database import Database
from shared.sqlite.overlay import SqliteOverlay
from shared.sqlite.store import SqliteStore

BROKER = "COUNTERSINK_BROKER"
STORE = "COUNTERSINK_STORE"
OVERLAY = "COUNTERSINK_OVERLAY"


@dataclass(slots=True)
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
    _ends: list[Callable[[], Awaitable[None]]] = field(default_factory=list)

    async def close(self) -> None:
        """The last that was opened first."""
        async with AsyncExitStack() as stack:
            for end in self._ends:
                stack.push_async_callback(end)


def connect(settings: Settings, environment: Mapping[str, str] = os.environ) -> Parts:
    """Inside a running event loop. Reaches no server yet. `SettingsError` says which setting can't be used."""
    if urls.scheme_of(settings.broker) == "pubsub":
        return _on_pubsub(settings, environment)
    return _embedded(settings)


def _embedded(settings: Settings) -> Parts:
    file = urls.sqlite_file(BROKER, settings.broker)
    if settings.store and urls.scheme_of(settings.store) != "sqlite":
        raise SettingsError(f"{STORE}={settings.store!r}: with a SQLite broker it must be the same file")
    store_file = urls.sqlite_file(STORE, settings.store) if settings.store else file
    if settings.overlay != "memory://":
        raise SettingsError(
            f"{OVERLAY}={settings.overlay!r}: with a SQLite broker it must be memory://,"
            " since the broker's own table is the overlay"
        )
    if store_file.resolve() != file.resolve():
        raise SettingsError(
            f"{STORE}={settings.store!r}: with a SQLite broker it must be the same file, since the file"
            " knows which receipts are still needed"
        )
    clock = SystemClock()
    database = Database(file)
    topic = topic_of(database)
    return Parts(
        publisher=SqlitePublisher(database, clock, settings.max_pending_bytes),
        subscription=SqliteSubscription(database, clock, settings.lease),
        store=SqliteStore(database, clock),
        overlay=SqliteOverlay(database, topic),
        clock=clock,
        topic=topic,
        ages=False,
        metered=False,
        where=str(database.path.absolute()),
        _ends=[database.close],
    )


def _on_pubsub(settings: Settings, environment: Mapping[str, str]) -> Parts:
    broker = urls.pubsub(BROKER, settings.broker)
    try:
        from shared.google.pubsub_client import Place, PubsubClient  # noqa: PLC0415 (the extra may be missing)
        from shared.google.pubsub_publisher import PubsubPublisher  # noqa: PLC0415
        from shared.google.pubsub_subscription import PubsubSubscription  # noqa: PLC0415
    except ImportError as error:
        raise _extra_missing(BROKER, settings.broker, "google") from error
    clock = SystemClock()
    store, end = _store(settings, clock, environment)
    client = PubsubClient(environment.get("PUBSUB_EMULATOR_HOST"))
    place = Place(broker.project, broker.topic, broker.subscription)
    subscription = PubsubSubscription(client, place, lease=settings.lease)
    return Parts(
        publisher=PubsubPublisher(client, place.topic),
        subscription=subscription,
        store=store,
        overlay=_overlay(settings, clock),
        clock=clock,
        topic=place.topic,
        ages=True,
        metered=True,
        where=f"{settings.broker} and {settings.store}",
        _ends=[end, client.close, subscription.close],
    )


def _store(
    settings: Settings, clock: Clock, environment: Mapping[str, str]
) -> tuple[Store, Callable[[], Awaitable[None]]]:
    scheme = urls.scheme_of(settings.store)
    if scheme == "sqlite":
        database = Database(urls.sqlite_file(STORE, settings.store))
        return SqliteStore(database, clock), database.close
    if scheme != "datastore":
        raise SettingsError(
            f"{STORE}={settings.store!r}: with a Pub/Sub broker it must be datastore://PROJECT[/DATABASE]"
            " or sqlite:///FILE"
        )
    there = urls.datastore(STORE, settings.store)
    try:
        from shared.google.datastore_client import DatastoreClient  # noqa: PLC0415 (the extra may be missing)
        from shared.google.datastore_keys import Kinds, Place  # noqa: PLC0415
        from shared.google.datastore_store import DatastoreStore  # noqa: PLC0415
    except ImportError as error:
        raise _extra_missing(STORE, settings.store, "google") from error
    kinds = Kinds(settings.kind_config, settings.kind_shard, settings.kind_receipt)
    place = Place(there.project, there.database, there.namespace, kinds)
    store = DatastoreStore(DatastoreClient(place.project, place.database, clock, environment), place, clock)
    return store, store.close


def _overlay(settings: Settings, clock: Clock) -> Overlay:
    if settings.overlay != "memory://":
        raise SettingsError(f"{OVERLAY}={settings.overlay!r}: must be memory://")
    return ProcessOverlay(clock)


def _extra_missing(variable: str, url: str, extra: str) -> SettingsError:
    return SettingsError(f"{variable}={url!r} needs more packages: pip install 'countersink[{extra}]'")
