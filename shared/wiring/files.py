"""Finds the files of the settings, the database and the spool, opens them, and checks that they are the same as
before.
"""

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from shared.config import urls
from shared.config.settings import Settings
from shared.fleet import SpoolHolders
from shared.model.buckets import Instant
from shared.model.errors import SettingsError, amount
from shared.model.words import Delivery, Letter
from shared.ports.broker import DeadLetters, Subscription
from shared.runtime import metrics
from shared.runtime.clock import Clock
from shared.sqlite import schema
from shared.sqlite.backup import Copied, copy
from shared.sqlite.broker import SqliteDeadLetters, SqlitePublisher, SqliteSubscription, claim
from shared.sqlite.data_file import (
    MEMORY,
    DataFile,
    folder_elsewhere,
    mount_of,
    mounts,
    real,
    sighting_of,
    why_ephemeral,
)
from shared.sqlite.database import Database, NoFileError
from shared.sqlite.spool import SpoolRows, spooled_in

BROKER = "COUNTERSINK_BROKER"
STORE = "COUNTERSINK_STORE"
OVERLAY = "COUNTERSINK_OVERLAY"


def spool_flaw(settings: Settings) -> str | None:
    """Why the spool cannot keep anything, with what to do; None if it can, or if that is unknown."""
    folder = real(spool_path(settings)).parent
    if settings.spool_disk == "durable":
        return None
    why = "COUNTERSINK_SPOOL_DISK=ephemeral" if settings.spool_disk == "ephemeral" else why_ephemeral(folder, mounts())
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
    if urls.scheme_of(settings.broker) != "sqlite":
        raise SettingsError(
            f"{BROKER}={settings.broker!r}: must be sqlite:///FILE or pubsub://PROJECT/TOPIC?subscription=SUBSCRIPTION"
        )
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
    if mount_of(real(file).parent, mounts()).kind in MEMORY:
        return None
    return folder_elsewhere(os.environ)


def open_database(file: Path, settings: Settings, *, makes: bool, applied: bool = True) -> Database:
    """A missing file is made if `makes`, and an error otherwise. `applied`: see `Reserve`."""
    try:
        return Database(file, elsewhere(file), settings.disk_reserve, makes=makes, applied=applied)
    except NoFileError as error:
        command = "provision" if settings.existing == "yes" else "up"
        raise SettingsError(f"{error} `countersink {command}` makes a new one") from error


def data_file(file: Path) -> DataFile:
    return DataFile(file, elsewhere(file))


def check_files(settings: Settings) -> None:
    """Raise `LostFileError` if one of the files is missing, or was replaced."""
    for file in all_files(settings):
        data_file(file).recognise()


def refuse_older(settings: Settings) -> None:
    """Raise `SettingsError` if opening the file of a SQLite broker converts it."""
    if urls.scheme_of(settings.broker) != "pubsub":
        schema.refuse_older(only_file(settings))


T = TypeVar("T")


@asynccontextmanager
async def until_closed(part: T, close: Callable[[], Awaitable[None]]) -> AsyncIterator[T]:
    """Close it at the end, whatever happens."""
    try:
        yield part
    finally:
        await close()


# What to say when a setting needs packages that are not installed.


@contextmanager
def needs(extra: str, variable: str, url: str) -> Iterator[None]:
    """Import inside it what only installations with this extra have. `SettingsError` if the extra is missing."""
    try:
        yield
    except ImportError as error:
        raise SettingsError(
            f"{variable}={url!r} needs more packages: install Countersink with its extra {extra!r}"
            f" (in a checkout: make install EXTRAS={extra})"
        ) from error


# Opens the spool, for an ingest to fill, and what the spool could not send, for people to look at.


_log = logging.getLogger(__name__)

LEASE: Final = 5.0
"""Seconds for which others on the same file, and the next process, do not see what one process forwards."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A durable broker of this machine."""

    publisher: SqlitePublisher
    subscription: Subscription
    keeps: bool
    """Whether its disk outlives the process. If not, what it holds is sent, and nothing is added."""
    id: str
    """The permanent id of the file."""
    file: Database
    holders: SpoolHolders
    _topic: str

    def hold(self, member: str) -> None:
        self.holders.hold(member)

    def alive(self) -> Collection[str]:
        return self.holders.alive()

    def rows(self) -> SpoolRows:
        return SpoolRows(self.file, self._topic)

    async def close(self) -> None:
        self.holders.close()
        await self.file.close()


