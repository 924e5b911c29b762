"""Messages of a newer version are left to newer processes, and delay nothing else."""

import asyncio
import logging
from collections.abc import Mapping

import pytest

from flusher.dead_letters.letters import open_letter
from flusher.flush.flusher import LEFT_FOR
from shared.model.buckets import BrokerMillis, Instant
from shared.model.errors import NewerError, TransientError, UnreadableError
from shared.model.words import Delivery, Envelope, Letter, Message
from shared.runtime.clock import SystemClock
from shared.runtime.metrics import NEWER
from shared.sqlite.broker import SqliteOverlay, SqlitePublisher, SqliteSubscription, topic_of
from shared.sqlite.database import Database
from shared.wire.codec import TYPE, decode, encode, increments_of
from tests.http.faults import failing
from tests.world.flushing import Bench, running

V2 = {"ce-id": "e2", "ce-source": "countersink", "ce-type": "countersink.envelope.v2"}
NEW = Message(b'{"counter":"a","delta":5}', V2)
NOBODY = 60.0


def newer() -> float:
    return float(NEWER.get())


@pytest.mark.parametrize(
    "attributes",
    [
        V2, V2 | {"ce-source": "another"}, V2 | {"ce-type": "something else"},
        {"ce-source": "countersink", "ce-id": "1"}, {"ce-type": "countersink.something"},
    ],
)  # fmt: skip
@pytest.mark.parametrize("data", [b'{"counter":"a"}', b"", b"\xff not even JSON"])
def test_what_is_ours_and_not_known_is_neither_foreign_nor_rubbish(attributes: Mapping[str, str], data: bytes) -> None:
    message = Message(data, attributes)
    with pytest.raises(NewerError, match="run that version, too"):
        decode(Delivery("t", message, "1", BrokerMillis(1)), "topic")
    assert increments_of(message) == 0


def test_what_others_publish_and_what_is_ours_is_read_as_before() -> None:
    for attributes in ({}, {"ce-source": "theirs", "ce-id": "1", "ce-type": "org.example"}, {"ce-type": ""}):
        assert decode(Delivery("t", Message(b'{"counter":"a"}', attributes), "1", BrokerMillis(1)), "topic")[0].foreign
    assert not decode(Delivery("t", encode(Envelope("e", {"a": 1}, {})), "1", BrokerMillis(1)), "topic")[0].foreign
    with pytest.raises(UnreadableError):
        decode(Delivery("t", Message(b"rubbish", {"ce-type": TYPE}), "1", BrokerMillis(1)), "topic")


async def test_it_is_neither_counted_nor_buried_nor_acknowledged(caplog: pytest.LogCaptureFixture) -> None:
    bench, before = Bench(), newer()
    await bench.broker.publish([NEW, NEW])
    await bench.flush(Envelope("e1", {"a": 1}, {}))
    assert await bench.total() == 1
    assert (bench.broker.buried(), bench.broker.unburied()) == ({}, 2)
    assert newer() == before + 2
    (said,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "countersink.envelope.v2" in said.getMessage()


async def test_it_comes_again_after_a_pause(caplog: pytest.LogCaptureFixture) -> None:
    """To any flusher, so that a newer one has its turn; and the log stays short."""
    bench = Bench()
    await bench.broker.publish([NEW])
    pauses, at = [], bench.clock.monotonic()
    for _ in range(4):
        while not await bench.flusher.pull_once(0):
            bench.clock.turn(1)
        pauses.append(bench.clock.monotonic() - at)
        at = bench.clock.monotonic()
    assert pauses == [0, LEFT_FOR, LEFT_FOR, LEFT_FOR]
    assert len(caplog.records) <= 1 + sum(pauses) / LEFT_FOR


async def test_any_number_of_them_leaves_room_for_others() -> None:
    """They are more than a window holds."""
    bench = Bench()
    large = Message(NEW.data + b" " * 1_000, V2)
    await bench.broker.publish([large] * 60)
    await bench.publish(Envelope("e1", {"a": 1}, {}))
    async with running(bench.flusher.run):
        while await bench.total() != 1:
            bench.clock.turn(0.5)
            await asyncio.sleep(0.001)


async def test_it_is_not_applied_so_it_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """The age of what is held is what others conclude from that nothing older is unapplied."""
    bench, told = Bench(), list[int | None]()
    see = bench.flusher._see_oldest
    monkeypatch.setattr(bench.flusher, "_see_oldest", lambda pulled: told.append(see(pulled)))
    first = int(bench.clock.now() * 1000)
    await bench.broker.publish([NEW, NEW])
    await bench.flusher.pull_once(0)
    bench.clock.turn(LEFT_FOR - 1)
    await bench.flusher.pull_once(0)
    bench.clock.turn(2)
    for held in bench.broker._messages.values():
        held.until = bench.clock.now() + NOBODY  # another has them
    await bench.flusher.pull_once(0)
    assert told == [first, first, None]


async def test_a_broker_that_is_away_meanwhile_is_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    await bench.broker.publish([NEW])
    monkeypatch.setattr(bench.broker, "extend", failing(TransientError("away")))
    assert await bench.flusher.pull_once(0) == 1
    bench.clock.turn(61)
    assert await bench.flusher.pull_once(0) == 1


async def test_readings_of_a_file_are_not_exact_while_one_waits(database: Database) -> None:
    """It may add to any counter."""
    publisher = SqlitePublisher(database, SystemClock(), 10**6)
    broker = SqliteSubscription(database, SystemClock(), 60.0)
    overlays = [SqliteOverlay(database, topic_of(database)) for _ in range(2)]
    assert [(await one.view(["b"]))["b"].exact for one in overlays] == [True, True]
    await publisher.publish([encode(Envelope("e", {"b": 1}, {})), NEW])
    assert [(await one.view(["b", "c"]))[name].exact for one in overlays for name in "bc"] == [False] * 4
    held = await broker.pull(10, 10**6, 0)
    await broker.ack([one.token for one in held if one.message.attributes == V2], Instant(3))
    overlays.append(SqliteOverlay(database, topic_of(database)))
    assert [(await one.view(["b", "c"]))[name].exact for one in overlays for name in "bc"] == [True] * 6


async def test_a_spool_forwards_what_it_does_not_know(database: Database) -> None:
    from ingest.accept.spool import Spool  # noqa: PLC0415 (nothing else here is of ingest)

    clock = SystemClock()
    queue = SqlitePublisher(database, clock, 10**6)
    await queue.publish([NEW])
    bench = Bench()
    spool = Spool(bench.broker, queue, SqliteSubscription(database, clock, 60.0), clock, 60.0)
    assert await spool.forward_once() == 1
    (one,) = await bench.broker.pull(1, 10**6, 0)
    assert (one.message.data, one.message.attributes) == (NEW.data, V2)


def test_a_dead_letter_of_it_is_left() -> None:
    opened = open_letter(Letter(Delivery("t", NEW, "1", BrokerMillis(1)), "why"), "topic")
    assert opened.envelopes == ()
    assert "countersink.envelope.v2" in (opened.flaw or "")
