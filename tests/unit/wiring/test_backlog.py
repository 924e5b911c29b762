"""How much waits to be applied, and for how long: of a file, and of each overlay that a process keeps."""

import pytest

from shared.memory import ProcessOverlay
from shared.model.buckets import BEGINNING, Instant, Monotonic, StoreMillis
from shared.model.receipts import key_of_envelope
from shared.model.words import Backlog, Envelope, Increment
from shared.redis.own_entries import Copy
from shared.sqlite.audit_data import backlog_of
from shared.sqlite.broker import SqlitePublisher, SqliteSubscription
from shared.sqlite.database import Database
from shared.wire.codec import encode
from tests.world.manual_clock import ManualClock

ROOM = 10**7
LARGE = 10**6
THREE = Envelope("e1", {"a": 7}, {"a": 2}, (Increment("b", 1, "x"),), 1)
ONE = Envelope("e2", {"a": 1}, {}, (), 1)


async def test_of_a_file_it_is_what_no_flusher_has_acknowledged_or_buried(database: Database) -> None:
    clock = ManualClock()
    publisher, subscription = SqlitePublisher(database, clock, ROOM), SqliteSubscription(database, clock, 60)
    assert backlog_of(database, clock) == Backlog()
    for envelope in (THREE, ONE, Envelope("e3", {"a": 1}, {}, (), 1)):
        await publisher.publish([encode(envelope)])
        clock.turn(10)
    assert backlog_of(database, clock) == Backlog(5, 30)
    first, second = await subscription.pull(2, LARGE, 0)
    assert backlog_of(database, clock) == Backlog(5, 30), "a flusher has them, and has not applied them"
    await subscription.ack([second.token], BEGINNING)
    assert backlog_of(database, clock) == Backlog(4, 30)
    await subscription.bury(first, "no")
    assert backlog_of(database, clock) == Backlog(1, 10), "a buried one waits for people"
    (third,) = await subscription.pull(2, LARGE, 0)
    await subscription.give_back([third.token])
    assert backlog_of(database, clock) == Backlog(1, 10)
    (third,) = await subscription.pull(2, LARGE, 0)
    await subscription.ack([third.token], BEGINNING)
    assert backlog_of(database, clock) == Backlog()


async def test_of_a_process_it_is_what_it_published_and_nobody_settled() -> None:
    clock = ManualClock()
    overlay = ProcessOverlay(clock)
    assert overlay.backlog() == Backlog()
    async with overlay.entered([THREE]):
        clock.turn(5)
    async with overlay.entered([ONE]):
        clock.turn(1)
    with pytest.raises(ValueError, match="not published"):
        async with overlay.entered([Envelope("e3", {"a": 1}, {}, (), 1)]):
            raise ValueError("not published")
    assert overlay.backlog() == Backlog(4, 6)
    await overlay.settle([THREE.key], Instant(1))
    assert overlay.backlog() == Backlog(1, 1)
    await overlay.settle([ONE.key], Instant(1))
    assert overlay.backlog() == Backlog()


def test_of_a_process_with_redis_it_is_the_same() -> None:
    copy = Copy(100)
    now = Monotonic(10.0)
    assert copy.backlog(now) == Backlog()
    copy.add([THREE], Monotonic(3.0), StoreMillis(0))
    copy.add([ONE], Monotonic(8.0), StoreMillis(0))
    assert copy.backlog(now) == Backlog(4, 7)
    copy.settle([key_of_envelope("e1")], Instant(7))
    assert copy.backlog(now) == Backlog(1, 2)
