"""The spool takes what the broker can't, and forwards it in order."""

import contextlib
from collections.abc import Sequence

import pytest

from ingest.accept.publishing import LONGEST_PUBLISH
from ingest.accept.spool import LONGEST_FORWARD, MOST_IN_VAIN_FORWARDED, PAUSE, TOO_OLD, Spool
from shared.model.buckets import BEGINNING, StoreMillis
from shared.model.errors import (
    BrokerRejectedError,
    DoubtfulError,
    OverloadedError,
    StoodStillError,
    StorageFullError,
    TooLargeError,
    TransientError,
    UnkeptError,
)
from shared.model.words import Message
from shared.ports.broker import Check, at_any_time
from shared.runtime.clock import deadline
from tests.http.faults import failing
from tests.world.manual_clock import ManualClock
from tests.world.memory.broker import MemoryBroker

AGE = 3_600.0


class Broker(MemoryBroker):
    """Can be away, and then may have taken what it was told all the same."""

    away = False
    takes_anyway = False
    refuses = b"nothing"
    """Messages that begin like this."""
    too_large: bytes | None = None
    full = False
    unkept = False
    most = 1_000
    """Messages of one request."""

    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
        if self.full:
            raise OverloadedError("too much in flight")
        if self.unkept:
            raise UnkeptError("nobody keeps it")
        if any(message.data == self.too_large for message in messages):
            raise TooLargeError("never")
        if any(message.data.startswith(self.refuses) for message in messages):
            raise BrokerRejectedError("not now")
        if (self.away and not self.takes_anyway) or len(messages) > self.most:
            raise TransientError("away")
        await super().publish(messages, check)
        if self.away:
            raise TransientError("no answer")

    async def check(self) -> None:
        if self.away:
            raise TransientError("away")


