"""What clients and metrics are told of a failed publish: whether something may have been published."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from ingest.accept.drafts import Pace
from ingest.accept.publishing import LONGEST_PUBLISH, Publishing
from shared.memory.overlay import ProcessOverlay
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
from shared.model.words import Envelope, Increment, Message
from shared.ports.broker import Check, at_any_time
from shared.runtime import metrics
from shared.runtime.clock import LONGEST
from shared.wire.codec import decode
from tests.world.manual_clock import ManualClock
from tests.world.memory.broker import MemoryBroker

LIMITS = [
    OverloadedError("too much", 2.5),
    StorageFullError("the disk is full"),
    TooLargeError("never"),
    UnkeptError("nobody keeps it"),
]


class Fails(MemoryBroker):
    """Takes nothing."""

    error: CountersinkError

    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
        raise self.error


class FailsAtTheEnd(ProcessOverlay):
    """Can't confirm what was published, as that of a fleet whose right to accept has ended."""

    error: CountersinkError

    @asynccontextmanager
    async def entered(self, envelopes: Sequence[Envelope]) -> AsyncIterator[None]:
        async with super().entered(envelopes):
            yield
            raise self.error


async def add(broker: MemoryBroker, overlay: ProcessOverlay, clock: ManualClock) -> None:
    publishing = Publishing(broker, overlay, clock, pace=Pace(0, metered=False), max_waiting=10)
    await publishing.durable(publishing.add("c", 1))


def doubtful() -> float:
    return float(metrics.DOUBTFUL.get())


@pytest.mark.parametrize(
    ("error", "doubtful_ones"),
    [*((error, 0) for error in LIMITS), (BrokerRejectedError("to a second try, after one that was taken"), 1)],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
async def test_what_the_broker_did_not_take_is_doubtful_only_if_it_was_refused(
    error: CountersinkError, doubtful_ones: int
) -> None:
    clock = ManualClock()
    broker = Fails(clock)
    broker.error = error
    before = doubtful()
    with pytest.raises(type(error)):
        await add(broker, ProcessOverlay(clock), clock)
    assert doubtful() == before + doubtful_ones


@pytest.mark.parametrize("error", LIMITS)
async def test_a_limit_that_is_met_after_the_publish_is_doubtful(error: CountersinkError) -> None:
    clock = ManualClock()
    broker, overlay = MemoryBroker(clock), FailsAtTheEnd(clock)
    overlay.error = error
    before = doubtful()
    with pytest.raises(DoubtfulError) as caught:
        await add(broker, overlay, clock)
    assert caught.value.limit is error
    assert broker.unburied() == 1
    assert doubtful() == before + 1


async def test_a_process_that_stood_still_for_a_week_publishes_nothing() -> None:
    """Its clients have sent what they had elsewhere, under ids that are forgotten by now."""
    broker, clock = MemoryBroker(ManualClock()), ManualClock()
    publishing = Publishing(broker, ProcessOverlay(clock), clock, pace=Pace(0, metered=False), max_waiting=10)
    publishing.awake.look()
    clock.turn(LONGEST - 1)
    await publishing.durable(publishing.add("c", 1))
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
    publishing = Publishing(broker, ProcessOverlay(clock), clock, pace=Pace(0, metered=False), max_waiting=10)
    with pytest.raises(StoodStillError, match="send it again"):
        await publishing.durable(publishing.add("c", 1))
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
