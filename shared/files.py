"""Which files the settings name: the database, and the spool."""

import logging
from pathlib import Path

from shared import urls
from shared.errors import SettingsError
from shared.settings import Settings
from shared.sqlite.disks import LAYERS, MEMORY, kind_of, mounts

_log = logging.getLogger(__name__)

BROKER = "COUNTERSINK_BROKER"
STORE = "COUNTERSINK_STORE"
OVERLAY = "COUNTERSINK_OVERLAY"


def spool_file(settings: Settings) -> Path | None:
    """Where, if anywhere; by default only on a disk that outlives the process."""
    if settings.spool == "off":
        return None
    file = spool_path(settings)
    if settings.spool:
        return file
    kind = kind_of(file.parent, mounts())
    if kind in MEMORY | LAYERS:
        _log.warning(
            "no spool while Pub/Sub is away: %s does not outlive this process (%s). Name a file on a volume with"
            " COUNTERSINK_SPOOL, or off",
            file.parent,
            kind,
        )
        return None
    return file


def spool_path(settings: Settings) -> Path:
    """Where it would be, whatever the disk."""
    if settings.spool:
        return Path(settings.spool)
    broker = urls.pubsub(BROKER, settings.broker)
    return Path(".countersink", f"spool-{broker.project}-{broker.topic}.db").absolute()


def only_file(settings: Settings) -> Path:
    """Of a set-up with a SQLite broker."""
    file = urls.sqlite_file(BROKER, settings.broker)
    if settings.store and urls.scheme_of(settings.store) != "sqlite":
        raise SettingsError(f"{STORE}={settings.store!r}: with a SQLite broker it must be the same file")
    store_file = urls.sqlite_file(STORE, settings.store) if settings.store else file
    if settings.overlay != "memory://":
        raise SettingsError(
            f"{OVERLAY}={urls.shown(settings.overlay)!r}: with a SQLite broker it must be memory://,"
            " since the broker's own table is the overlay"
        )
    if store_file.resolve() != file.resolve():
        raise SettingsError(
            f"{STORE}={settings.store!r}: with a SQLite broker it must be the same file, since the file"
            " knows which receipts are still needed"
        )
    return file


def missing_file(settings: Settings) -> Path | None:
    """That of the broker or the store, where it is not there: `connect` would make it."""
    if urls.scheme_of(settings.broker) != "pubsub":
        file = only_file(settings)
    elif urls.scheme_of(settings.store) == "sqlite":
        file = urls.sqlite_file(STORE, settings.store)
    else:
        return None
    return None if file.exists() else file
