"""Which files the settings name: the database, and the spool; and whether they are those that were there before."""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from shared import urls
from shared.errors import SettingsError
from shared.settings import Settings
from shared.sqlite.disks import LAYERS, MEMORY, kind_of, mounts
from shared.sqlite.witness import Witness, folder_elsewhere

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
    if settings.spool_age > settings.retention:
        raise SettingsError(
            f"COUNTERSINK_SPOOL_AGE={settings.spool_age:g}: at most COUNTERSINK_RETENTION ({settings.retention}),"
            " since receipts live no longer"
        )
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


def data_file(settings: Settings) -> Path | None:
    """Of the broker or the store, if one of them is a file."""
    if urls.scheme_of(settings.broker) != "pubsub":
        return only_file(settings)
    if urls.scheme_of(settings.store) == "sqlite":
        return urls.sqlite_file(STORE, settings.store)
    return None


def all_files(settings: Settings) -> Sequence[Path]:
    """The data and the spool."""
    files = [file] if (file := data_file(settings)) is not None else []
    if urls.scheme_of(settings.broker) == "pubsub" and settings.spool != "off":
        files.append(spool_path(settings))
    return files


def elsewhere(file: Path, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The folder that remembers the file, though its volume may go. What is in memory is expected to go."""
    if kind_of(file.absolute().parent, mounts()) in MEMORY:
        return None
    return folder_elsewhere(environment)


def witness_of(file: Path, environment: Mapping[str, str] = os.environ) -> Witness:
    return Witness(file, elsewhere(file, environment))


def check_files(settings: Settings, environment: Mapping[str, str] = os.environ) -> None:
    """`LostFileError` if one of them is gone or another."""
    for file in all_files(settings):
        witness_of(file, environment).check()
