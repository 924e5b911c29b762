"""The overlay of a SQLite broker: its table of pending messages, followed in memory."""

from collections.abc import Collection, Mapping, Sequence

import orjson

from shared.codec import decode
from shared.errors import UnreadableError
from shared.overlay import Pending
from shared.sqlite.database import Database
from shared.words import Delivery, Message, View


class SqliteOverlay:
    """Sees all processes on the file. A look at an unchanged file is one call of a few microseconds."""

    exact = True

    def __init__(self, database: Database, topic: str) -> None:
        self._db = database.reader()
        self._topic = topic
        self._pending = Pending()
        self._seen: int | None = None
        self._last_message = 0
        self._last_ack: int | None = None

    async def view(self, counters: Sequence[str]) -> Mapping[str, View]:
        self._follow()
        return {counter: self._pending.view(counter) for counter in counters}

    async def names(self, prefix: str) -> Sequence[str]:
        self._follow()
        return self._pending.names(prefix)

    async def holds(self, keys: Collection[str]) -> Collection[str]:
        self._follow()
        return self._pending.holds(keys)

    def _follow(self) -> None:
        """Catch up with the file. `data_version` changes with each commit of another connection."""
        (version,) = self._db.execute("PRAGMA data_version").fetchone()
        if version == self._seen:
            return
        self._db.execute("BEGIN")
        try:
            self._catch_up()
        finally:
            self._db.execute("COMMIT")
        self._seen = version

    def _catch_up(self) -> None:
        first, last = self._db.execute("SELECT coalesce(min(number), 0), coalesce(max(number), 0) FROM acks").fetchone()
        (floor,) = self._db.execute("SELECT floor FROM broker").fetchone()
        if self._last_ack is None or self._last_ack < first - 1:
            self._pending = Pending(floor)
            self._last_message = 0
        elif last > self._last_ack:
            for (seqs,) in self._db.execute("SELECT seqs FROM acks WHERE number > ?", (self._last_ack,)):
                self._pending.remove(orjson.loads(seqs), floor)
        self._last_ack = last
        for seq, data, attributes, published in self._db.execute(
            "SELECT seq, data, attributes, published FROM messages WHERE seq > ? ORDER BY seq",
            (self._last_message,),
        ):
            self._last_message = seq
            delivery = Delivery("", Message(data, orjson.loads(attributes)), str(seq), published)
            try:
                self._pending.add(seq, decode(delivery, self._topic))
            except UnreadableError:
                continue  # the flusher buries it
