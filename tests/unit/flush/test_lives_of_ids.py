"""For how long a SQLite file knows the ids that a flusher has applied."""

from pathlib import Path

import pytest

from flusher.flush.flusher import Flusher
from flusher.flush.window import FlushPolicy
from shared.model.buckets import DAY, HOUR, Millis
from shared.model.receipts import CLIENT_IDS_REMEMBERED, Promise, key_of_increment, promised
from shared.model.words import Envelope, Increment
from shared.sqlite.broker import SqliteOverlay, SqlitePublisher, SqliteSubscription
from shared.sqlite.database import Database
from shared.sqlite.store import SqliteStore
from shared.wire.codec import encode
from tests.contracts.store import total
from tests.world.flushing import tools_of
from tests.world.manual_clock import ManualClock

HOUR_LONG, WEEK, MONTH = [promised(Millis(retention), Millis(0)) for retention in (HOUR, 7 * DAY, 30 * DAY)]


class File:
    """A flusher on a file, and a client that repeats its ids. Half an hour or an hour pass between two sweeps."""

    def __init__(self, database: Database, promise: Promise) -> None:
        self.clock = ManualClock()
        self.publisher = SqlitePublisher(database, self.clock, 10**7)
        subscription = SqliteSubscription(database, self.clock, 60)
        self.store = SqliteStore(database, self.clock)
        overlay = SqliteOverlay(database, "topic")
        tools = tools_of(self.store, subscription, overlay, self.clock, promise=promise, one_file=True)
        self.flusher = Flusher(tools, FlushPolicy(1.0, 100, 10_000, 0.0), topic="t", lease=60.0)
        self.counted = 0

    async def send(self, *ids: str) -> None:
        keyed = tuple(Increment("a", 1, one) for one in ids)
        await self.publisher.publish([encode(Envelope(f"e{self.clock.now()}{ids}", {}, {}, keyed))])

    async def flush(self) -> None:
        while await self.flusher.pull_once(0):
            await self.flusher.flush_once()

    async def count(self, *ids: str) -> int:
        """How many of them are counted."""
        await self.send(*ids)
        await self.flush()
        before, self.counted = self.counted, await total(self.store, "a")
        return self.counted - before

    async def pass_days(self, days: float) -> None:
        for _ in range(int(days * 24)):
            self.clock.turn(3_600)
            await self.flusher.sweep_once()


@pytest.mark.parametrize(("promise", "life"), [(WEEK, 8.0), (MONTH, 31.0), (HOUR_LONG, 8.0)])
async def test_an_id_is_known_for_its_life_and_at_most_for_two(
    database: Database, promise: Promise, life: float
) -> None:
    file, last = File(database, promise), "today-0"
    for day in range(int(life * 2) + 3):
        today = f"today-{day}"
        assert await file.count(today, "always" if day < life else last) == 1 + (day == 0)
        if day == int(life) - 1:
            assert await file.count("always") == 0
        await file.pass_days(1)
        if day >= 2 * life:
            key = key_of_increment("a", f"today-{day - int(2 * life)}")
            assert not (await file.store.receipts([key])).found
        last = today


async def test_an_id_that_is_sent_again_on_the_last_day_counts_once_however_long_it_waits(database: Database) -> None:
    """Nobody flushes for weeks, but somebody sweeps: the message in the file keeps the receipt."""
    file = File(database, WEEK)
    assert await file.count("one") == 1
    await file.pass_days(CLIENT_IDS_REMEMBERED / DAY)
    await file.send("one")
    await file.pass_days(40)
    await file.flush()
    assert await total(file.store, "a") == 1
    for day in range(12):
        await file.pass_days(3)
        assert await file.count(f"other-{day}") == 1
    assert await file.count("one") == 1


async def test_a_file_that_nobody_opens_for_a_year_knows_its_ids(tmp_path: Path) -> None:
    """Its own time stands still meanwhile, wherever the wall clock goes."""
    path = tmp_path / "countersink.db"
    for year in (0, 1, -2):
        database = Database(path)
        file = File(database, WEEK)
        file.clock.turn(year * 365 * 86_400.0)
        file = File(database, WEEK)
        file.counted = await total(file.store, "a")
        await file.flusher.sweep_once()
        assert await file.count("one", "two") == (0 if year else 2)
        await database.close()
