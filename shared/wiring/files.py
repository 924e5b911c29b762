"""Finds the files of the settings, the database and the spool, and checks that they are the same as before."""

import os
from collections.abc import Sequence
from pathlib import Path

from shared.config import urls
from shared.config.settings import Settings
from shared.model.errors import SettingsError
from shared.sqlite import disk
from shared.sqlite.backup import Copied, copy
from shared.sqlite.data_file import DataFile, folder_elsewhere, real

BROKER = "COUNTERSINK_BROKER"
STORE = "COUNTERSINK_STORE"
OVERLAY = "COUNTERSINK_OVERLAY"


def spool_flaw(settings: Settings) -> str | None:
    """Why the spool cannot keep anything, with what to do; None if it can, or if that is unknown."""
    folder = real(spool_path(settings)).parent
    if settings.spool_disk == "durable":
        return None
    why = (
        "COUNTERSINK_SPOOL_DISK=ephemeral"
        if settings.spool_disk == "ephemeral"
        else disk.why_ephemeral(folder, disk.mounts())
    )
    if why is None:
        return None
    return (
        f"the spool is off, so clients get 503 while Pub/Sub is unavailable: {folder} does not outlive its container"
        f" or Pod ({why}). Name a file on a persistent volume with COUNTERSINK_SPOOL. If this one is persistent, set"
        " COUNTERSINK_SPOOL_DISK=durable; if you want no spool, COUNTERSINK_SPOOL=off"
    )


def spool_path(settings: Settings) -> Path:
    """Where the spool is, or would be if it were on."""
    if settings.spool:
        return Path(settings.spool)
    broker = urls.pubsub(BROKER, settings.broker)
    return Path(".countersink", f"spool-{broker.project}-{broker.topic}.db").absolute()


def backup(settings: Settings, target: Path) -> Copied:
    """Copy the SQLite file while processes use it. It blocks."""
    if urls.scheme_of(settings.broker) == "pubsub":
        raise SettingsError(f"{BROKER} is Pub/Sub: back up Datastore as docs/google-cloud-outages.md says")
    return copy(only_file(settings), target)


def only_file(settings: Settings) -> Path:
    """The file of a set-up with a SQLite broker. `SettingsError` if the store or the overlay is anywhere else."""
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


def all_files(settings: Settings) -> Sequence[Path]:
    """The database, or the spool if there is one."""
    if urls.scheme_of(settings.broker) != "pubsub":
        return [only_file(settings)]
    return [spool_path(settings)] if settings.spool != "off" else []


def elsewhere(file: Path) -> Path | None:
    """The folder that remembers the file even if its volume is lost. None for a file in memory, which is never kept."""
    if disk.mount_of(real(file).parent, disk.mounts()).kind in disk.MEMORY:
        return None
    return folder_elsewhere(os.environ)


def data_file(file: Path) -> DataFile:
    return DataFile(file, elsewhere(file))


def check_files(settings: Settings) -> None:
    """Raise `LostFileError` if one of the files is missing, or was replaced."""
    for file in all_files(settings):
        data_file(file).recognise()
