"""Reads what waits in a spool file: envelopes that were accepted and could not be published."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import orjson

from shared.model.envelope import Envelope
from shared.model.errors import UnreadableError
from shared.model.times import StoreMillis
from shared.model.words import Delivery, Message
from shared.sqlite.database import Database
from shared.wire.codec import decode

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
        while rows := self._all(_READ, self._read_to, self._last, PAGE):
            for seq, data, attributes, published in rows:
                delivery = Delivery("", Message(data, orjson.loads(attributes)), str(seq), published)
                try:
                    for envelope in decode(delivery, self._topic):
                        yield envelope, published
                except UnreadableError:  # a newer version wrote it
                    self._met_unreadable = True
                self._read_to = seq
            await asyncio.sleep(0)
        self.unreadable = self._met_unreadable

    async def all_forwarded(self) -> bool:
        return self._one(_FIRST, self._last + 1) > self._last

    def _one(self, query: str, *values: int) -> int:
        ((value,),) = self._all(query, *values)
        return int(value)

    def _all(self, query: str, *values: int) -> Sequence[Any]:
        with self._database.reading() as db:
            return db.execute(query, values).fetchall()
