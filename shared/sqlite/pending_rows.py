"""The rows of pending messages: what each costs, and how they are forgotten."""

import sqlite3
from collections.abc import Sequence
from typing import Final

import orjson

from shared.model.times import Instant

QUOTE: Final = 12
"""The weight of a quotation mark, in bytes. Each string has two. So pending increments take less than 8 times this
weight in memory.
"""
ACKS_KEPT: Final = 10_000
"""Overlays that are further behind read all pending messages again."""
_FORGET: Final = (
    "DELETE FROM messages WHERE seq IN (SELECT value FROM json_each(?)) RETURNING data, attributes, increments, buried"
)


def weight_of(data: bytes, attributes: str) -> int:
    """The weight of a message in COUNTERSINK_MAX_PENDING_BYTES. Each name in it takes memory in all processes that
    answer reads, which is much more than its bytes if it is short.
    """
    return len(data) + len(attributes) + QUOTE * data.count(b'"')


def forget(db: sqlite3.Connection, numbers: Sequence[int], floor: Instant) -> None:
    """Delete messages that exist and are settled. Buried ones are no longer part of the bytes that wait."""
    seqs = orjson.dumps(numbers).decode()
    weight = increments = 0
    for data, attributes, its, buried in db.execute(_FORGET, (seqs,)):
        if buried is None:
            weight += weight_of(data, attributes)
            increments += its
    db.execute("UPDATE broker SET floor = max(floor, ?)", (floor,))
    took_off(db, weight, increments)
    _tell(db, seqs)


def took_off(db: sqlite3.Connection, weight: int, increments: int) -> None:
    """Take off what is no longer pending."""
    db.execute("UPDATE broker SET bytes = bytes - ?, increments = increments - ?", (weight, increments))


def raise_floors(db: sqlite3.Connection, counters: Sequence[str], floor: Instant) -> None:
    """Void what any process read of the counters before `floor`."""
    db.execute("UPDATE broker SET floor = max(floor, ?)", (floor,))
    _tell(db, orjson.dumps(counters).decode())


def _tell(db: sqlite3.Connection, what: str) -> None:
    """Tell the overlays of all processes which messages were deleted, or the names of counters that have changed."""
    db.execute("INSERT INTO acks (seqs) VALUES (?)", (what,))
    db.execute("DELETE FROM acks WHERE number <= (SELECT max(number) FROM acks) - ?", (ACKS_KEPT,))
