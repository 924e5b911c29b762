"""What clients and metrics are told of a failed publish, and when overlay entries that nobody reads are settled."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager

import pytest

from ingest.accept.drafts import Pace
from ingest.accept.publishing import LONGEST_PUBLISH, MOST, Publishing, settle_due
from shared.memory import SETTLE_WITHIN, ProcessOverlay
from shared.model.buckets import Instant, StoreMillis
from shared.model.errors import (
    BrokerRejectedError,
    CountersinkError,
    DoubtfulError,
    OverloadedError,
    StoodStillError,
    StorageFullError,
    TooLargeError,
    UnkeptError,
)
from shared.model.receipts import key_of_envelope
from shared.model.words import Commit, Envelope, Increment, Message, Receipt, Receipts
from shared.ports.broker import Check, at_any_time
from shared.runtime import metrics
from shared.runtime.clock import LONGEST
from shared.runtime.ids import envelope_ids
from shared.wire.codec import decode
from tests.http.faults import failing
from tests.world.manual_clock import ManualClock
from tests.world.memory.broker import MemoryBroker
from tests.world.memory.store import MemoryStore

LIMITS = [
    OverloadedError("too much", 2.5),
    StorageFullError("the disk is full"),
    TooLargeError("never"),
    UnkeptError("nobody keeps it"),
]


class FailsAtTheEnd(ProcessOverlay):
    """Can't confirm what was published, as that of a fleet whose right to accept has ended."""

    error: CountersinkError

    @asynccontextmanager
    async def entered(self, envelopes: Sequence[Envelope]) -> AsyncIterator[None]:
        async with super().entered(envelopes):
            yield
            raise self.error


def publishing_to(broker: MemoryBroker, clock: ManualClock, overlay: ProcessOverlay | None = None) -> Publishing:
    return Publishing(broker, overlay or ProcessOverlay(clock), clock, pace=Pace(0, metered=False), max_waiting=10)


async def add(publishing: Publishing) -> None:
    await publishing.durable(publishing.add("c", 1))


def doubtful() -> float:
    return float(metrics.DOUBTFUL.get())


