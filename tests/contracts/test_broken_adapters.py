"""The suites are worth something only if every adapter with a mistake fails one of them."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from shared.memory.overlay import ProcessOverlay
from shared.ports.overlay import Overlay
from tests.contracts import broken_brokers, broken_features, broken_overlays, broken_stores
from tests.contracts.applied import AppliedContract
from tests.contracts.broker import BrokerContract
from tests.contracts.entries import EntriesContract
from tests.contracts.leases import LeaseContract, OnceContract
from tests.contracts.letters import LettersContract, LettersOfOverlayContract
from tests.contracts.overlay import Accepted, OverlayContract
from tests.contracts.ranks import RankedContract
from tests.contracts.search import SearchContract
from tests.contracts.suites import StoreSuites
from tests.contracts.test_memory import make_broker, make_buried
from tests.contracts.test_process_overlay import make_written
from tests.world.manual_clock import ManualClock
from tests.world.memory.broker import MemoryBroker, MemoryOverlay
from tests.world.memory.letters import MemoryDeadLetters
from tests.world.memory.store import MemoryStore

LONGEST = 60.0
"""Seconds: a limit for tests that pass."""
SLOW = {
    *("test_all_is_there_once_in_order", "test_all_buckets_are_there", "test_a_large_commit_and_a_large_read"),
    *("test_what_is_found_was_applied_until_the_instant", "test_nothing_that_comes_meanwhile_is_lost"),
    *("test_concurrent_holders_never_hold_one_message", "test_nothing_is_lost_between_many_publishers_and_holders"),
    *("test_a_large_envelope_stands_there_in_parts", "test_counters_are_viewed_at_one_instant"),
}
"""These take as long as all others together, so they come last: most faults are found before."""
STORES = {
    **broken_stores.STORES,
    **broken_stores.REVIVALS,
    **broken_stores.AUDIT_DATA,
    **broken_features.GUARDS,
    **broken_features.MARKS,
    **broken_features.COMPACTIONS,
    **broken_stores.DEAD_RECEIPTS,
    **broken_features.BY_TIME,
    **broken_features.RANKS,
    **broken_stores.SEARCHES,
}


class OfBrokers(BrokerContract, LeaseContract, OnceContract):
    __test__ = False


class OfLetters(LettersContract, LettersOfOverlayContract):
    __test__ = False


class OfStores(StoreSuites, AppliedContract, RankedContract, SearchContract):
    __test__ = False


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.contracts.broker.LONG", 0.05)


async def first_failure(suite: object, make: Callable[[], Awaitable[Any]], patience: float = 0.5) -> str | None:
    """The name of a test of the suite that this adapter does not pass; None if it passes all.

    A test that waits for longer than `patience` has failed: the clocks of these adapters are turned by hand, so
    it would wait for ever.
    """
    tests = inspect.getmembers(suite, inspect.iscoroutinefunction)
    for name, test in sorted(tests, key=lambda named: named[0] in SLOW):
        try:
            async with asyncio.timeout(patience):
                await test(await make())
        except (Exception, pytest.fail.Exception):
            return name
    return None


def broker_of(kind: type[MemoryBroker]) -> Callable[[], Awaitable[object]]:
    async def make() -> object:
        return make_broker(kind)

    return make


def letters_of(kind: type[MemoryDeadLetters]) -> Callable[[], Awaitable[object]]:
    async def make() -> object:
        return make_buried(kind)

    return make


def store_of(kind: type[MemoryStore]) -> Callable[[], Awaitable[object]]:
    async def make() -> object:
        return kind(ManualClock())

    return make


def overlay_of(broker: type[MemoryBroker], overlay: type[MemoryOverlay]) -> Callable[[], Awaitable[object]]:
    async def make() -> object:
        kept = broker(ManualClock())

        async def restarted() -> Overlay:
            return overlay(kept)

        ours = overlay(kept)
        return Accepted(kept, kept, ours, overlay(kept), restarted, ours.changed)

    return make


def written_of(kind: type[ProcessOverlay]) -> Callable[[], Awaitable[object]]:
    async def make() -> object:
        return make_written(kind)

    return make


@pytest.mark.parametrize("fault", broken_brokers.BROKERS)
async def test_a_broken_broker_fails(fault: str) -> None:
    assert await first_failure(OfBrokers(), broker_of(broken_brokers.BROKERS[fault](MemoryBroker)))


@pytest.mark.parametrize("fault", broken_brokers.LETTERS)
async def test_a_broken_way_through_dead_letters_fails(fault: str) -> None:
    assert await first_failure(OfLetters(), letters_of(broken_brokers.LETTERS[fault](MemoryDeadLetters)))


@pytest.mark.parametrize("fault", STORES)
async def test_a_broken_store_fails(fault: str) -> None:
    assert await first_failure(OfStores(), store_of(STORES[fault](MemoryStore)))


@pytest.mark.parametrize("fault", broken_overlays.BROKERS)
async def test_a_broken_broker_of_an_overlay_fails(fault: str) -> None:
    broken = broken_overlays.BROKERS[fault](MemoryBroker)
    assert await first_failure(OverlayContract(), overlay_of(broken, MemoryOverlay))


@pytest.mark.parametrize("fault", broken_overlays.OVERLAYS)
async def test_a_broken_overlay_fails(fault: str) -> None:
    broken = broken_overlays.OVERLAYS[fault](MemoryOverlay)
    assert await first_failure(OverlayContract(), overlay_of(MemoryBroker, broken))


@pytest.mark.parametrize("fault", broken_overlays.OVERLAYS_OF_A_PROCESS)
async def test_a_broken_overlay_of_a_process_fails(fault: str) -> None:
    broken = broken_overlays.OVERLAYS_OF_A_PROCESS[fault](ProcessOverlay)
    assert await first_failure(EntriesContract(), written_of(broken))


async def test_the_fakes_themselves_fail_nothing() -> None:
    """So that it is the mistake that is caught."""
    assert await first_failure(OfBrokers(), broker_of(MemoryBroker), LONGEST) is None
    assert await first_failure(OfLetters(), letters_of(MemoryDeadLetters), LONGEST) is None
    assert await first_failure(OfStores(), store_of(MemoryStore), LONGEST) is None
    assert await first_failure(OverlayContract(), overlay_of(MemoryBroker, MemoryOverlay), LONGEST) is None
    assert await first_failure(EntriesContract(), written_of(ProcessOverlay), LONGEST) is None
