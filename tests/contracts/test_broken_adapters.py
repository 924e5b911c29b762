"""The suites are worth something only if every adapter with a mistake fails one of them."""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import pytest

from shared.memory import ProcessOverlay
from tests.contracts import broken_brokers, broken_features, broken_jobs, broken_overlays, broken_stores
from tests.contracts.broken import Fault
from tests.contracts.broker import BrokerContract
from tests.contracts.entries import EntriesContract
from tests.contracts.finding import AppliedContract, RankedContract, SearchContract
from tests.contracts.jobs import JobsContract
from tests.contracts.leases import LeaseContract, OnceContract
from tests.contracts.letters import LettersContract, LettersOfOverlayContract
from tests.contracts.overlay import OverlayContract
from tests.contracts.suites import StoreSuites
from tests.contracts.tasks import TasksContract
from tests.contracts.test_jobs import make_waiting
from tests.contracts.test_memory import make_accepted, make_broker, make_buried, make_written
from tests.world.manual_clock import ManualClock
from tests.world.memory.broker import MemoryBroker, MemoryOverlay
from tests.world.memory.jobs import MemoryJobs
from tests.world.memory.letters import MemoryDeadLetters
from tests.world.memory.store import MemoryStore
from tests.world.memory.tasks import LeasedTasks

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
    for suite in ("broker", "tasks"):
        monkeypatch.setattr(f"tests.contracts.{suite}.LONG", 0.05)


async def first_failure(kind: "Kind", adapter: type, patience: float = 0.5) -> str | None:
    """The name of a test of the suite that this adapter does not pass; None if it passes all.

    A test that waits for longer than `patience` has failed: the clocks of these adapters are turned by hand, so
    it would wait for ever.
    """
    tests = inspect.getmembers(kind.suite(), inspect.iscoroutinefunction)
    for name, test in sorted(tests, key=lambda named: named[0] in SLOW):
        try:
            async with asyncio.timeout(patience):
                await test(kind.make(adapter))
        except (Exception, pytest.fail.Exception):
            return name
    return None


class Kind(NamedTuple):
    """Adapters that are held to a suite."""

    suite: type
    make: Callable[[Any], object]
    """What the tests of the suite get, of an adapter's class."""
    right: type
    faults: Mapping[str, Fault]


KINDS: Final = {
    "broker": Kind(OfBrokers, make_broker, MemoryBroker, broken_brokers.BROKERS),
    "way through dead letters": Kind(OfLetters, make_buried, MemoryDeadLetters, broken_brokers.LETTERS),
    "store": Kind(OfStores, lambda kind: kind(ManualClock()), MemoryStore, STORES),
    "broker of an overlay": Kind(
        OverlayContract, lambda kind: make_accepted(broker=kind), MemoryBroker, broken_overlays.BROKERS
    ),
    "overlay": Kind(OverlayContract, lambda kind: make_accepted(overlay=kind), MemoryOverlay, broken_overlays.OVERLAYS),
    "overlay of a process": Kind(EntriesContract, make_written, ProcessOverlay, broken_overlays.OVERLAYS_OF_A_PROCESS),
    "keeper of jobs": Kind(JobsContract, lambda kind: kind(), MemoryJobs, broken_jobs.JOBS),
    "queue of tasks": Kind(TasksContract, make_waiting, LeasedTasks, broken_jobs.TASKS),
}


@pytest.mark.parametrize(("what", "fault"), [(what, fault) for what, kind in KINDS.items() for fault in kind.faults])
async def test_a_broken_adapter_fails(what: str, fault: str) -> None:
    kind = KINDS[what]
    assert await first_failure(kind, kind.faults[fault](kind.right))


@pytest.mark.parametrize("what", KINDS)
async def test_the_fakes_themselves_fail_nothing(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it is the mistake that is caught."""
    monkeypatch.undo()
    assert await first_failure(KINDS[what], KINDS[what].right, LONGEST) is None
