"""The suites are worth something only if every adapter with a mistake fails one of them."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

import pytest

from shared.memory.overlay import ProcessOverlay
from shared.ports.overlay import Overlay
from tests.contracts import (
    broken_audit_data,
    broken_brokers,
    broken_by_time,
    broken_compactions,
    broken_dead,
    broken_guards,
    broken_letters,
    broken_marks,
    broken_overlays,
    broken_revivals,
    broken_stores,
)
from tests.contracts.applied import AppliedContract
from tests.contracts.audit_data import AuditDataContract
from tests.contracts.broker import BrokerContract
from tests.contracts.by_time import ByTimeContract
from tests.contracts.compactions import CompactionContract
from tests.contracts.dead import DeadContract
from tests.contracts.entries import EntriesContract
from tests.contracts.guards import GuardContract
from tests.contracts.leases import LeaseContract, OnceContract
from tests.contracts.letters import LettersContract, LettersOfOverlayContract
from tests.contracts.marks import MarkContract
from tests.contracts.overlay import Accepted, OverlayContract
from tests.contracts.removals import RemovalContract
from tests.contracts.snapshots import SnapshotContract
from tests.contracts.store import StoreContract
from tests.contracts.test_memory import make_broker, make_buried
from tests.contracts.test_process_overlay import make_written
from tests.world.manual_clock import ManualClock
from tests.world.memory.broker import MemoryBroker, MemoryOverlay
from tests.world.memory.letters import MemoryDeadLetters
from tests.world.memory.store import MemoryStore

LONGEST = 60.0
"""Seconds: a limit for tests that pass."""
STORES = (
    broken_stores,
    broken_revivals,
    broken_audit_data,
    broken_guards,
    broken_marks,
    broken_compactions,
    broken_dead,
    broken_by_time,
)


class OfBrokers(BrokerContract, LeaseContract, OnceContract):
    __test__ = False


class OfLetters(LettersContract, LettersOfOverlayContract):
    __test__ = False


class OfStores(
    StoreContract,
    AppliedContract,
    SnapshotContract,
    AuditDataContract,
    GuardContract,
    RemovalContract,
    MarkContract,
    CompactionContract,
    DeadContract,
    ByTimeContract,
):
    __test__ = False


def kinds(module: ModuleType, base: type) -> list[type]:
    """Those that the module itself makes, helpers apart."""
    return [
        kind
        for name, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, base) and kind.__module__ == module.__name__ and not name.startswith("_")
    ]


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.contracts.broker.LONG", 0.05)


async def first_failure(suite: object, make: Callable[[], Awaitable[Any]], patience: float = 0.5) -> str | None:
    """The name of a test of the suite that this adapter does not pass; None if it passes all.

    A test that waits for longer than `patience` has failed: the clocks of these adapters are turned by hand, so
    it would wait for ever.
    """
    for name, test in inspect.getmembers(suite, inspect.iscoroutinefunction):
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


@pytest.mark.parametrize("kind", kinds(broken_brokers, MemoryBroker))
async def test_a_broken_broker_fails(kind: type[MemoryBroker]) -> None:
    assert await first_failure(OfBrokers(), broker_of(kind))


@pytest.mark.parametrize("kind", kinds(broken_letters, MemoryDeadLetters))
async def test_a_broken_way_through_dead_letters_fails(kind: type[MemoryDeadLetters]) -> None:
    assert await first_failure(OfLetters(), letters_of(kind))


@pytest.mark.parametrize("kind", [kind for module in STORES for kind in kinds(module, MemoryStore)])
async def test_a_broken_store_fails(kind: type[MemoryStore]) -> None:
    assert await first_failure(OfStores(), store_of(kind))


@pytest.mark.parametrize("kind", kinds(broken_overlays, MemoryBroker))
async def test_a_broken_broker_of_an_overlay_fails(kind: type[MemoryBroker]) -> None:
    assert await first_failure(OverlayContract(), overlay_of(kind, MemoryOverlay))


@pytest.mark.parametrize("kind", kinds(broken_overlays, MemoryOverlay))
async def test_a_broken_overlay_fails(kind: type[MemoryOverlay]) -> None:
    assert await first_failure(OverlayContract(), overlay_of(MemoryBroker, kind))


@pytest.mark.parametrize("kind", kinds(broken_overlays, ProcessOverlay))
async def test_a_broken_overlay_of_a_process_fails(kind: type[ProcessOverlay]) -> None:
    assert await first_failure(EntriesContract(), written_of(kind))


async def test_the_fakes_themselves_fail_nothing() -> None:
    """So that it is the mistake that is caught."""
    assert await first_failure(OfBrokers(), broker_of(MemoryBroker), LONGEST) is None
    assert await first_failure(OfLetters(), letters_of(MemoryDeadLetters), LONGEST) is None
    assert await first_failure(OfStores(), store_of(MemoryStore), LONGEST) is None
    assert await first_failure(OverlayContract(), overlay_of(MemoryBroker, MemoryOverlay), LONGEST) is None
    assert await first_failure(EntriesContract(), written_of(ProcessOverlay), LONGEST) is None
