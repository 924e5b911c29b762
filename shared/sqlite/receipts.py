"""The receipts in a SQLite file. Most are those of clients' ids, of which only the hash in the key is kept. Dead
receipts can be found by their counters, too.
"""

import asyncio
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from shared.model.buckets import BEGINNING, NEVER, Instant, StoreMillis
from shared.model.errors import AlreadyAppliedError
from shared.model.receipts import KEY_OF_ID, half_of_id, halves_of_ids, key_of_half, read_note
from shared.model.words import APPLIED, DEAD, Receipt, batches, pages
from shared.sqlite.database import json_of

MOST_BYTES_OF_DEAD: Final = 2**22
"""Bytes of bodies in one page of dead receipts. One body may have hundreds of thousands."""
SLICE: Final = 1_000
"""Receipts to look up before other tasks get a turn."""
_INSERT: Final = "INSERT INTO receipts (key, expires, state, note, time) VALUES (?, ?, ?, ?, ?)"
_ANY_ID: Final = "SELECT 1 FROM receipts WHERE key BETWEEN 'i' AND 'j' LIMIT 1"
_EXISTS: Final = "SELECT 1 FROM receipts WHERE key IN (SELECT value FROM json_each(?)) LIMIT 1"
_WRITE: Final = "UPDATE receipts SET expires = ?, state = ?, note = ?, time = ? WHERE key = ?"
_DEAD_OF: Final = "SELECT counter, dead.key FROM json_each(?) CROSS JOIN dead ON counter = value"
_ALL: Final = "SELECT key, expires, state, note, coalesce(body, x'') FROM receipts LEFT JOIN bodies USING (key)"
_FIND: Final = f"{_ALL} WHERE key IN (SELECT value FROM json_each(?))"  # noqa: S608 (a constant)
_FROM: Final = f"{_ALL} WHERE key >= ? AND key <= ? ORDER BY key LIMIT ?"


def insert(db: sqlite3.Connection, receipts: Sequence[Receipt], time: Instant) -> None:
    """Insert the receipts. Raises `AlreadyAppliedError` if one exists."""
    ids: dict[str, StoreMillis] = {}
    rest: list[Receipt] = []
    for receipt in receipts:
        if _is_id(receipt):
            ids[receipt.key] = receipt.expires
        else:
            rest.append(receipt)
    try:
        if _find_ids(db, [one.key for one in rest]) or _exists(db, ids) or not _insert_ids(db, ids):
            raise AlreadyAppliedError("the receipt of an id in this commit exists")
        db.executemany(_INSERT, [(one.key, one.expires, one.state, one.note, time) for one in rest])
    except sqlite3.IntegrityError:
        raise AlreadyAppliedError("a receipt of this commit exists") from None
    for receipt in rest:
        if receipt.body:
            _keep(db, receipt)


def revive(db: sqlite3.Connection, receipts: Sequence[Receipt], time: Instant) -> None:
    """Replace dead receipts. Raises `AlreadyAppliedError` if one does not exist as dead."""
    for receipt in receipts:
        before = find(db, [receipt.key]).get(receipt.key)
        if before is None or before.state != DEAD:
            raise AlreadyAppliedError("a receipt to be revived is not dead")
        after = receipt.over(before)
        db.execute(_WRITE, (after.expires, after.state, after.note, time, after.key))
        db.execute("DELETE FROM bodies WHERE key = ?", (after.key,))
        db.execute("DELETE FROM dead WHERE key = ?", (after.key,))
        if after.body:
            _keep(db, after)


def find(db: sqlite3.Connection, keys: Collection[str]) -> dict[str, Receipt]:
    if not keys:
        return {}
    rows = db.execute(_FIND, (json_of(keys),)).fetchall()
    return _find_ids(db, keys) | {row[0]: _receipt(db, row) for row in rows}


def starting(db: sqlite3.Connection, first: str, last: str, limit: int) -> Sequence[Receipt]:
    """The receipts with keys from `first` to `last`, in order. The receipts of ids are not among them."""
    return [_receipt(db, row) for row in db.execute(_FROM, (first, last, limit)).fetchall()]


