"""The dead letters in a SQLite file: messages that are marked as buried."""

import sqlite3
from collections.abc import Sequence
from typing import Final

import orjson

from shared.model.times import Instant
from shared.model.words import Delivery, Letter, Message
from shared.sqlite.database import Database
from shared.sqlite.pending_rows import forget

_THERE: Final = "SELECT seq FROM messages WHERE buried IS NOT NULL AND seq IN (SELECT value FROM json_each(?))"
_NEXT: Final = (
    "SELECT seq, data, attributes, published, buried FROM messages"
    " WHERE buried IS NOT NULL AND seq > ? ORDER BY seq LIMIT ?"
)


class SqliteDeadLetters:
    """One pass through the dead letters. They have no leases; a token is the number of the message."""

    complete = True

    def __init__(self, database: Database) -> None:
        self._database = database
        self._last = 0

    async def pull(self, limit: int, max_bytes: int) -> Sequence[Letter]:
        letters: list[Letter] = []
        with self._database.reading() as db:
            for seq, data, attributes, published, reason in db.execute(_NEXT, (self._last, limit)):
                max_bytes -= len(data)
                if max_bytes < 0 and letters:
                    break
                self._last = seq
                message = Message(data, orjson.loads(attributes))
                letters.append(Letter(Delivery(str(seq), message, str(seq), published), reason))
        return letters

    def continue_after(self, token: str) -> None:
        self._last = int(token)

    async def ack(self, tokens: Sequence[str], floor: Instant) -> None:
        """Delete the letters and their overlay entries in one transaction, like the ack of a pending message."""
        wanted = orjson.dumps([int(token) for token in tokens]).decode()

        def work(db: sqlite3.Connection) -> None:
            if done := [seq for (seq,) in db.execute(_THERE, (wanted,))]:
                forget(db, done, floor)

        await self._database.write(work)

    async def bury(self, delivery: Delivery, reason: str) -> None:
        row = (reason, int(delivery.token))
        await self._database.write(
            lambda db: db.execute("UPDATE messages SET buried = ? WHERE seq = ? AND buried IS NOT NULL", row).rowcount
        )

    async def close(self) -> None:
        """Do nothing, since nothing is leased."""
