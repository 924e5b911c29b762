"""Copies and second uses of one envelope, of which some come too late: none counts twice, and each flush ends."""

from collections.abc import Awaitable, Callable, Collection

import pytest

from flusher.dead_letters.desk import Replay, drop
from flusher.dead_letters.letters import open_letter, open_receipt
from flusher.flush.commit_loop import LEFT_AS_UNSURE, Flush
from flusher.flush.window import Window
from shared.model.buckets import BEGINNING, DAY, HOUR, Millis, StoreMillis
from shared.model.dead_letters import read_body
from shared.model.receipts import key_of_envelope, promised
from shared.model.words import APPLIED, DEAD, DROPPED, Commit, Delivery, Envelope, Increment, Letter, Receipt, Receipts
from shared.wire.codec import decode
from tests.unit.dead_letters.test_replay import Morgue, sums
from tests.world.flushing import PROMISE
from tests.world.memory.broker import MemoryOverlay

REACH = PROMISE.reach
MOST_STEPS = 100
"""Of a flush that ends."""


class Copies(Morgue):
    def __init__(self) -> None:
        super().__init__(ages=True)
        self.cured()

    async def delivery(self, envelope: Envelope) -> Delivery:
        """Publish it. The broker has lost the message since, so that it takes another use of its id."""
        await self.publish(envelope)
        (delivery,) = await self.broker.pull(1, 10**9, 0)
        await self.broker.ack([delivery.token], BEGINNING)
        return delivery

    def flush_of(self, *deliveries: Delivery, days: int = 7) -> Flush:
        """Of a flusher with this retention."""
        window = Window()
        for delivery in deliveries:
            window.add(delivery, decode(delivery, "t"), aged=True)
        return Flush(window, self.tools(self.store, promised(Millis(days * DAY), DAY)))

    def use(self, attempt: str) -> Envelope:
        return Envelope("k", {"a": 1}, {}, (), self.now(), retried=True, attempt=attempt)


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Copies:
    """Its flushes end in an error if they take too many steps."""
    made, steps = Copies(), 0
    now: Callable[[], Awaitable[StoreMillis]] = made.store.now

    async def counted() -> StoreMillis:
        nonlocal steps
        steps += 1
        assert steps < MOST_STEPS, "it goes on for ever"
        return await now()

    monkeypatch.setattr(made.store, "now", counted)
    return made


@pytest.mark.parametrize("state", ["", APPLIED, DEAD, DROPPED])
@pytest.mark.parametrize("first", ["t1", "t2"])
async def test_two_uses_of_which_one_comes_too_late_are_settled(copies: Copies, first: str, state: str) -> None:
    """A client sent it again after 2 hours, and flushers were away for a week."""
    one = await copies.delivery(copies.use(first))
    copies.clock.turn(2 * HOUR / 1_000)
    other = await copies.delivery(copies.use("t2" if first == "t1" else "t1"))
    if state:
        receipt = Receipt(key_of_envelope("k"), StoreMillis(1 << 60), state, note=b'{"a":"t1"}')
        await copies.store.apply(Commit((receipt,), ()))
    copies.clock.turn((REACH - HOUR) / 1_000)
    await copies.flush_of(one, other).run()
    assert await copies.total() == (0 if state else 1)


async def test_letters_of_two_uses_of_which_one_is_too_old_count_once(copies: Copies) -> None:
    for attempt, turn in (("t1", 2 * HOUR), ("t2", REACH - HOUR)):
        await copies.publish(copies.use(attempt))
        await copies.bury("unreadable")
        copies.clock.turn(turn / 1_000)
    await copies.replay()
    assert await copies.total() == 1


@pytest.mark.parametrize("days", [7.1, 9])
async def test_two_old_uses_that_are_refused_again_stay(copies: Copies, days: float) -> None:
    copies.store.refused = {"poison"}
    await copies.two_uses()
    copies.clock.turn(days * DAY / 1_000)
    await copies.store.sweep(StoreMillis(copies.now()), 100)
    await copies.replay()
    assert len(copies.broker.buried()) == 2


