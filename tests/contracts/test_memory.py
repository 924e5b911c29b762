"""The fakes, and what is kept in the memory of one process: its overlay."""

from collections.abc import Sequence

import pytest

from shared.memory import ProcessOverlay
from shared.model.words import Message
from shared.ports.broker import Check, at_any_time
from shared.ports.overlay import Overlay
from tests.contracts.broker import Broker, BrokerContract, turning
from tests.contracts.entries import EntriesContract, Written
from tests.contracts.finding import AppliedContract, RankedContract, SearchContract
from tests.contracts.fleets import FleetContract, Shared
from tests.contracts.leases import LeaseContract, OnceContract
from tests.contracts.letters import Buried, LettersContract, LettersOfOverlayContract
from tests.contracts.overlay import Accepted, OverlayContract
from tests.contracts.suites import StoreSuites
from tests.world.manual_clock import ManualClock
from tests.world.memory.broker import MemoryBroker, MemoryOverlay
from tests.world.memory.fleet import MemoryFleetBook
from tests.world.memory.letters import MemoryDeadLetters
from tests.world.memory.store import MemoryStore


def make_broker(kind: type[MemoryBroker] = MemoryBroker) -> Broker:
    clock = ManualClock()
    broker = kind(clock, max_pending_bytes=2_000)
    roomy = kind(clock)
    roomy._messages = broker._messages = {}
    roomy.pending = broker.pending

    async def buried() -> list[tuple[bytes, str]]:
        return [(held.message.data, held.buried) for held in roomy._messages.values() if held.buried]

    return Broker(roomy, roomy, roomy, turning(clock, 61), buried, _Tiny(broker, roomy), turning(clock, 59))


class _Tiny:
    """One broker, two limits."""

    def __init__(self, limit: MemoryBroker, broker: MemoryBroker) -> None:
        self._limit, self._broker = limit, broker

    async def check(self) -> None:
        await self._limit.check()

    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
        self._limit._admit(sum(len(message.data) for message in messages))
        await self._broker.publish(messages, check)


class TestMemoryBroker(BrokerContract, LeaseContract, OnceContract):
    @pytest.fixture
    async def broker(self) -> Broker:
        return make_broker()


def make_buried(kind: type[MemoryDeadLetters] = MemoryDeadLetters) -> Buried:
    broker = MemoryBroker(ManualClock())
    return Buried(broker, broker, lambda: kind(broker), MemoryOverlay(broker))


class TestMemoryDeadLetters(LettersContract, LettersOfOverlayContract):
    @pytest.fixture
    async def buried(self) -> Buried:
        return make_buried()


def make_accepted(broker: type[MemoryBroker] = MemoryBroker, overlay: type[MemoryOverlay] = MemoryOverlay) -> Accepted:
    kept = broker(ManualClock())

    async def restarted() -> Overlay:
        return overlay(kept)

    ours = overlay(kept)
    return Accepted(kept, kept, ours, overlay(kept), restarted, ours.changed)


class TestMemoryStore(StoreSuites, AppliedContract, RankedContract, SearchContract):
    @pytest.fixture
    async def store(self) -> MemoryStore:
        return MemoryStore(ManualClock())


class TestMemoryOverlay(OverlayContract):
    @pytest.fixture
    async def accepted(self) -> Accepted:
        return make_accepted()


class TestMemory(FleetContract):
    @pytest.fixture
    async def shared(self) -> Shared:
        store = MemoryStore(ManualClock())
        book = MemoryFleetBook(store)
        return Shared(book, book, store)


def make_written(kind: type[ProcessOverlay] = ProcessOverlay) -> Written:
    clock = ManualClock()

    async def later(seconds: float) -> None:
        clock.turn(seconds)

    overlay = kind(clock)
    return Written(overlay, overlay, exact=False, later=later)


class TestProcessOverlay(EntriesContract):
    @pytest.fixture
    async def written(self) -> Written:
        return make_written()