class Scene:
    """A broker, a queue on this machine, and the spool between them, which has found the queue empty."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.broker = Broker(self.clock)
        self.queue = MemoryBroker(self.clock, lease=30.0)
        self.asked, self.store_away = 0, False
        self.spool = self.started()

    def started(self) -> Spool:
        return Spool(self.broker, self.queue, self.queue, self.clock, AGE)

    def judging(self, broker: Broker | None = None) -> Spool:
        """A spool that asks the store how old what it forwards may be."""

        async def oldest() -> StoreMillis:
            self.asked += 1
            if self.store_away:
                raise TransientError("the store is away")
            return StoreMillis(int((self.clock.now() - AGE) * 1000))

        return Spool(broker or self.broker, self.queue, self.queue, self.clock, AGE, oldest=oldest)

    async def publish(self, *texts: bytes) -> None:
        await self.spool.publish([Message(text) for text in texts])

    async def spooled(self, *texts: bytes) -> None:
        """One by one, while the broker is away; then it is back."""
        self.broker.away = True
        for text in texts:
            await self.publish(text)
        self.broker.away = False

    async def arrived(self) -> list[bytes]:
        deliveries = await self.broker.pull(100, 10**6, 0)
        await self.broker.ack([delivery.token for delivery in deliveries], BEGINNING)
        return [delivery.message.data for delivery in deliveries]


@pytest.fixture
async def scene() -> Scene:
    scene = Scene()
    assert await scene.spool.forward_once() == 0
    return scene


async def test_while_it_is_away_all_is_taken_and_goes_in_order_when_it_is_back(scene: Scene) -> None:
    """While it is there, nothing is spooled."""
    await scene.publish(b"a", b"b")
    assert await scene.arrived() == [b"a", b"b"]
    assert scene.queue.unburied() == 0
    scene.broker.away = True
    for text in (b"1", b"2", b"3"):
        await scene.spool.check()
        await scene.publish(text)
    await scene.spool.check()
    for _ in range(3):
        with pytest.raises(TransientError):
            await scene.spool.forward_once()
    scene.broker.away = False
    await scene.publish(b"4")
    assert await scene.arrived() == [], "it must not overtake"
    assert [await scene.spool.forward_once() for _ in range(4)] == [1, 2, 1, 0], "a small step first"
    assert await scene.arrived() == [b"1", b"2", b"3", b"4"]
    await scene.publish(b"5")
    assert await scene.arrived() == [b"5"]
    assert scene.queue.unburied() == 0


async def test_what_may_have_been_published_is_spooled_too(scene: Scene) -> None:
    """Twice in the broker under one id counts once; nowhere would be lost."""
    scene.broker.away = scene.broker.takes_anyway = True
    await scene.publish(b"1")
    scene.broker.away = False
    assert await scene.spool.forward_once() == 1
    assert await scene.arrived() == [b"1", b"1"]


async def test_what_an_earlier_life_left_goes_first(scene: Scene) -> None:
    await scene.spooled(b"1")
    scene.spool = scene.started()
    await scene.publish(b"2")
    assert await scene.spool.forward_once() == 2
    assert await scene.arrived() == [b"1", b"2"]


async def test_what_is_too_much_at_once_goes_in_smaller_steps(scene: Scene) -> None:
    """A proxy on the way takes small requests alone, and answers others as if the broker were away."""
    texts = [b"%d" % number for number in range(9)]
    await scene.spooled(*texts)
    scene.broker.most = 2
    for _ in range(2):
        with pytest.raises(TransientError):
            await scene.spool.forward_once()
    steps = 0
    while scene.queue.unburied():
        with contextlib.suppress(TransientError):
            await scene.spool.forward_once()
        steps += 1
        assert steps < 30
    assert sorted(await scene.arrived()) == texts


async def test_overload_is_not_spooled(scene: Scene) -> None:
    """The broker is there; whoever waits a little finds room."""
    scene.broker.full = True
    with pytest.raises(OverloadedError):
        await scene.publish(b"1")
    assert scene.queue.unburied() == 0


async def test_what_can_never_fit_holds_up_nobody_and_is_kept(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    await scene.spooled(b"1", b"bad", b"3")
    scene.broker.too_large = b"bad"
    assert await scene.spool.forward_once() == 3
    assert await scene.arrived() == [b"1", b"3"]
    assert list(scene.queue.buried()) == ["2"]
    assert "too large" in caplog.text


async def test_a_refusal_that_passes_loses_nothing(scene: Scene) -> None:
    """A schema is put on the topic, and taken off again."""
    scene.broker.refuses = b""
    for text in (b"1", b"2", b"3"):
        await scene.publish(text)
    with pytest.raises(BrokerRejectedError):
        await scene.spool.forward_once()
    await scene.publish(b"4")
    assert await scene.arrived() == []
    scene.broker.refuses = b"nothing"
    scene.clock.turn(PAUSE)
    assert await scene.spool.forward_once() == 4
    assert sorted(await scene.arrived()) == [b"1", b"2", b"3", b"4"]
    assert scene.queue.unburied() == 0
    assert scene.queue.buried() == {}


async def test_one_that_is_refused_waits_alone(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    await scene.spooled(b"1", b"bad", b"3")
    scene.broker.refuses = b"bad"
    assert await scene.spool.forward_once() == 3
    assert await scene.arrived() == [b"1", b"3"]
    assert await scene.spool.forward_once() == 0
    await scene.publish(b"4")
    assert await scene.arrived() == [b"4"], "the broker takes all others at once"
    assert scene.queue.unburied() == 1
    scene.clock.turn(AGE + 1)
    assert await scene.spool.forward_once() == 1, "it is tried again, and is no sign that the broker is away"
    await scene.publish(b"5")
    assert await scene.spool.forward_once() == 1
    assert await scene.arrived() == [b"5"]
    scene.broker.refuses = b"nothing"
    scene.clock.turn(PAUSE)
    assert await scene.spool.forward_once() == 1
    assert await scene.arrived() == [b"bad"]
    assert "refuses 1 message of" in caplog.text


async def test_many_that_are_refused_do_not_hold_up_those_behind_them(scene: Scene) -> None:
    await scene.spooled(*(b"bad %d" % number for number in range(3 * MOST_IN_VAIN_FORWARDED)), b"good")
    scene.broker.refuses = b"bad"
    for _ in range(3):
        with pytest.raises(BrokerRejectedError):
            await scene.spool.forward_once()
    await scene.spool.forward_once()
    assert await scene.arrived() == [b"good"]


async def test_while_the_broker_refuses_everything_the_spool_takes_what_comes(scene: Scene) -> None:
    """Also while no row is to be tried: nobody needs to wait for one more refusal."""
    scene.broker.refuses = b""
    await scene.publish(b"1")
    with pytest.raises(BrokerRejectedError):
        await scene.spool.forward_once()
    assert await scene.spool.forward_once() == 0
    scene.broker.full = True
    await scene.publish(b"2")
    assert scene.queue.unburied() == 2
    scene.broker.full, scene.broker.refuses = False, b"nothing"
    assert await scene.spool.forward_once() == 1
    assert await scene.spool.forward_once() == 0
    await scene.publish(b"3")
    assert await scene.arrived() == [b"2", b"3"]


async def test_what_nobody_would_keep_is_spooled(scene: Scene) -> None:
    scene.broker.unkept = True
    await scene.publish(b"1")
    await scene.spool.check()
    with pytest.raises(UnkeptError):
        await scene.spool.forward_once()
    scene.broker.unkept = False
    assert await scene.spool.forward_once() == 1
    assert await scene.arrived() == [b"1"]


async def test_a_spool_that_may_be_gone_with_the_process_only_forwards(scene: Scene) -> None:
    scene.broker.away = True
    await scene.publish(b"1")
    spool = Spool(scene.broker, scene.queue, scene.queue, scene.clock, AGE, keeps=False)
    for step in (spool.publish([Message(b"2")]), spool.check()):
        with pytest.raises(TransientError):
            await step
    scene.broker.away = False
    await spool.publish([Message(b"3")])
    await spool.forward_once()
    assert await scene.arrived() == [b"3", b"1"]


async def test_a_full_spool_says_that_nothing_was_taken_unless_the_broker_may_have_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scene.queue, "publish", failing(StorageFullError("the disk is full")))
    spool, other = scene.started(), scene.started()
    assert (await spool.forward_once(), await other.forward_once()) == (0, 0)
    scene.broker.unkept = True
    with pytest.raises(StorageFullError):
        await other.publish([Message(b"0")])
    scene.broker.unkept = False
    scene.broker.away = scene.broker.takes_anyway = True
    with pytest.raises(DoubtfulError, match="the disk is full; the request may still have been accepted"):
        await spool.publish([Message(b"1")])
    assert await scene.arrived() == [b"1"]
    with pytest.raises(StorageFullError):
        await spool.publish([Message(b"2")])
    assert await scene.arrived() == [], "the broker was not asked"


async def test_requests_are_refused_when_an_outage_lasts_too_long(scene: Scene) -> None:
    """What stays longer than receipts live could not be told from a second copy."""
    scene.broker.away = True
    await scene.publish(b"1")
    scene.clock.turn(AGE + 1)
    with pytest.raises(TransientError):
        await scene.spool.forward_once()
    for step in (scene.publish(b"2"), scene.spool.check()):
        with pytest.raises(OverloadedError, match="COUNTERSINK_SPOOL_AGE"):
            await step
    scene.broker.away = False
    await scene.spool.forward_once()
    await scene.spool.forward_once()
    await scene.publish(b"3")
    assert await scene.arrived() == [b"1", b"3"]


async def test_what_waited_too_long_is_not_forwarded_and_stays_in_the_spool(scene: Scene) -> None:
    """It may have been published before, and counted; the receipt may be gone when it comes a second time."""
    scene.broker.away = True
    spool = scene.judging()
    await spool.publish([Message(b"old")])
    scene.clock.turn(AGE / 2)
    await spool.publish([Message(b"young")])
    scene.clock.turn(AGE / 2 + 1)
    scene.broker.away = False
    await spool.forward_once()
    await spool.forward_once()
    assert await scene.arrived() == [b"young"]
    assert list(scene.queue.buried().values()) == [TOO_OLD]
    assert scene.asked == 1
    await spool.publish([Message(b"new")])
    assert await scene.arrived() == [b"new"]


async def test_a_new_process_forwards_nothing_before_the_store_has_told_the_time(scene: Scene) -> None:
    """Its machine was off for a month, and has a clock that does not know it. Later it need not ask each time."""
    scene.store_away = True
    spool = scene.judging()
    await spool.publish([Message(b"1")])
    with pytest.raises(TransientError, match="the store is away"):
        await spool.forward_once()
    assert await scene.arrived() == []
    scene.store_away = False
    await spool.forward_once()
    assert await scene.arrived() == [b"1"]
    before = scene.asked
    scene.broker.away = scene.store_away = True
    await spool.publish([Message(b"2")])
    scene.clock.turn(60)
    scene.broker.away = False
    await spool.forward_once()
    assert await scene.arrived() == [b"2"]
    assert scene.asked == before


async def test_what_was_judged_and_then_stood_still_is_judged_again(scene: Scene) -> None:
    class Slow(Broker):
        async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
            scene.clock.turn(AGE + 2 * LONGEST_FORWARD)
            await super().publish(messages, check)

    slow = Slow(scene.clock)
    spool = scene.judging(slow)
    await spool.publish([Message(b"1")])
    with pytest.raises(StoodStillError):
        await spool.forward_once()
    assert slow.unburied() == 0
    assert await spool.forward_once() == 1
    assert list(scene.queue.buried().values()) == [TOO_OLD]


async def test_what_stood_still_on_its_way_does_not_go_to_the_spool(scene: Scene) -> None:
    """Its first try may have been taken, by a client's second one elsewhere even counted, and be forgotten by now."""

    class Lost(Broker):
        async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
            await super().publish(messages, check)
            scene.clock.turn(LONGEST_PUBLISH + 1)
            raise TransientError("no answer")

    spool = Spool(Lost(scene.clock), scene.queue, scene.queue, scene.clock, AGE)
    assert await spool.forward_once() == 0
    with pytest.raises(DoubtfulError, match="may still have been"):
        await spool.publish([Message(b"1")], deadline(LONGEST_PUBLISH, scene.clock))
    assert scene.queue.unburied() == 0