async def settled_among(db: sqlite3.Connection, keys: Collection[str]) -> set[str]:
    """The keys among these whose receipts are settled. Other tasks get a turn if there are many."""
    settled: set[str] = set()
    for some in pages(keys, SLICE):
        settled.update(key for key, receipt in find(db, some).items() if receipt.settled)
        if len(some) == SLICE:
            await asyncio.sleep(0)
    return settled


def dead_of(db: sqlite3.Connection, counters: str) -> dict[str, list[Receipt]]:
    """The dead receipts whose bodies hold these counters, which are a JSON array. Most counters have none."""
    dead: dict[str, list[Receipt]] = {}
    for counter, key in db.execute(_DEAD_OF, (counters,)).fetchall():
        dead.setdefault(counter, []).extend(find(db, [key]).values())
    return dead


def dead(db: sqlite3.Connection, after: str, limit: int) -> Sequence[Receipt]:
    rows = db.execute("SELECT key, length(body) FROM bodies WHERE key > ? ORDER BY key LIMIT ?", (after, limit))
    some, _ = next(batches(rows.fetchall(), itemgetter(1), MOST_BYTES_OF_DEAD), ([], 0))
    return [receipt for key, _ in some for receipt in find(db, [key]).values()]


def _exists(db: sqlite3.Connection, keys: Collection[str]) -> bool:
    """Whether the table has one of these ids, for example as dead, or with a note. It has hardly ever any id."""
    if not keys or db.execute(_ANY_ID).fetchone() is None:
        return False
    return db.execute(_EXISTS, (json_of(keys),)).fetchone() is not None


def _keep(db: sqlite3.Connection, receipt: Receipt) -> None:
    """Store the body, and make the receipt findable by its counters."""
    db.execute("INSERT INTO bodies (key, body) VALUES (?, ?)", (receipt.key, receipt.body))
    rows = [(receipt.key, place, counter) for place, counter in enumerate(receipt.counters)]
    db.executemany("INSERT INTO dead (key, place, counter) VALUES (?, ?, ?)", rows)


def _receipt(db: sqlite3.Connection, row: tuple[str, StoreMillis, str, bytes, bytes]) -> Receipt:
    key, expires, state, note, body = row
    names = db.execute("SELECT counter FROM dead WHERE key = ? ORDER BY place", (key,)) if body else ()
    return Receipt(key, expires, state, note, tuple([counter for (counter,) in names]), body)


LOW: Final = 32
_MASK: Final = 2**LOW - 1
_CARRY: Final = (
    "INSERT INTO carried VALUES (?, ?, ?)"
    " ON CONFLICT (counter) DO UPDATE SET high = high + excluded.high, low = low + excluded.low"
)
MOST_CARRIED: Final = 2**20
"""Bytes of notes after which a sweep ends, since others wait for it: a few hundredths of a second."""


def _sweep_noted(db: sqlite3.Connection, before: StoreMillis, limit: int) -> int:
    """Delete receipts that expired before `before`, and keep their sums in `carried`. 0 stands for no expiry."""
    rows = db.execute("SELECT key, note FROM receipts WHERE expires > 0 AND expires < ? LIMIT ?", (before, limit))
    some, _ = next(batches(rows, lambda row: len(row[1]), MOST_CARRIED), ([], 0))
    rows.close()
    sums: dict[str, int] = {}
    for _, note in some:
        for counter, delta in read_note(note).sums.items():
            sums[counter] = sums.get(counter, 0) + delta
    carry(db, sums)
    db.executemany("DELETE FROM receipts WHERE key = ?", [(key,) for key, _ in some])
    return len(some)


def carry(db: sqlite3.Connection, sums: Mapping[str, int]) -> None:
    db.executemany(_CARRY, [(counter, delta >> LOW, delta & _MASK) for counter, delta in sums.items()])


def sweep(db: sqlite3.Connection, before: StoreMillis, limit: int) -> int:
    """Delete up to `limit` receipts that expired before `before`; returns how many."""
    swept = _sweep_noted(db, before, limit)
    return swept + _sweep_ids(db, before, limit - swept)


# The ids of clients that were applied: 16 bytes each, in two generations. See docs/adr/0029.
#
# New ids go to the younger generation. The elder is deleted when the last of its ids has expired; then the younger
# becomes the elder. So ids live for their lifetime at least, and at most twice as long.


