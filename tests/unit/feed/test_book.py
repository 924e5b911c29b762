"""The book in a file: who tells, how often, how it stops, and what a restored file owes."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from flusher.announcer import Announcer
from shared.config.lists import feed_rules, threshold_rules
from shared.model.buckets import Millis, StoreMillis
from shared.model.errors import SettingsError
from shared.model.feed import MOST_LEVELS, NOTHING, Event, told
from shared.model.words import SHARD_FULL, Commit, Guard, Receipt, ShardAdd
from shared.receivers import EventFile
from shared.runtime.retry import Stop
from shared.sqlite.database import Database
from shared.sqlite.feed import SqliteFeedBook
from shared.sqlite.store import SqliteStore
from tests.world.manual_clock import ManualClock

TOLD = told(feed_rules("page:=10s"), threshold_rules("page:=at 1 9007199254740991"), "there")


class World:
    def __init__(self, path: Path) -> None:
        self.clock = ManualClock()
        self.database = Database(path)
        self.store = SqliteStore(self.database, self.clock)
        self.book = SqliteFeedBook(self.database, self.clock)

    async def count(self, number: int, name: str = "page:a", delta: int = 1, shard: int = 0) -> None:
        receipt = Receipt(f"{number}-{name}", StoreMillis(10**15))
        await self.store.apply(Commit((receipt,), (ShardAdd(name, shard, delta, shard + 1),)))

    async def begin(self) -> None:
        """Open the feed. Each later commit writes what it owes, and no earlier row is left."""
        assert await self.book.open(TOLD)
        while await self.book.sweep():
            pass

    async def tell(self) -> dict[str, tuple[int, int]]:
        owed = await self.book.owed(100)
        await self.book.settle([(one, Millis(10_000)) for one in owed.changes], [])
        return {one.counter: (one.value, one.at) for one in owed.changes}


def restore(path: Path, backup: Path) -> None:
    """As docs/data-file.md says."""
    for end in ("turn", "wal", "shm"):
        Path(f"{path}-{end}").unlink(missing_ok=True)
    shutil.copy(backup, path)


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[World]:
    world = World(path)
    try:
        yield world
    finally:
        await world.book.close()
        await world.database.close()


async def test_a_counter_is_told_at_once_and_then_after_its_interval(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as world:
        await world.begin()
        await world.count(1)
        await world.count(1, "other")
        assert {name: value for name, (value, _) in (await world.tell()).items()} == {"page:a": 1}
        await world.count(2)
        await world.count(3)
        world.clock.turn(9.9)
        assert (await world.tell(), world.book.waiting().events) == ({}, 1)  # the threshold
        world.clock.turn(0.2)
        assert world.book.waiting().events == 2
        assert (await world.tell())["page:a"][0] == 3
        world.clock.turn(20)
        assert await world.tell() == {}


async def test_what_is_not_taken_grows_older_until_it_is(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as world:
        await world.book.open(TOLD)
        await world.count(1)
        await world.tell()
        world.clock.turn(3_600)
        await world.count(2, delta=0)
        assert world.book.waiting() == (2, 3_600.0), "the threshold was not told"
        for pause in (60_000, 30_000):
            owed = await world.book.owed(9)
            changes = [(one, Millis(pause)) for one in owed.changes]
            reaches = [(one, Millis(pause)) for one in owed.reaches]
            assert len(changes) == len(reaches) == 1
            await world.book.put_off(changes, reaches)
            assert not any(await world.book.owed(9))
            world.clock.turn(60)
        assert world.book.waiting() == (2, 120.0)
        owed = await world.book.owed(9)
        await world.book.settle([(one, Millis(0)) for one in owed.changes], [(one, 1) for one in owed.reaches])
        assert world.book.waiting() == (0, 0.0)


async def test_what_changed_after_the_reading_stays_owed(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as world:
        await world.book.open(TOLD)
        await world.count(1)
        owed = await world.book.owed(1)
        await world.count(2)
        await world.book.settle([(one, Millis(0)) for one in owed.changes], [])
        assert (await world.tell())["page:a"][0] == 2


async def test_one_process_tells_and_others_must_have_its_settings(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as world:
        assert not await world.book.open(NOTHING)
        assert await world.book.open(TOLD)
        other = SqliteFeedBook(world.database, world.clock)
        assert not await other.open(TOLD)
        for different in (NOTHING, TOLD._replace(receiver="elsewhere")):
            with pytest.raises(SettingsError, match="COUNTERSINK_FEED"):
                await other.open(different)
        await world.book.close()
        assert await other.open(TOLD)
        assert not await other.open(NOTHING)
        await world.count(1)
        assert not (await world.book.owed(1)).changes, "nothing is owed"


async def test_a_restored_file_tells_everything_again_with_greater_sequences(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with opened(path) as world:
        await world.book.open(TOLD)
        await world.count(1)
    shutil.copy(path, tmp_path / "backup.db")
    async with opened(path) as world:
        assert await world.book.open(TOLD)
        world.clock.turn(86_400)
        await world.count(2)
        ((value, last),) = (await world.tell()).values()
        assert value == 2
    restore(path, tmp_path / "backup.db")
    async with opened(path) as world:  # whose wall clock is a day back
        await world.begin()
        ((value, first),) = (await world.tell()).values()
        assert (value, first > last) == (1, True)


async def test_totals_beyond_64_bits_are_told_and_judged(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as world:
        await world.book.open(TOLD)
        for shard in range(3):
            await world.count(shard, delta=SHARD_FULL, shard=shard)
        owed = await world.book.owed(9)
        assert [one.value for one in owed.changes] == [3 * SHARD_FULL]
        assert [one.levels.first for one in owed.reaches] == [1, 2**53 - 1]


async def test_a_deletion_that_is_owed_is_told_under_new_rules_too(tmp_path: Path) -> None:
    """No sweep finds a counter that is gone."""
    async with opened(tmp_path / "c.db") as world:
        await world.book.open(TOLD)
        await world.count(1)
        await world.tell()
        await world.count(2, delta=-1)
        guard = ("page:a", Guard(0, deleted=True))
        await world.store.apply(Commit((Receipt("deleted", StoreMillis(10**15)),), (), guard=guard))
        assert await world.store.remove("page:a")
        await world.count(3, "quota:a")
        await world.book.open(told(feed_rules("page:=1h"), (), "elsewhere"))
        assert {name: value for name, (value, _) in (await world.tell()).items()} == {"page:a": 0}


async def test_totals_beyond_64_bits_fall_again(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as world:
        for shard in range(4):
            await world.count(shard, delta=SHARD_FULL, shard=shard)
        await world.book.open(told((), threshold_rules("page:=at 100"), "there"))
        await world.count(5, delta=-5)
        for shard in range(4):
            await world.count(6 + shard, delta=-(2**53), shard=shard)
        assert not (await world.book.owed(9)).reaches


async def test_thresholds_are_told_as_far_as_the_rules_still_have_them(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as world:
        await world.book.open(told((), threshold_rules("page:=every 10,quota:=at 7 8"), "there"))
        await world.count(1, delta=2**53)
        await world.count(2, "quota:a", delta=9)
        rows = (await world.book.owed(9)).reaches
        assert [(one.counter, one.levels.last) for one in rows] == [
            ("page:a", 2**53 // 10 * 10),
            ("quota:a", 7),
            ("quota:a", 8),
        ]
        assert len(range(rows[0].levels.first, rows[0].levels.last + 1, 10)) == MOST_LEVELS
        await world.book.open(NOTHING)
        await world.book.open(told((), threshold_rules("page:=every 7,quota:=at 8"), "there"))
        assert [(one.counter, one.levels.first) for one in (await world.book.owed(9)).reaches] == [("quota:a", 8)]


class Silent:
    """Takes the connection, and never answers."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.closed = False

    async def tell(self, _: Sequence[Event]) -> Sequence[str]:
        self.asked.set()
        await asyncio.Event().wait()
        return ()

    async def close(self) -> None:
        self.closed = True


async def test_a_file_that_is_a_folder_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(tmp_path / "c.db") as world:
        await world.begin()
        await world.count(1)
        await Announcer(world.book, EventFile(tmp_path, "s"), f"{tmp_path}", TOLD).round()
    (said,) = caplog.messages
    assert said == (
        f"{tmp_path} did not take 2 events of the feed, which will be sent again: Is a directory."
        " COUNTERSINK_FEED_TO must name a file that this process can write"
    )


async def test_a_receiver_that_does_not_answer_holds_no_stop_up(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as world:
        await world.begin()
        await world.count(1)
        silent, stop = Silent(), Stop()
        reporting = asyncio.create_task(Announcer(world.book, silent, "the consumer", TOLD).run(stop))
        await silent.asked.wait()
        stop.set()
        async with asyncio.timeout(20):
            await reporting
        assert silent.closed
        assert await world.book.open(TOLD)
        assert [one.counter for one in (await world.book.owed(100)).changes] == ["page:a"]
