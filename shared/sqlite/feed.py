"""What is owed to the receiver of the feed, in a SQLite file. docs/adr/0037-feed.md says why nothing is missed.

A commit enters what it owes in its own transaction, by the rules that the file holds. So it does not matter which
process commits, or with which settings. One process tells: it holds a lock, which ends with it.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from shared.model.buckets import Instant, Millis, StoreMillis, WallMillis, WallSeconds, rule_of
from shared.model.errors import SettingsError
from shared.model.feed import Change, Levels, Reach, ThresholdRule, Told, bounded, told_of
from shared.model.words import Commit
from shared.ports.feed import Owed, Waiting
from shared.runtime.clock import Clock
from shared.sqlite.data_file import open_lock
from shared.sqlite.database import Database, FileTime, json_of, translated
from shared.sqlite.snapshot import totals_of

PAGE: Final = 1_000
"""Counters that one step of a sweep owes."""
MOST_COUNTED: Final = 10_000
"""What waits is counted up to here."""

# What a commit enters.


_RULES: Final = "SELECT rules FROM feed"
_OWE: Final = (
    "INSERT INTO owed (counter, changed, due) SELECT value, :time, :now FROM json_each(:names) WHERE true"
    " ON CONFLICT (counter) DO UPDATE SET changed = excluded.changed,"
    " due = CASE WHEN changed THEN due ELSE max(due, excluded.due) END"
)
_HEIGHTS: Final = "SELECT counter, generation, height FROM json_each(?) CROSS JOIN heights ON counter = value"
_REACH: Final = (
    "INSERT INTO reached (counter, generation, first, last, step, value, time, wall, due)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def enter(db: sqlite3.Connection, commit: Commit, time: Instant, now: StoreMillis, wall: WallMillis) -> None:
    """Enter what this commit owes. It has just added to the shards."""
    (text,) = db.execute(_RULES).fetchone()
    if not text or not commit.adds:
        return
    told = told_of(text)
    followed = told.prefixes()
    if followed and (names := [add.counter for add in commit.adds if add.counter.startswith(followed)]):
        db.execute(_OWE, {"names": json_of(names), "time": time, "now": now})
    judged = tuple(rule.prefix for rule in told.thresholds)
    deltas: dict[str, int] = {}
    for add in commit.adds if judged else ():
        if add.counter.startswith(judged):
            deltas[add.counter] = deltas.get(add.counter, 0) + add.delta
    if deltas:
        _judge(db, told.thresholds, deltas, commit.guard[0] if commit.guard else "", (time, wall, now))


def _judge(
    db: sqlite3.Connection,
    rules: Iterable[ThresholdRule],
    deltas: Mapping[str, int],
    changed: str,
    when: tuple[Instant, WallMillis, StoreMillis],
) -> None:
    """Enter the thresholds that these sums reached. `changed`: the counter that was set, reset or deleted."""
    names = json_of(deltas)
    heights = {counter: (generation, height) for counter, generation, height in db.execute(_HEIGHTS, (names,))}
    for counter, total in totals_of(db, names).items():
        generation = total.guard.version
        before, value = bounded(total.value - deltas[counter]), bounded(total.value)
        rule = rule_of(rules, counter)
        assert rule is not None, "it was chosen by the rules"  # noqa: S101
        its, height = heights.get(counter, (-1, 0))
        known = its == generation
        for levels in rule.reached(max(height, before) if known else before, value):
            db.execute(_REACH, (counter, generation, *levels, value, *when))
        highest = value if counter == changed else max(before, value)
        if not known or rule.reached(height, highest):  # else it tells nothing new
            db.execute("REPLACE INTO heights VALUES (?, ?, ?)", (counter, generation, highest))


# The book, which one process reads.


_BEGIN: Final = "UPDATE feed SET rules = ?, swept = ''"
_FORGET: Final = (  # not a debt that the rules still name: it may be of a deleted counter, which no sweep finds
    "DELETE FROM owed WHERE changed = 0"
    " OR NOT EXISTS (SELECT 1 FROM json_each(?) WHERE substr(counter, 1, length(value)) = value)"
)
_LATER: Final = "UPDATE store SET time = max(time, ?) + 1 RETURNING time"
_ROOM: Final = 20
"""Bytes of the note in the lock file."""
_DUE: Final = "SELECT counter FROM owed WHERE changed > 0 AND due <= ? ORDER BY due LIMIT ?"
_DUE_REACHED: Final = (
    "SELECT number, counter, generation, first, last, step, value, time, wall FROM reached WHERE due <= ?"
    " ORDER BY due, number LIMIT ?"
)
_SETTLE: Final = "UPDATE owed SET due = ?, changed = CASE WHEN changed <= ? THEN 0 ELSE changed END WHERE counter = ?"
_REST: Final = (
    "DELETE FROM owed WHERE counter IN (SELECT counter FROM owed WHERE changed = 0 AND due <= ? ORDER BY due LIMIT ?)"
)
_COUNTED: Final = (
    "SELECT count(*), min(due) FROM (SELECT due FROM owed WHERE changed > 0 AND due <= :now ORDER BY due LIMIT :most)"
    " UNION ALL SELECT count(*), min(due) FROM (SELECT due FROM reached WHERE due <= :now ORDER BY due LIMIT :most)"
)


class SqliteFeedBook:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._time = FileTime(database, clock)
        self._lock: int | None = None
        self._text = ""
        """The rules by which this process reports."""
        self._db: sqlite3.Connection | None = None
        self._failing: dict[str | int, StoreMillis] = {}
        """Since when the receiver has not taken these counters and rows."""

    async def open(self, told: Told) -> bool:
        text = told.text()
        if self._lock is not None and text == self._text:
            return bool(text)
        ((before,),) = self._database.read(_RULES)
        if not text and not before:
            return False
        if not self._locked():
            if text != before:
                raise SettingsError(
                    "COUNTERSINK_FEED: another process reports from this file by other rules, or to another receiver:"
                    " give all processes the same settings, or stop that one first"
                )
            return False
        self._note(await self._database.write(lambda db: self._begin(db, text, self._noted())))
        self._text = text
        if not text:
            await self.close()
        return bool(text)

    def _locked(self) -> bool:
        """Whether this process has the lock now."""
        if self._lock is None:
            lock = open_lock(Path(f"{self._database.path}-feed"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                return False
            self._lock = lock
        return True

    def _begin(self, db: sqlite3.Connection, text: str, noted: int | None) -> int:
        """Owe all counters if the receiver may have something else of them. Returns the time of the store then."""
        before, time = db.execute("SELECT rules, time FROM feed, store").fetchone()
        if text != before or noted is None or time < noted:
            db.execute(_BEGIN, (text,))
            told = told_of(text)
            db.execute(_FORGET, (json_of(told.prefixes()),))
            db.execute("UPDATE owed SET due = ?", (self._time.inside(db),))
            if text:
                _forget_reaches(db, told.thresholds)
        later = max(noted or 0, int(self._clock.now() * 1_000_000))
        return int(db.execute(_LATER, (later,)).fetchone()[0])

    # Beside the file stands the greatest time that may have been told. If it is more than the file's, the file was
    # restored from a backup. Then all counters are owed again, at a greater time, since a receiver keeps the greatest.
    # Without a note, as on another machine, the wall clock has to do.

    def _noted(self) -> int | None:
        assert self._lock is not None, "called with the lock"  # noqa: S101
        text = os.pread(self._lock, _ROOM, 0)
        return int(text) if text.strip().isdigit() else None

    def _note(self, time: int) -> None:
        assert self._lock is not None, "called with the lock"  # noqa: S101
        os.pwrite(self._lock, f"{time:0{_ROOM}}".encode(), 0)

    async def owed(self, limit: int) -> Owed:
        if self._db is None:
            self._db = self._database.reader()
        now, as_of = self._time.now(), self._clock.now()
        db = self._db
        with translated(self._database.path):
            db.execute("BEGIN")  # one instant: the value is that of the time
            try:
                (time,) = db.execute("SELECT time FROM store").fetchone()
                names = json_of(counter for (counter,) in db.execute(_DUE, (now, limit)))
                totals = totals_of(db, names)
                rows = db.execute(_DUE_REACHED, (now, limit)).fetchall()
            finally:
                db.execute("ROLLBACK")
        if totals:
            self._note(time)
        changes = [Change(counter, total.value, Instant(time), as_of) for counter, total in totals.items()]
        return Owed(changes, [_reach(row) for row in rows])

    async def settle(self, changes: Sequence[tuple[Change, Millis]], reaches: Sequence[tuple[Reach, int]]) -> None:
        def work(db: sqlite3.Connection) -> None:
            now = self._time.inside(db)
            db.executemany(_SETTLE, [(now + interval, one.at, one.counter) for one, interval in changes])
            for one, level in reaches:
                if level >= one.levels.last:
                    db.execute("DELETE FROM reached WHERE number = ?", (one.row,))
                else:
                    rest = level + one.levels.step
                    db.execute("UPDATE reached SET first = ? WHERE number = ?", (rest, one.row))
            db.execute(_REST, (now, 2 * PAGE))

        await self._database.write(work)
        for key in _keys(changes, reaches):
            self._failing.pop(key, None)

    async def put_off(self, changes: Sequence[tuple[Change, Millis]], reaches: Sequence[tuple[Reach, Millis]]) -> None:
        def work(db: sqlite3.Connection) -> None:
            now = self._time.inside(db)
            later = [(now + pause, one.counter) for one, pause in changes]
            db.executemany("UPDATE owed SET due = ? WHERE counter = ?", later)
            rows = [(now + pause, one.row) for one, pause in reaches]
            db.executemany("UPDATE reached SET due = ? WHERE number = ?", rows)

        now = self._time.now()
        for key in _keys(changes, reaches):
            if len(self._failing) < MOST_COUNTED:
                self._failing.setdefault(key, now)
        await self._database.write(work)

    async def sweep(self) -> bool:
        if self._database.read("SELECT swept FROM feed") == [(None,)]:
            return False
        await self._database.write(self._sweep)
        return True

    def _sweep(self, db: sqlite3.Connection) -> None:
        text, swept, time = db.execute("SELECT rules, swept, time FROM feed, store").fetchone()
        after = "SELECT counter FROM configs WHERE counter > ? ORDER BY counter LIMIT ?"
        page = [counter for (counter,) in db.execute(after, (swept, PAGE))]
        prefixes = told_of(text).prefixes()
        names = json_of(counter for counter in page if counter.startswith(prefixes))
        db.execute(_OWE, {"names": names, "time": time, "now": self._time.inside(db)})
        db.execute("UPDATE feed SET swept = ?", (page[-1] if len(page) == PAGE else None,))

    async def wait(self, seconds: float) -> None:
        await self._database.after_commit(self._database.commits, seconds)

    def waiting(self) -> Waiting:
        now = self._time.now()
        with self._database.reading() as db:
            rows = db.execute(_COUNTED, {"now": now, "most": MOST_COUNTED}).fetchall()
        since = [*[due for _, due in rows if due is not None], *self._failing.values()]
        waiting = max(sum(count for count, _ in rows), len(self._failing))
        return Waiting(waiting, (now - min(since, default=now)) / 1_000)

    async def close(self) -> None:
        """Let another process report."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _forget_reaches(db: sqlite3.Connection, rules: Iterable[ThresholdRule]) -> None:
    """Forget thresholds that are in no rule any more."""
    rows = db.execute("SELECT number, counter, first, last, step FROM reached").fetchall()
    gone = []
    for number, counter, *levels in rows:
        rule = rule_of(rules, counter)
        if rule is None or not rule.has(Levels(*levels)):
            gone.append((number,))
    db.executemany("DELETE FROM reached WHERE number = ?", gone)


def _keys(changes: Sequence[tuple[Change, Any]], reaches: Sequence[tuple[Reach, Any]]) -> list[str | int]:
    return [*[one.counter for one, _ in changes], *[one.row for one, _ in reaches]]


def _reach(row: tuple[int, str, int, int, int, int, int, int, int]) -> Reach:
    number, counter, generation, first, last, step, value, time, wall = row
    levels = Levels(first, last, step)
    return Reach(number, counter, generation, levels, value, Instant(time), WallSeconds(wall / 1_000))
