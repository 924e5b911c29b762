"""Opens the spool, for an ingest to fill, and what the spool could not send, for people to look at."""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from shared.config.settings import Settings
from shared.counters.dead_letters import BothDeadLetters
from shared.fleet.spool_holders import SpoolHolders
from shared.ports.broker import DeadLetters, Subscription
from shared.runtime import metrics
from shared.runtime.clock import Clock
from shared.sqlite.broker import SqlitePublisher, SqliteSubscription, claim
from shared.sqlite.data_file import sighting_of
from shared.sqlite.database import Database
from shared.sqlite.disk import Reserve
from shared.sqlite.letters import SqliteDeadLetters
from shared.sqlite.spool_counts import spooled_in
from shared.sqlite.spool_rows import SpoolRows
from shared.wiring.files import spool_flaw, spool_path

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
    spare: Callable[[], int]
    """See `Parts.spare`."""
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


def open_spool(settings: Settings, clock: Clock, topic: str, opening: Callable[[Path], Database]) -> Queue | None:
    """Open the spool; None if it is off, or if it can keep nothing and holds nothing."""
    _warn_of_what_is_left_behind(settings)
    if settings.spool == "off":
        return None
    file, flaw = spool_path(settings), spool_flaw(settings)
    if flaw is not None:
        _log.warning("%s", flaw)
        if not file.exists():
            return None
    database = opening(file)
    claim(database, topic)
    buried = spooled_in(file).buried
    metrics.SPOOL_BURIED.set(buried)
    if buried:
        _log.error(
            "%s: %d envelopes can't be sent, and are NOT counted: see countersink dlq list, then replay or drop them",
            file,
            buried,
        )
    with database.reading() as db:
        spool_id = sighting_of(db).id
    reserve = Reserve(database.path, settings.disk_reserve, applied=False)
    return Queue(
        SqlitePublisher(database, clock, settings.spool_bytes, reserve),
        SqliteSubscription(database, clock, LEASE),
        keeps=flaw is None,
        id=spool_id,
        file=database,
        holders=SpoolHolders(database.path.parent, spool_id),
        spare=reserve.spare,
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
            "%s: %d envelopes were accepted and are NOT sent, since COUNTERSINK_SPOOL=%s: start an ingest once without"
            " that setting, until they are sent",
            file,
            rows.waiting,
            settings.spool,
        )


def with_spooled(settings: Settings, topic: str, letters: DeadLetters) -> DeadLetters:
    """The broker's dead letters and, if this machine has a spool, what the spool cannot send."""
    if settings.spool == "off" or not (file := spool_path(settings)).exists():
        return letters
    database = Database(file)
    claim(database, topic)
    return BothDeadLetters(SqliteDeadLetters(database), letters, database.close)
