"""The receipts in a SQLite file: those in the table of this name, and `ids`. Dead receipts can be found by their
counters, too.
"""

import asyncio
import sqlite3
from collections.abc import Collection, Sequence
from itertools import islice
from typing import Final

import orjson

from shared.model.buckets import Instant, StoreMillis
from shared.model.errors import AlreadyAppliedError
from shared.model.words import Receipt
from shared.sqlite import ids

MOST_BYTES: Final = 2**22
"""Bytes of bodies in one page of dead receipts. One body may have some hundred thousand."""
SLICE: Final = 1_000
"""Receipts to look up before other tasks get a turn."""
_INSERT: Final = "INSERT INTO receipts (key, expires, state, note, time) VALUES (?, ?, ?, ?, ?)"
_EXISTS: Final = "SELECT 1 FROM receipts WHERE key IN (SELECT value FROM json_each(?)) LIMIT 1"
_WRITE: Final = "UPDATE receipts SET expires = ?, state = ?, note = ?, time = ? WHERE key = ?"
_DEAD: Final = (
    "SELECT key, expires, state, note, coalesce(body, x'') FROM receipts LEFT JOIN bodies USING (key)"
    " WHERE key = ? AND state = 'dead'"
)
_DEAD_OF: Final = "SELECT counter, dead.key FROM json_each(?) CROSS JOIN dead ON counter = value"
_FIND: Final = (
    "SELECT key, expires, state, note, coalesce(body, x'') FROM receipts LEFT JOIN bodies USING (key)"
    " WHERE key IN (SELECT value FROM json_each(?))"
)


def insert(db: sqlite3.Connection, receipts: Sequence[Receipt], time: Instant) -> None:
    """Insert the receipts. Raises `AlreadyAppliedError` if one exists."""
    small: list[Receipt] = []
    rest: list[Receipt] = []
    for receipt in receipts:
        (small if ids.takes(receipt) else rest).append(receipt)
    try:
        if ids.find(db, [one.key for one in receipts]) or _exists(db, small):
            raise AlreadyAppliedError("the receipt of an id in this commit exists")
        ids.insert(db, small)
        db.executemany(_INSERT, [(one.key, one.expires, one.state, one.note, time) for one in rest])
    except sqlite3.IntegrityError:
        raise AlreadyAppliedError("a receipt of this commit exists") from None
    for receipt in receipts:
        if receipt.body:
            _keep(db, receipt)


def revive(db: sqlite3.Connection, receipts: Sequence[Receipt], time: Instant) -> None:
    """Replace dead receipts. Raises `AlreadyAppliedError` if one does not exist as dead."""
    for receipt in receipts:
        row = db.execute(_DEAD, (receipt.key,)).fetchone()
        if row is None:
            raise AlreadyAppliedError("a receipt to be revived is not dead")
        after = receipt.over(_receipt(db, row))
        db.execute(_WRITE, (after.expires, after.state, after.note, time, after.key))
        db.execute("DELETE FROM bodies WHERE key = ?", (after.key,))
        db.execute("DELETE FROM dead WHERE key = ?", (after.key,))
        if after.body:
            _keep(db, after)


def find(db: sqlite3.Connection, keys: Collection[str]) -> dict[str, Receipt]:
    """The receipts that exist, by key."""
    if not keys:
        return {}
    rows = db.execute(_FIND, (_json(keys),)).fetchall()
    return ids.find(db, keys) | {row[0]: _receipt(db, row) for row in rows}


async def settled_among(db: sqlite3.Connection, keys: Collection[str]) -> set[str]:
    """Those of the keys whose receipts are settled. Other tasks get a turn if there are many."""
    settled: set[str] = set()
    rest = iter(keys)
    while some := list(islice(rest, SLICE)):
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
    """See `ReceiptBook.dead`."""
    found: list[Receipt] = []
    size = 0
    rows = db.execute("SELECT key, length(body) FROM bodies WHERE key > ? ORDER BY key LIMIT ?", (after, limit))
    for key, length in rows.fetchall():
        size += length
        if found and size > MOST_BYTES:
            break
        found += find(db, [key]).values()
    return found


def _exists(db: sqlite3.Connection, receipts: Sequence[Receipt]) -> bool:
    """Whether the table has one of them, for example as dead, or with a note."""
    keys = [one.key for one in receipts]
    return bool(keys) and db.execute(_EXISTS, (_json(keys),)).fetchone() is not None


def _json(keys: Collection[str]) -> str:
    return orjson.dumps(list(keys)).decode()


def _keep(db: sqlite3.Connection, receipt: Receipt) -> None:
    """Store the body, and make the receipt findable by its counters."""
    db.execute("INSERT INTO bodies (key, body) VALUES (?, ?)", (receipt.key, receipt.body))
    rows = [(receipt.key, place, counter) for place, counter in enumerate(receipt.counters)]
    db.executemany("INSERT INTO dead (key, place, counter) VALUES (?, ?, ?)", rows)


def _receipt(db: sqlite3.Connection, row: tuple[str, StoreMillis, str, bytes, bytes]) -> Receipt:
    key, expires, state, note, body = row
    names = db.execute("SELECT counter FROM dead WHERE key = ? ORDER BY place", (key,)) if body else ()
    return Receipt(key, expires, state, note, tuple([counter for (counter,) in names]), body)
