"""The parts of a process, in memory where a test does not bring its own."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from shared.memory import MemoryTasks
from shared.ports.store import Store
from shared.runtime.clock import Clock
from shared.wiring.process import Parts
from tests.world.memory.broker import MemoryBroker, MemoryOverlay
from tests.world.memory.jobs import MemoryJobs
from tests.world.memory.letters import MemoryDeadLetters


async def _none(_: bool) -> Sequence[str]:
    return ()


def parts_of(broker: MemoryBroker, store: Store, clock: Clock, *, one_file: bool = True, **others: Any) -> Parts:
    """`others`: fields of `Parts`."""
    its: dict[str, Any] = {
        "publisher": broker,
        "subscription": broker,
        "store": store,
        "overlay": MemoryOverlay(broker),
        "clock": clock,
        "topic": "t",
        "one_file": one_file,
        "where": "memory",
        "obstacles": _none,
        "letters": partial(MemoryDeadLetters, broker),
        "jobs": MemoryJobs(),
        "tasks": MemoryTasks(),
    }
    return Parts(**its | others)