_HALVES: Final = (
    "WITH RECURSIVE at (i) AS (VALUES (1) UNION ALL SELECT i + 16 FROM at WHERE i + 16 < length(:halves)),"
    " halves (half) AS (SELECT substr(:halves, i, 16) FROM at)"
)
_INSERT_IDS: Final = (
    f"INSERT OR IGNORE INTO ids (generation, half) {_HALVES} SELECT :younger, half FROM halves"  # noqa: S608 (a constant)
    " WHERE NOT EXISTS (SELECT 1 FROM ids WHERE generation = :elder AND ids.half = halves.half)"
)
_EXPIRE_IDS: Final = "UPDATE generations SET expires = max(expires, ?) WHERE number = ?"
_FIND_IDS: Final = (
    f"{_HALVES} SELECT half, expires FROM halves CROSS JOIN generations CROSS JOIN ids USING (half)"  # noqa: S608 (a constant)
    " WHERE generation = number"
)
_IDS: Final = "SELECT half, expires FROM ids JOIN generations ON number = generation WHERE generation = ? ORDER BY half"
_BOUND: Final = "SELECT half FROM ids WHERE generation = ? ORDER BY half LIMIT 1 OFFSET ?"
_DELETE_SOME: Final = "DELETE FROM ids WHERE generation = ? AND half < ?"
_DELETE_IDS: Final = "DELETE FROM ids WHERE generation = ?"


def _is_id(receipt: Receipt) -> bool:
    """Whether it is the receipt of an applied id, with nothing to say but that."""
    key, expires, state, note, *_ = receipt
    return KEY_OF_ID.fullmatch(key) is not None and state == APPLIED and expires > NEVER and not note


def _insert_ids(db: sqlite3.Connection, ids: Mapping[str, StoreMillis]) -> bool:
    """Keep these keys of ids, and when they expire. Returns False if one of them was here; then the transaction must
    not be committed.
    """
    if not ids:
        return True
    (elder,), (younger,) = db.execute("SELECT number FROM generations ORDER BY number").fetchall()
    db.execute(_EXPIRE_IDS, (max(ids.values()), younger))
    values = {"halves": halves_of_ids(sorted(ids)), "elder": elder, "younger": younger}
    return db.execute(_INSERT_IDS, values).rowcount == len(ids)


def _find_ids(db: sqlite3.Connection, keys: Iterable[str]) -> dict[str, Receipt]:
    """The receipts that exist here, by key. They expire no earlier than they say."""
    halves = {half: key for key in keys if (half := half_of_id(key)) is not None}
    rows = db.execute(_FIND_IDS, {"halves": b"".join(halves)}).fetchall() if halves else ()
    return {halves[half]: Receipt(halves[half], expires, APPLIED) for half, expires in rows}


def id_rows(db: sqlite3.Connection) -> list[Iterator[tuple[Any, ...]]]:
    """Key, expires, state, note and time of all receipts of each generation, in order, for an audit."""
    return [_rows_of(db, number) for (number,) in db.execute("SELECT number FROM generations").fetchall()]


def _rows_of(db: sqlite3.Connection, number: int) -> Iterator[tuple[Any, ...]]:
    for half, expires in db.execute(_IDS, (number,)):
        yield key_of_half(half), expires, APPLIED, b"", BEGINNING


def _sweep_ids(db: sqlite3.Connection, before: StoreMillis, limit: int) -> int:
    """Delete up to `limit` ids of the elder generation, if all of it expired before `before`; returns how many."""
    (elder, expires), (younger, used) = db.execute("SELECT number, expires FROM generations ORDER BY number").fetchall()
    if limit <= 0 or expires >= before:
        return 0
    if bound := db.execute(_BOUND, (elder, limit)).fetchone():
        return db.execute(_DELETE_SOME, (elder, *bound)).rowcount
    swept = db.execute(_DELETE_IDS, (elder,)).rowcount
    if used:
        db.execute("DELETE FROM generations WHERE number = ?", (elder,))
        db.execute("INSERT INTO generations VALUES (?, 0)", (younger + 1,))
    return swept
