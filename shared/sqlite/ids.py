"""The ids of clients that were applied, in a SQLite file: half a hash each, in two generations. See docs/adr/0029.

New ids go to the younger generation. The elder is deleted when the last of its ids has expired; then the younger
becomes the elder. So ids live for their lifetime at least, and at most twice as long.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from shared.model.buckets import BEGINNING, StoreMillis
from shared.model.receipts import half_of_id, key_of_half
from shared.model.words import APPLIED, Receipt

_YOUNGER: Final = "SELECT max(number) FROM generations"
_INSERT: Final = "INSERT INTO ids (generation, half) VALUES (?, ?)"
_EXPIRE: Final = "UPDATE generations SET expires = max(expires, ?) WHERE number = ?"
_FIND: Final = (
    "WITH RECURSIVE at (i) AS (VALUES (1) UNION ALL SELECT i + 16 FROM at WHERE i + 16 < length(:halves))"
    " SELECT half, expires FROM at CROSS JOIN generations CROSS JOIN ids"
    " ON generation = number AND half = substr(:halves, i, 16)"
)
_ROWS: Final = (
    "SELECT half, expires FROM ids JOIN generations ON number = generation WHERE generation = ? ORDER BY half"
)
_BOUND: Final = "SELECT half FROM ids WHERE generation = ? ORDER BY half LIMIT 1 OFFSET ?"
_DELETE: Final = "DELETE FROM ids WHERE generation = ? AND half < ?"
_DELETE_REST: Final = "DELETE FROM ids WHERE generation = ?"


def takes(receipt: Receipt) -> bool:
    """Whether it is a receipt to keep here: of an applied id, with nothing to say but that."""
    return bool(
        receipt.state == APPLIED and receipt.expires and not receipt.note and half_of_id(receipt.key) is not None
    )


def insert(db: sqlite3.Connection, receipts: Sequence[Receipt]) -> None:
    """Keep receipts that are new. Two ids of equal halves take one row."""
    if receipts:
        (younger,) = db.execute(_YOUNGER).fetchone()
        halves = {half for one in receipts if (half := half_of_id(one.key)) is not None}
        db.executemany(_INSERT, [(younger, half) for half in sorted(halves)])
        db.execute(_EXPIRE, (max(one.expires for one in receipts), younger))


def find(db: sqlite3.Connection, keys: Iterable[str]) -> dict[str, Receipt]:
    """The receipts that exist here, by key. They expire no earlier than they say."""
    halves = {half: key for key in keys if (half := half_of_id(key)) is not None}
    rows = db.execute(_FIND, {"halves": b"".join(halves)}).fetchall() if halves else ()
    return {halves[half]: Receipt(halves[half], expires, APPLIED) for half, expires in rows}


def rows(db: sqlite3.Connection) -> list[Iterator[tuple[Any, ...]]]:
    """Key, expires, state, note and time of all receipts of each generation, in order, for an audit."""
    return [_rows(db, number) for (number,) in db.execute("SELECT number FROM generations").fetchall()]


def _rows(db: sqlite3.Connection, number: int) -> Iterator[tuple[Any, ...]]:
    for half, expires in db.execute(_ROWS, (number,)):
        yield key_of_half(half), expires, APPLIED, b"", BEGINNING


def sweep(db: sqlite3.Connection, before: StoreMillis, limit: int) -> int:
    """Delete up to `limit` ids of the elder generation, if all of it expired before `before`; returns how many."""
    (elder, expires), (younger, used) = db.execute("SELECT number, expires FROM generations ORDER BY number").fetchall()
    if limit <= 0 or expires >= before:
        return 0
    if bound := db.execute(_BOUND, (elder, limit)).fetchone():
        return db.execute(_DELETE, (elder, *bound)).rowcount
    swept = db.execute(_DELETE_REST, (elder,)).rowcount
    if used:
        db.execute("DELETE FROM generations WHERE number = ?", (elder,))
        db.execute("INSERT INTO generations VALUES (?, 0)", (younger + 1,))
    return swept
