"""A quiet process looks at its file seldom, and at once after it has written."""

import asyncio

import pytest

from shared.model.words import Message
from shared.sqlite import broker
from shared.sqlite.broker import SqlitePublisher, SqliteSubscription
from shared.sqlite.database import Database
from tests.world.manual_clock import ManualClock

MESSAGE = Message(b"{}", {})


async def test_who_waits_for_messages_looks_when_this_process_has_written(
    database: Database, publisher: SqlitePublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "QUIET", 3_600.0)
    looks: list[str] = []
    with database.reading() as db:
        db.set_trace_callback(looks.append)
    pulling = asyncio.create_task(SqliteSubscription(database, ManualClock(), 60).pull(10, 1_000, 3_600.0))
    async with asyncio.timeout(20):
        while not looks:
            await asyncio.sleep(0)
        await publisher.publish([MESSAGE])
        assert len(await pulling) == 1
    assert len(looks) == 2


async def test_soon_after_something_was_found_it_looks_often_for_what_others_write(
    database: Database, publisher: SqlitePublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("QUIET", "ALERT"):
        monkeypatch.setattr(broker, name, 3_600.0)
    subscription = SqliteSubscription(database, ManualClock(), 60)
    await publisher.publish([MESSAGE])
    assert len(await subscription.pull(10, 1_000, 0)) == 1
    pulling = asyncio.create_task(subscription.pull(10, 1_000, 3_600.0))
    other = Database(database.path)
    await SqlitePublisher(other, ManualClock(), 1_000_000).publish([MESSAGE])
    assert len(await pulling) == 1
    await other.close()


async def test_what_comes_in_quick_succession_is_found_together(
    database: Database, publisher: SqlitePublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "POLL", 3_600.0)
    subscription = SqliteSubscription(database, ManualClock(), 60)
    await publisher.publish([MESSAGE])
    assert len(await subscription.pull(10, 1_000, 0)) == 1
    pulling = asyncio.create_task(subscription.pull(10, 1_000, 3_600.0))
    for _ in range(3):
        await publisher.publish([MESSAGE])
    assert not pulling.done()
    pulling.cancel()
    assert len(await subscription.pull(10, 1_000, 0)) == 3
