"""The sums of an audit, for each counter, on disk: there may be millions of counters.

Each sum is stored as two halves, since a total can exceed int64.
"""

import sqlite3
import weakref
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from countersink_server.commands.audit_buckets import HALF, MASK, BucketSums
from shared.model import receipt_notes
from shared.model.buckets import Followed
from shared.model.times import WallMillis
from shared.model.words import Tally
from shared.ports.audit_data import BucketShard, Config, Shard, StoredReceipt

_PAGE: Final = 500
_TABLES: Final = """
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    CREATE TABLE said (counter TEXT PRIMARY KEY, high INTEGER, low INTEGER) WITHOUT ROWID;
    CREATE TABLE held (counter TEXT PRIMARY KEY, high INTEGER, low INTEGER) WITHOUT ROWID;
    CREATE TABLE unread (counter TEXT PRIMARY KEY, high INTEGER, low INTEGER) WITHOUT ROWID;
    CREATE TABLE configs (counter TEXT PRIMARY KEY, num_shards INTEGER, since REAL) WITHOUT ROWID;
    CREATE TABLE commits (time INTEGER PRIMARY KEY);
    CREATE TABLE others (counter TEXT PRIMARY KEY) WITHOUT ROWID;
    CREATE TABLE flaws (counter TEXT PRIMARY KEY, flaw TEXT) WITHOUT ROWID;
"""
_ADD: Final = (
    "INSERT INTO {} VALUES (?, ?, ?)"
    " ON CONFLICT (counter) DO UPDATE SET high = high + excluded.high, low = low + excluded.low"
)
_LINES: Final = """
    SELECT n.counter, s.high, s.low, h.high, h.low, u.high, u.low, c.since, o.counter IS NOT NULL, f.flaw, t.said
    FROM (
        SELECT counter FROM configs UNION SELECT counter FROM said UNION SELECT counter FROM held
        UNION SELECT counter FROM torn UNION SELECT counter FROM flaws
    ) n
    LEFT JOIN said s USING (counter) LEFT JOIN held h USING (counter) LEFT JOIN unread u USING (counter)
    LEFT JOIN configs c USING (counter) LEFT JOIN others o USING (counter) LEFT JOIN flaws f USING (counter)
    LEFT JOIN torn t USING (counter)
    ORDER BY n.counter
"""


class Line(NamedTuple):
    """What the audit found for one counter."""

    counter: str
    said: int
    """The sum according to receipts, including deleted ones that are carried on."""
    held: int
    """The sum of its shards, including shards that readers do not look at."""
    unread: int
    """The sum of shards that readers do not look at."""
    since: float | None
    """See `Config.since`. None if there is no config."""
    others: bool
    """Whether another application was the last to write one of its shards."""
    flaw: str = ""
    """Why its shards can't be read; empty if they can."""
    torn: str = ""
    """Which of its counts by time do not add up; empty if all do that can be compared."""


class Ledger:
    """Collects what the store holds. Fill it in this order: receipts, configs, shards, buckets."""

    def __init__(self, names: Collection[str], written_since: int) -> None:
        """`names`: only these counters; empty means all. `written_since`: all later writes must have a receipt."""
        self.tally = Tally()
        """The sums of the tallies in all receipts."""
        self.receipts = 0
        self._names = frozenset(names)
        self._written_since = written_since
        self._db = sqlite3.connect("", isolation_level=None)  # a temporary file that SQLite deletes by itself
        self._db.executescript(_TABLES)
        self._buckets = BucketSums(self._db, self._names)
        self.close = weakref.finalize(self, self._db.close)

    def take_receipts(self, page: Sequence[StoredReceipt]) -> None:
        sums: dict[str, int] = {}
        commits = []
        for receipt, time in page:
            note = receipt_notes.read(receipt.note)
            self.tally = Tally(*[one + other for one, other in zip(self.tally, note.tally, strict=True)])
            if note.sums:
                commits.append((time,))
            for counter, delta in note.sums.items():
                if self._asked(counter):
                    sums[counter] = sums.get(counter, 0) + delta
        self.receipts += len(page)
        self._add("said", sums)
        self._db.executemany("INSERT OR IGNORE INTO commits VALUES (?)", commits)

    def take_configs(self, page: Sequence[Config]) -> None:
        asked = [config for config in page if self._asked(config.counter)]
        rows = [(config.counter, config.num_shards, config.since) for config in asked]
        self._db.executemany("INSERT OR REPLACE INTO configs VALUES (?, ?, ?)", rows)
        self._add("said", {config.counter: config.carried for config in asked})
        self._add_flaws((config.counter, config.flaw) for config in asked)

    def take_shards(self, page: Sequence[Shard]) -> None:
        held: dict[str, int] = {}
        unread: dict[str, int] = {}
        self._add_flaws((shard.counter, shard.flaw) for shard in page if self._asked(shard.counter))
        for counter, number, count, written, _ in page:
            if self._asked(counter):
                held[counter] = held.get(counter, 0) + count
                if number >= self._num_shards(counter):
                    unread[counter] = unread.get(counter, 0) + count
                if written and written >= self._written_since and not self._ours(written):
                    self._db.execute("INSERT OR IGNORE INTO others VALUES (?)", (counter,))
        self._add("held", held)
        self._add("unread", unread)

    def take_buckets(self, page: Sequence[BucketShard]) -> None:
        self._add_flaws(self._buckets.take(page))

    def compare(self, followed: Sequence[Followed], now: WallMillis) -> None:
        """Compare the counts by time with each other. `now`: the time by which they expire."""
        self._buckets.compare(followed, now)

    @property
    def compared(self) -> int:
        return self._buckets.compared

    def lines(self) -> Iterator[Line]:
        """All counters, in the order of their names' bytes."""
        rows = self._db.execute(_LINES)
        while page := rows.fetchmany(_PAGE):
            for counter, *halves, since, others, flaw, torn in page:
                said, held, unread = [
                    ((high or 0) << HALF) + (low or 0) for high, low in zip(halves[::2], halves[1::2], strict=True)
                ]
                yield Line(counter, said, held, unread, since, bool(others), flaw or "", torn or "")

    def _asked(self, counter: str) -> bool:
        return not self._names or counter in self._names

    def _num_shards(self, counter: str) -> int:
        row = self._db.execute("SELECT num_shards FROM configs WHERE counter = ?", (counter,)).fetchone()
        return row[0] if row else 0

    def _ours(self, time: int) -> bool:
        return self._db.execute("SELECT 1 FROM commits WHERE time = ?", (time,)).fetchone() is not None

    def _add_flaws(self, flaws: Iterable[tuple[str, str]]) -> None:
        """Keep the first flaw of each counter."""
        rows = [(counter, flaw) for counter, flaw in flaws if flaw]
        self._db.executemany("INSERT OR IGNORE INTO flaws VALUES (?, ?)", rows)

    def _add(self, table: str, sums: dict[str, int]) -> None:
        rows = [(counter, delta >> HALF, delta & MASK) for counter, delta in sums.items()]
        self._db.executemany(_ADD.format(table), rows)
