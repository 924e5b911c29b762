"""What is left of deleted counters, and when it goes."""

from flusher.removal import FIRST, LONGEST, Removal
from shared.clock import ManualClock
from shared.memory.store import MemoryStore
from shared.words import Commit, Guard, Receipt, ShardAdd


class CountingStore(MemoryStore):
    asked = 0

    async def remove(self, counter: str) -> bool:
        self.asked += 1
        return await super().remove(counter)

    async def add(self, counter: str, delta: int, *, deleted: bool | None = None) -> None:
        key = f"k{len(self._receipts)}"
        guard = None
        if deleted is not None:
            guard = (counter, Guard(self._guards.get(counter, Guard()).version, deleted))
        await self.apply(Commit((Receipt(key, 2**60),), (ShardAdd(counter, 0, delta, 1),), guard=guard))


async def test_what_holds_nothing_goes_at_once() -> None:
    clock = ManualClock()
    store = CountingStore(clock)
    names = [f"c{number:04}" for number in range(1_203)]
    for name in names:
        await store.add(name, 0, deleted=True)
    await store.add("there", 0)
    assert await Removal(store, clock).remove_once() == len(names)
    assert [*await store.names("", "", 10)] == ["there"]


async def test_what_is_under_way_is_waited_for() -> None:
    """It was found pending by the delete, which took it off before it came."""
    clock = ManualClock()
    store = CountingStore(clock)
    removal = Removal(store, clock)
    await store.add("a", -5, deleted=True)
    assert await removal.remove_once() == 0
    await store.add("a", 5)
    assert (await removal.remove_once(), store.asked) == (0, 1)
    clock.turn(FIRST)
    assert await removal.remove_once() == 1


async def test_one_that_is_counted_again_is_asked_for_less_and_less() -> None:
    clock = ManualClock()
    store = CountingStore(clock)
    removal = Removal(store, clock)
    await store.add("a", 5, deleted=True)
    day = 86_400
    for _ in range(day):
        clock.turn(1)
        await removal.remove_once()
    assert 20 < store.asked < 20 + day / LONGEST


async def test_one_that_is_deleted_again_is_as_new() -> None:
    clock = ManualClock()
    store = CountingStore(clock)
    removal = Removal(store, clock)
    await store.add("a", 5, deleted=True)
    for _ in range(1_000):
        clock.turn(1)
        await removal.remove_once()
    await store.add("a", 0, deleted=False)
    await removal.remove_once()
    await store.add("a", -5, deleted=True)
    assert await removal.remove_once() == 1
