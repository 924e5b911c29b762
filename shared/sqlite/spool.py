"""What waits in a spool file, or can never be sent; and whether the file is fit."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, NamedTuple

from shared.config.findings import FAIL, OK, WARN, Finding
from shared.model.buckets import BrokerMillis, StoreMillis
from shared.model.errors import UnreadableError, amount
from shared.model.words import Envelope
from shared.sqlite.broker import delivery_of
from shared.sqlite.data_file import opened
from shared.sqlite.database import Database
from shared.sqlite.setup import SqliteSetup
from shared.wire.codec import decode

# Reads what waits in a spool file: envelopes that were accepted and could not be published.


_READ: Final = "SELECT seq, data, attributes, published FROM messages WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?"
PAGE: Final = 100
"""Rows to read before other tasks get a turn."""
_LAST: Final = "SELECT coalesce(max(seq), 0) FROM messages"
_FIRST: Final = "SELECT coalesce(min(seq), ?) FROM messages"


class SpoolRows:
    """The rows that are there when this object is made."""

    def __init__(self, database: Database, topic: str) -> None:
        self._database = database
        self._topic = topic
        self._last = self._one(_LAST)
        self._read_to = 0
        self._met_unreadable = False
        self.unreadable: bool | None = None

    async def read(self) -> AsyncIterator[tuple[Envelope, StoreMillis]]:
        while rows := self._database.read(_READ, self._read_to, self._last, PAGE):
            for seq, data, attributes, published in rows:
                try:
                    for envelope in decode(delivery_of(seq, data, attributes, published), self._topic):
                        yield envelope, published
                except UnreadableError:  # a newer version wrote it
                    self._met_unreadable = True
                self._read_to = seq
            await asyncio.sleep(0)
        self.unreadable = self._met_unreadable

    async def all_forwarded(self) -> bool:
        return self._one(_FIRST, self._last + 1) > self._last

    def _one(self, query: str, *values: int) -> int:
        ((value,),) = self._database.read(query, *values)
        return int(value)


# Counts the rows of a spool file: those that wait, and those that can never be sent.


_COUNT: Final = (
    "SELECT count(*) FILTER (WHERE buried IS NULL), min(published) FILTER (WHERE buried IS NULL), count(buried)"
    " FROM messages"
)


class Spooled(NamedTuple):
    waiting: int
    oldest: BrokerMillis | None
    """When the oldest waiting row was spooled."""
    buried: int
    """Too large to be sent, or too old: `countersink dlq` shows them."""


def spooled_in(path: Path) -> Spooled:
    """The numbers of an existing file, which is not changed."""
    with opened(path, "rw") as db:
        return Spooled(*db.execute(_COUNT).fetchone())


PART: Final = "spool"


class SpoolSetup(SqliteSetup):
    """Checks one spool file. `flaw`: why nothing can be kept there."""

    def __init__(
        self, path: Path, reserve: int, flaw: str | None, elsewhere: Path | None = None, *, existing: bool = False
    ) -> None:
        super().__init__(path, reserve, elsewhere, part=PART, existing=existing)
        self._flaw = flaw

    async def findings(self) -> AsyncIterator[Finding]:
        if self._flaw is not None:
            yield Finding(WARN, PART, self._flaw)
        async for finding in super().findings():
            yield finding
        if self._path.exists():
            for finding in await asyncio.to_thread(self._rows):
                yield finding

    def _rows(self) -> list[Finding]:
        try:
            rows = spooled_in(self._path)
        except sqlite3.Error as error:
            return [Finding(FAIL, PART, f"{self._path}: its envelopes can't be read ({error})")]
        found = []
        if rows.oldest is not None:
            age = max(time.time() - rows.oldest / 1000, 0.0)
            said = f"{amount(rows.waiting, 'envelope')} for Pub/Sub, up to {age:.0f} s old: start an ingest with this"
            found.append(Finding(WARN, PART, f"{self._path}: {said} spool; if one runs, its log says why they wait"))
        if rows.buried:
            said = f"not sent, and not counted: {amount(rows.buried, 'envelope')}. countersink dlq list shows them"
            found.append(Finding(FAIL, PART, f"{self._path}: {said}"))
        return found or [Finding(OK, PART, f"{self._path}: nothing waits in it")]
