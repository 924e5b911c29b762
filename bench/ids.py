"""Row of the ids in a SQLite file: how much room one takes, how fast they are written, and how long a sweep holds up
others.
"""

import asyncio
import time
from pathlib import Path
from typing import Final

from bench.figures import Figure, Plan, Row
from shared.model.buckets import StoreMillis
from shared.model.receipts import key_of_envelope, key_of_increment
from shared.model.words import Commit, Receipt, ShardAdd
from shared.runtime.clock import SystemClock
from shared.sqlite.database import Database
from shared.sqlite.store import SqliteStore

AT_ONCE: Final = 500
"""Ids in a commit."""
SWEPT: Final = 2_000
"""Receipts in a step of a sweep, as a flusher does it."""
MOST: Final = 40
"""Bytes."""
EXPIRED: Final = StoreMillis(1_000)


def in_a_file(plan: Plan) -> Row:
    number = plan.many
    row = Row("ids-in-a-file", f"room of {number:,} ids in a SQLite file", "bytes each", target=MOST)
    folder = plan.folder / row.name
    folder.mkdir()
    asyncio.run(_measure(row, folder / "countersink.db", number))
    return row


async def _measure(row: Row, path: Path, number: int) -> None:
    database = Database(path)
    store = SqliteStore(database, SystemClock())
    empty = _size(database)
    begun = time.perf_counter()
    for begin in range(0, number, AT_ONCE):
        await store.apply(_commit(range(begin, min(begin + AT_ONCE, number)), EXPIRED))
    rate = number / (time.perf_counter() - begun)
    room = (_size(database) - empty) / number
    await store.sweep(StoreMillis(1), SWEPT)  # so that what comes now is not of the same generation
    await store.apply(_commit(range(number, number + AT_ONCE), StoreMillis(2 * EXPIRED)))
    steps: list[float] = []
    for _ in range(2):  # once for what only has to be noticed
        swept = 1
        while swept:
            begun = time.perf_counter()
            swept = await store.sweep(StoreMillis(EXPIRED + 1), SWEPT)
            steps.append(time.perf_counter() - begun)
    left = len((await store.receipts([key_of_increment("a", f"id-{one}") for one in range(0, number, 97)])).found)
    await database.close()
    if left:
        raise RuntimeError(f"{left} ids are left after the sweep")
    row.ours, row.met = Figure(room, room, room), room <= MOST
    row.more |= {"ids": number, "rate": rate, "sweep_seconds": sum(steps), "longest_step_ms": 1_000 * max(steps)}
    row.notes.append(
        f"{rate:,.0f} ids/s in commits of {AT_ONCE}; all deleted in {sum(steps):.1f} s, in {len(steps):,} steps of"
        f" which the longest took {1_000 * max(steps):.1f} ms; the target is a most"
    )


def _commit(numbers: range, expires: StoreMillis) -> Commit:
    envelope = Receipt(key_of_envelope(f"e-{numbers.start}"), expires, "applied", b"{}")
    ids = (Receipt(key_of_increment("a", f"id-{number}"), expires) for number in numbers)
    return Commit((envelope, *ids), (ShardAdd("a", 0, len(numbers), 1),))


def _size(database: Database) -> int:
    """Bytes of all pages, also of those that are still in the log."""
    with database.reading() as db:
        (pages,), (size,) = [db.execute(f"PRAGMA page_{what}").fetchone() for what in ("count", "size")]
    return int(pages) * int(size)
