"""The flusher removes the rows of deleted counters, at the right time and within limits."""

from collections.abc import Sequence

import pytest

from flusher.cleanup import FIRST, LONGEST, MOST_IN_VAIN, CounterRemover
from shared.memory import ProcessOverlay
from shared.model.buckets import StoreMillis
from shared.model.errors import TransientError
from shared.model.words import Commit, Guard, Receipt, ShardAdd
from tests.world.manual_clock import ManualClock
from tests.world.memory.store import MemoryStore


class CountingStore(MemoryStore):
    """It has a clock of its own, and is cleaned up by `removal`."""

    asked = 0

    def __init__(self) -> None:
        self.clock = ManualClock()
        super().__init__(self.clock)
        self.removal = CounterRemover(self, ProcessOverlay(self.clock), self.clock)

    async def remove(self, counter: str) -> bool:
        self.asked += 1
        return await super().remove(counter)

    async def add(self, counter: str, delta: int, *, deleted: bool | None = None) -> None:
        key = f"k{len(self._receipts)}"
        guard = None
        if deleted is not None:
            guard = (counter, Guard(self._guards.get(counter, Guard()).version, deleted))
        await self.apply(Commit((Receipt(key, StoreMillis(2**60)),), (ShardAdd(counter, 0, delta, 1),), guard=guard))


async def test_what_holds_nothing_goes_at_once() -> None:
    store = CountingStore()
    names = [f"c{number:04}" for number in range(1_203)]
    for name in names:
        await store.add(name, 0, deleted=True)
    await store.add("there", 0)
    assert await store.removal.remove_once() == len(names)
    assert [*await store.names("", "", 10)] == ["there"]


async def test_what_is_under_way_is_waited_for() -> None:
    """It was found pending by the delete, which took it off before it came."""
    store = CountingStore()
    await store.add("a", -5, deleted=True)
    assert await store.removal.remove_once() == 0
    await store.add("a", 5)
    assert (await store.removal.remove_once(), store.asked) == (0, 1)
    store.clock.turn(FIRST)
    assert await store.removal.remove_once() == 1


async def test_one_that_is_counted_again_is_asked_for_less_and_less() -> None:
    store = CountingStore()
    await store.add("a", 5, deleted=True)
    day = 86_400
    for _ in range(day // 4):
        store.clock.turn(4)
        await store.removal.remove_once()
    assert 20 < store.asked < 20 + day / LONGEST


async def test_one_that_is_deleted_again_is_as_new() -> None:
    store = CountingStore()
    await store.add("a", 5, deleted=True)
    for _ in range(1_000):
        store.clock.turn(1)
        await store.removal.remove_once()
    await store.add("a", 0, deleted=False)
    await store.removal.remove_once()
    await store.add("a", -5, deleted=True)
    assert await store.removal.remove_once() == 1


class UsedStore(CountingStore):
    """Very many that were deleted and counted again."""

    many = 15_000

    async def deleted(self, after: str, limit: int) -> Sequence[str]:
        begin = int(after or "-1") + 1
        return [f"{number:09}" for number in range(begin, min(begin + limit, self.many))]

    async def remove(self, counter: str) -> bool:
        self.asked += 1
        return False


async def test_very_many_that_are_counted_again_are_looked_at_in_turn_and_not_all_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("flusher.cleanup.MOST_WAITS_KEPT", most := 10_000)
    store = UsedStore()
    for number in range(1, store.many // MOST_IN_VAIN + 1):
        await store.removal.remove_once()
        assert store.asked == number * MOST_IN_VAIN
    assert len(store.removal._waits) == most
    await store.removal.remove_once()  # to the end of the round
    begun = store.asked
    for _ in range(store.many // MOST_IN_VAIN):
        await store.removal.remove_once()
    assert store.asked - begun < store.many, "those that are remembered are not looked at again so soon"
    assert len(store.removal._waits) == most


async def test_what_can_not_be_removed_is_not_the_end_of_what_comes_after_it() -> None:
    class Failing(CountingStore):
        async def remove(self, counter: str) -> bool:
            if counter == "a":
                raise TransientError("try again")
            return await super().remove(counter)

    store = Failing()
    for name in ("a", "b"):
        await store.add(name, 0, deleted=True)
    with pytest.raises(TransientError):
        await store.removal.remove_once()
    assert await store.removal.remove_once() == 1
