"""The right to go on without Redis, on a store that does not always answer."""

import asyncio

import pytest

from shared.clock import ManualClock
from shared.errors import OverloadedError, TransientError
from shared.memory.store import MemoryStore
from shared.redis import apart as module
from shared.redis.apart import Apart, fence
from shared.words import Commit

PERIOD = 60.0


class Unanswering(MemoryStore):
    """Does what it is told, and says nothing of it while it is `silent`."""

    silent = False

    async def apply(self, commit: Commit) -> int:
        time = await super().apply(commit)
        if self.silent:
            raise TransientError("no answer")
        return time


async def test_a_period_begins_before_its_receipt_is_there() -> None:
    clock = ManualClock()
    apart = Apart("m", MemoryStore(clock), clock, PERIOD)
    await apart.extend()
    assert apart.left() == PERIOD
    clock.turn(PERIOD - 1)
    await apart.extend()
    assert apart.left() == PERIOD


async def test_whoever_is_fenced_first_accepts_nothing() -> None:
    clock, store = ManualClock(), MemoryStore(ManualClock())
    apart = Apart("m", store, clock, PERIOD)
    assert await fence(store, clock, "m") == 0
    with pytest.raises(OverloadedError):
        await apart.extend()
    assert apart.left() <= 0


async def test_a_receipt_of_an_earlier_try_gives_no_time_after_it_was_fenced() -> None:
    """Whoever fenced the next one waits for a period from then, and no longer."""
    clock = ManualClock()
    store = Unanswering(clock)
    apart = Apart("m", store, clock, PERIOD)
    store.silent = True
    with pytest.raises(TransientError):
        await apart.extend()
    store.silent = False
    assert await fence(store, clock, "m") == 1, "it is known to have gone apart"
    clock.turn(PERIOD + 1)
    with pytest.raises(OverloadedError):
        await apart.extend()
    assert apart.left() <= 0


async def test_after_a_try_without_an_answer_the_next_receipt_gives_time() -> None:
    clock = ManualClock()
    store = Unanswering(clock)
    apart = Apart("m", store, clock, PERIOD)
    store.silent = True
    with pytest.raises(TransientError):
        await apart.extend()
    store.silent = False
    await apart.extend()
    assert apart.left() == PERIOD
    assert await fence(store, clock, "m") == 2


async def test_a_store_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(MemoryStore):
        async def apply(self, commit: Commit) -> int:
            await asyncio.Event().wait()
            return await super().apply(commit)

    monkeypatch.setattr(module, "PATIENCE", 0.01)
    clock = ManualClock()
    with pytest.raises(TransientError, match="in time"):
        await Apart("m", Hanging(clock), clock, PERIOD).extend()