async def test_a_copy_in_time_that_is_refused_keeps_what_a_late_one_stands_for(copies: Copies) -> None:
    copies.store.refused = {"poison"}
    envelope = Envelope("e", {"poison": 1}, {}, (), copies.now())
    await copies.publish(envelope)
    copies.clock.turn(2 * HOUR / 1_000)
    await copies.publish(envelope)
    copies.clock.turn((REACH - HOUR) / 1_000)
    await copies.flush()
    assert (await copies.found(envelope.key)).body
    copies.cured()
    assert sums(await copies.replay()) == (1, 1, 0)
    assert (await copies.total("poison"), copies.broker.buried()) == (1, {})


async def test_no_body_is_written_to_the_receipt_of_what_was_applied_long_ago(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flusher with a copy that a spool forwarded stands still for an hour. Meanwhile the receipt expires, and the
    first copy comes again, too late.
    """
    envelope = Envelope("e", {"a": 1}, {}, (), copies.now())
    first = await copies.delivery(envelope)
    await copies.flush_of(first).run()
    copies.clock.turn((DAY + HOUR) / 1_000)
    second = await copies.delivery(envelope)
    copies.clock.turn((REACH - 1_000) / 1_000)
    receipts = copies.store.receipts

    async def stand_still(keys: Collection[str]) -> Receipts:
        monkeypatch.setattr(copies.store, "receipts", receipts)
        copies.clock.turn((HOUR + 60_000) / 1_000)
        assert await copies.store.sweep(StoreMillis(copies.now()), 100)
        await copies.flush_of(first).run()
        return await receipts(keys)

    monkeypatch.setattr(copies.store, "receipts", stand_still)
    await copies.flush_of(second).run()
    assert (await copies.found(envelope.key)).state == DEAD
    assert await copies.store.dead("", 10) == []
    assert await copies.total() == 1


async def test_what_somebody_knows_to_be_uncounted_is_not_sure_for_ever_if_it_is_refused(copies: Copies) -> None:
    """The id in it may be counted elsewhere, and that receipt expires."""
    copies.store.refused = {"poison"}
    await copies.publish(Envelope("e", {"poison": 1}, {}, (Increment("a", 10, "x"),), copies.now()))
    copies.clock.turn(9 * DAY / 1_000)
    await copies.flush()
    assert [one.why for one in await copies.replay()] == [LEFT_AS_UNSURE]
    await copies.replay(too_old=True)
    (dead,) = await copies.store.dead("", 10)
    assert read_body(dead).sure_until == copies.now() + REACH


@pytest.mark.parametrize("comes_back", ["as a message", "as a letter"])
async def test_what_was_dropped_by_a_tool_with_a_shorter_retention_stays_dropped(
    copies: Copies, comes_back: str
) -> None:
    """The service has kept its own promise in force for 3 hours after its last flush, and no longer."""
    copies.store.refused = {"poison"}
    message = await copies.delivery(Envelope("e", {"poison": 1}, {}, (), copies.now()))
    await copies.flush_of(message, days=30).run()
    copies.clock.turn(4 * HOUR / 1_000)
    (letter,) = [open_receipt(one) for one in await copies.store.dead("", 10)]
    await drop(copies.store, MemoryOverlay(copies.broker), letter.envelopes, PROMISE)
    copies.cured()
    copies.clock.turn(10 * DAY / 1_000)
    assert await copies.store.sweep(StoreMillis(copies.now()), 100)
    if comes_back == "as a message":
        await copies.flush_of(message, days=30).run()
    else:
        tools = copies.tools(copies.store, promised(Millis(30 * DAY), DAY))
        lost = open_letter(Letter(message, "poison"), "t")
        assert [one.why for one in await Replay(tools, copies.letters).run([lost])] == [LEFT_AS_UNSURE]
    assert await copies.total("poison") == 0