def open_spool(settings: Settings, clock: Clock, topic: str, *, makes: bool) -> Queue | None:
    """Open the spool; None if it is off, or if it can keep nothing and holds nothing."""
    _warn_of_what_is_left_behind(settings)
    if settings.spool == "off":
        return None
    file, flaw = spool_path(settings), spool_flaw(settings)
    if flaw is not None:
        _log.warning("%s", flaw)
        if not file.exists():
            return None
    database = open_database(file, settings, makes=makes, applied=False)
    claim(database, topic)
    buried = spooled_in(file).buried
    metrics.SPOOL_BURIED.set(buried)
    if buried:
        _log.error(
            "%s: %s can't be sent, so NOT counted: see countersink dlq list, then replay or drop them",
            file,
            amount(buried, "envelope"),
        )
    with database.reading() as db:
        spool_id = sighting_of(db).id
    return Queue(
        SqlitePublisher(database, clock, settings.spool_bytes),
        SqliteSubscription(database, clock, LEASE),
        keeps=flaw is None,
        id=spool_id,
        file=database,
        holders=SpoolHolders(database.path.parent, spool_id),
        _topic=topic,
    )


def _warn_of_what_is_left_behind(settings: Settings) -> None:
    """Log what waits in the default file, if another one is set: it was answered 202, and only an ingest that opens
    that file sends it.
    """
    file = spool_path(replace(settings, spool=""))
    if not settings.spool or file == Path(settings.spool).absolute() or not file.exists():
        return
    rows = spooled_in(file)
    if rows.waiting:
        _log.error(
            "%s: %s accepted and NOT sent, since COUNTERSINK_SPOOL=%s: run an ingest without that setting until"
            " they are sent",
            file,
            amount(rows.waiting, "envelope"),
            settings.spool,
        )


def with_spooled(settings: Settings, topic: str, letters: DeadLetters) -> DeadLetters:
    """The broker's dead letters and, if this machine has a spool, what the spool cannot send."""
    if settings.spool == "off" or not (file := spool_path(settings)).exists():
        return letters
    database = Database(file)
    claim(database, topic)
    return BothDeadLetters(SqliteDeadLetters(database), letters, database.close)


# Dead letters of two places as one list: first the spool's, then the broker's.


SPOOL: Final = "spool-"
"""Prefix of the ids of the spool's letters. Both places use numbers, which could be equal."""


class BothDeadLetters:
    """The spool's letters come first, so that you can see and replay them while the broker is away."""

    complete = False

    def __init__(self, spool: DeadLetters, broker: DeadLetters, close: Callable[[], Awaitable[None]]) -> None:
        """`close` closes the spool's file."""
        self._spool = spool
        self._broker = broker
        self._close = close

    async def pull(self, limit: int, max_bytes: int) -> Sequence[Letter]:
        if letters := await self._spool.pull(limit, max_bytes):
            return [replace(letter, delivery=_marked(letter.delivery)) for letter in letters]
        return await self._broker.pull(limit, max_bytes)

    def continue_after(self, token: str) -> None:
        """Do nothing: Pub/Sub has no order of letters."""

    async def ack(self, tokens: Sequence[str], floor: Instant) -> None:
        if spooled := [token.removeprefix(SPOOL) for token in tokens if token.startswith(SPOOL)]:
            await self._spool.ack(spooled, floor)
        if others := [token for token in tokens if not token.startswith(SPOOL)]:
            await self._broker.ack(others, floor)

    async def bury(self, delivery: Delivery, reason: str) -> None:
        if delivery.token.startswith(SPOOL):
            await self._spool.bury(replace(delivery, token=delivery.token.removeprefix(SPOOL)), reason)
        else:
            await self._broker.bury(delivery, reason)

    async def close(self) -> None:
        try:
            await self._broker.close()
        finally:
            await self._close()


def _marked(delivery: Delivery) -> Delivery:
    return replace(delivery, token=f"{SPOOL}{delivery.token}", message_id=f"{SPOOL}{delivery.message_id}")