@pytest.mark.parametrize(
    ("error", "doubtful_ones"),
    [*((error, 0) for error in LIMITS), (BrokerRejectedError("to a second try, after one that was taken"), 1)],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
async def test_what_the_broker_did_not_take_is_doubtful_only_if_it_was_refused(
    error: CountersinkError, doubtful_ones: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    broker = MemoryBroker(clock)
    monkeypatch.setattr(broker, "publish", failing(error))
    before = doubtful()
    with pytest.raises(type(error)):
        await add(publishing_to(broker, clock))
    assert doubtful() == before + doubtful_ones


@pytest.mark.parametrize("error", LIMITS)
async def test_a_limit_that_is_met_after_the_publish_is_doubtful(error: CountersinkError) -> None:
    clock = ManualClock()
    broker, overlay = MemoryBroker(clock), FailsAtTheEnd(clock)
    overlay.error = error
    before = doubtful()
    with pytest.raises(DoubtfulError) as caught:
        await add(publishing_to(broker, clock, overlay))
    assert caught.value.limit is error
    assert broker.unburied() == 1
    assert doubtful() == before + 1


async def test_a_process_that_stood_still_for_a_week_publishes_nothing() -> None:
    """Its clients have sent what they had elsewhere, under ids that are forgotten by now."""
    broker, clock = MemoryBroker(ManualClock()), ManualClock()
    publishing = publishing_to(broker, clock)
    publishing.awake.look()
    clock.turn(LONGEST - 1)
    await add(publishing)
    publishing.awake.look()
    before = doubtful()
    first = publishing.durable(publishing.add("c", 1))
    clock.turn(LONGEST + 1)
    for waits in (first, publishing.durable(publishing.add_keyed(Increment("c", 1, "id")))):
        with pytest.raises(StoodStillError, match="start it again"):
            await waits
    with pytest.raises(StoodStillError):
        await publishing.awake.watch()
    assert broker.unburied() == 1
    assert doubtful() == before


async def test_who_stood_still_while_he_published_does_not_publish_late() -> None:
    """Between the decision and the act, as where a thread writes, or a try is repeated."""
    clock = ManualClock()

    class Slow(MemoryBroker):
        async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
            check()
            clock.turn(LONGEST_PUBLISH + 1)
            await super().publish(messages, check)

    broker = Slow(ManualClock())
    publishing = publishing_to(broker, clock)
    with pytest.raises(StoodStillError, match="send it again"):
        await add(publishing)
    assert broker.unburied() == 0


async def test_a_message_says_whether_nobody_waits_for_it_or_reads_its_counters() -> None:
    clock, read = ManualClock(), {"read"}
    broker = MemoryBroker(clock)
    publishing = Publishing(
        broker,
        ProcessOverlay(clock),
        clock,
        pace=Pace(0, metered=True),
        max_waiting=10,
        read_lately=lambda names: not read.isdisjoint(names),
    )
    await publishing.durable(publishing.add("calm", 1))
    await publishing.durable(publishing.add("awaited", 1), awaited=True)
    await publishing.durable(publishing.add("read", 1))
    await publishing.durable(publishing.add_keyed(Increment("read", 1, "an id")))
    await publishing.durable(publishing.add_keyed(Increment("calm", 1, "another")))
    messages = await broker.pull(10, 10_000, 0)
    envelopes = [envelope for one in messages for envelope in decode(one, "t")]
    assert [envelope.patient for envelope in envelopes] == [True, False, False, False, True]


LATER = StoreMillis(1 << 60)


async def test_all_that_is_due_is_settled_however_much_it_is() -> None:
    """Else more than so many envelopes in each interval would pile up, though flushers keep up."""
    clock = ManualClock()
    overlay, store = ProcessOverlay(clock), MemoryStore(clock)
    names = [f"e{number:04}" for number in range(2 * MOST + 1)]
    async with overlay.entered([Envelope(name, {"a": 1}) for name in names]):
        pass
    await store.apply(Commit(tuple(Receipt(key_of_envelope(name), LATER, envelope=name) for name in names[1:]), ()))
    clock.turn(SETTLE_WITHIN)
    await settle_due(store, overlay)
    (entry,) = (await overlay.view(["a"]))["a"].entries
    assert entry.key == key_of_envelope(names[0])


async def test_a_crowded_overlay_says_so_and_asks_soon_for_what_comes() -> None:
    """So flushers hurry, and what they applied goes before anything is dropped that they have not applied."""
    clock = ManualClock()
    overlay, store = ProcessOverlay(clock, 400), MemoryStore(clock)
    for number in range(100):
        async with overlay.entered([Envelope(f"e{number:03}", {f"a{number}-{one}": 1 for one in range(40)})]):
            assert overlay.crowded == (number >= 2)
        assert overlay.backlog().increments <= 400
        await store.apply(Commit((Receipt(key_of_envelope(f"e{number:03}"), LATER, envelope=f"e{number:03}"),), ()))
        clock.turn(1)
        await settle_due(store, overlay)
    assert not overlay._full, "it dropped some"


class CountingStore(MemoryStore):
    looked_up = asked = 0

    async def receipts(self, keys: Collection[str]) -> Receipts:
        self.looked_up += len(keys)
        return await super().receipts(keys)

    async def applied(self, first: str, last: str, limit: int) -> tuple[Instant, Collection[str]]:
        self.asked += 1
        return await super().applied(first, last, limit)


async def test_envelopes_are_asked_for_together_and_those_that_are_missing_one_by_one_later() -> None:
    """A receipt that does not say its envelope is found under its key."""
    clock, ids = ManualClock(), envelope_ids()
    overlay, store = ProcessOverlay(clock), CountingStore(clock)
    names = [ids() for _ in range(100)]
    async with overlay.entered(
        [*(Envelope(name, {"a": 1}) for name in names), Envelope("key-1", {"a": 1}, retried=True)]
    ):
        pass
    late, unsaid = names[30], names[60]
    found = [Receipt(key_of_envelope(name), LATER, envelope=name) for name in names if name not in {late, unsaid}]
    await store.apply(Commit((*found, Receipt(key_of_envelope(unsaid), LATER)), ()))
    clock.turn(SETTLE_WITHIN)
    await settle_due(store, overlay)
    assert (store.asked, store.looked_up) == (1, 1)
    entries = (await overlay.view(["a"]))["a"].entries
    assert {entry.key for entry in entries} == {key_of_envelope(name) for name in (late, unsaid, "key-1")}
    await store.apply(Commit((Receipt(key_of_envelope(late), LATER, envelope=late),), ()))
    clock.turn(SETTLE_WITHIN)
    await settle_due(store, overlay)
    assert (store.asked, store.looked_up) == (1, 4)
    (entry,) = (await overlay.view(["a"]))["a"].entries
    assert entry.key == key_of_envelope("key-1")
