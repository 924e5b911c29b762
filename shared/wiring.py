"""The composition root: settings in, ports out. The one place that names adapters."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from shared.clock import Clock, SystemClock
from shared.errors import SettingsError
from shared.ports import Overlay, Publisher, Store, Subscription
from shared.settings import Settings
from shared.sqlite.broker import SqlitePublisher, SqliteSubscription, topic_of
from shared.sqlite.database import Database
from shared.sqlite.overlay import SqliteOverlay
from shared.sqlite.store import SqliteStore


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
    databases: tuple[Database, ...]

    async def close(self) -> None:
        for database in self.databases:
            await database.close()


def connect(settings: Settings) -> Parts:
    """Inside a running event loop. `SettingsError` says which setting can't be used."""
    broker_file = sqlite_file("COUNTERSINK_BROKER", settings.broker)
    store_file = sqlite_file("COUNTERSINK_STORE", settings.store) if settings.store else broker_file
    if settings.overlay != "memory://":
        raise SettingsError(
            f"COUNTERSINK_OVERLAY={settings.overlay!r}: with a SQLite broker it must be memory://,"
            " since the broker's own table is the overlay"
        )
    if store_file.resolve() != broker_file.resolve():
        raise SettingsError(
            f"COUNTERSINK_STORE={settings.store!r}: with a SQLite broker it must be the same file, since the file"
            " knows which receipts are still needed"
        )
    clock = SystemClock()
    database = Database(broker_file)
    topic = topic_of(database)
    return Parts(
        publisher=SqlitePublisher(database, clock, settings.max_pending_bytes),
        subscription=SqliteSubscription(database, clock, settings.lease),
        store=SqliteStore(database, clock),
        overlay=SqliteOverlay(database, topic),
        clock=clock,
        topic=topic,
        ages=False,
        databases=(database,),
    )


def sqlite_file(variable: str, url: str) -> Path:
    """sqlite:///relative/file or sqlite:////absolute/file."""
    parts = urlsplit(url)
    path = unquote(parts.path)[1:]
    if parts.scheme != "sqlite" or parts.netloc or not path or parts.query:
        raise SettingsError(f"{variable}={url!r}: must be sqlite:///FILE (sqlite:////FILE with an absolute path)")
    return Path(path)
