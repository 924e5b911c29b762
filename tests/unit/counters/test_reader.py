"""The reader when views of the overlay arrive late, what it makes of dead receipts, and lists of counters that move."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

import pytest

from shared.config.lists import rules_of
from shared.counters.reader import AllNames, Reader
from shared.counters.series import CLOSED_WITHIN, MOST_READ_AT_ONCE, SeriesReader
from shared.memory import ProcessOverlay
from shared.model.buckets import NEVER, BrokerMillis, Instant, StoreMillis, WallMillis
from shared.model.dead_letters import with_body
from shared.model.errors import InexactError, TransientError
from shared.model.receipts import key_of_envelope
from shared.model.words import DEAD, Commit, Envelope, Increment, Receipt, ShardAdd, View
from shared.wire.codec import encode
from tests.world.manual_clock import ManualClock
from tests.world.memory.broker import MemoryBroker, MemoryOverlay
from tests.world.memory.exact_overlay import ExactOverlay
from tests.world.memory.store import MemoryStore
from tests.world.series import ALL_KEPT, everything


class SlowOverlay(MemoryOverlay):
    """Sees at once, and tells when it is let."""

    gate: asyncio.Event | None = None

    async def view(self, counters: Sequence[str]) -> Mapping[str, View]:
        views = await super().view(counters)
        if self.gate is not None:
            await self.gate.wait()
        return views


async def test_a_view_from_before_the_base_is_looked_at_again() -> None:
    """It may hold what has been applied and removed since, for which that base did not ask: it would count twice."""
    clock = ManualClock()
    broker, store = MemoryBroker(clock), MemoryStore(clock)
    overlay = SlowOverlay(broker)
    reader = Reader(store, overlay, clock, 1.0)
    await reader.read(["a"])  # without a base there would be no view
    await broker.publish([encode(Envelope("e", {"a": 5}))])

    overlay.gate = asyncio.Event()
    late = asyncio.create_task(reader.read(["a"]))
    await asyncio.sleep(0)
    gate, overlay.gate = overlay.gate, None

    (held,) = await broker.pull(1, 1_000, 0)
    time = await store.apply(Commit((Receipt(key_of_envelope("e"), StoreMillis(1 << 60)),), (ShardAdd("a", 0, 5, 1),)))
    await broker.ack([held.token], time)
    clock.turn(0.5)
    assert [reading.value for reading in await reader.read(["a"], 0)] == [5]
    gate.set()
    assert [reading.value for reading in await late] == [5]


async def test_a_base_that_became_too_old_until_the_view_came_is_not_used() -> None:
    """The process stood still: what tells that the base lacks a set may have been forgotten meanwhile."""
    clock = ManualClock()
    broker, store = MemoryBroker(clock), MemoryStore(clock)
    overlay = SlowOverlay(broker)
    reader = Reader(store, overlay, clock, 1.0)
    await reader.read(["a"])
    overlay.gate = asyncio.Event()
    late = asyncio.create_task(reader.read(["a"], 60))
    await asyncio.sleep(0)
    gate, overlay.gate = overlay.gate, None
    await store.apply(Commit((Receipt("set", StoreMillis(1 << 60)),), (ShardAdd("a", 0, 5, 1),)))
    clock.turn(61)
    gate.set()
    assert [reading.value for reading in await late] == [5]


async def test_a_floor_that_the_store_shows_only_a_little_later_is_waited_for() -> None:
    """The Firestore emulator stamps commits up to 0.26 s ahead of the clock at which it can be read."""
    clock = ManualClock()
    broker, store = MemoryBroker(clock), MemoryStore(clock)
    overlay = MemoryOverlay(broker)
    reader, series = Reader(store, overlay, clock, 1.0), SeriesReader(store, overlay, clock, ALL_KEPT)
    await broker.publish([encode(Envelope("e", {"a": 5}))])
    (held,) = await broker.pull(1, 1_000, 0)
    await broker.ack([held.token], Instant(1))
    asyncio.get_running_loop().call_later(0.3, store.tick)
    await asyncio.gather(reader.read(["a"]), series.read(everything("a")))


async def test_a_counter_was_read_lately_for_a_minute_after_it_or_its_series_was_looked_up() -> None:
    clock = ManualClock()
    store, overlay = MemoryStore(clock), MemoryOverlay(MemoryBroker(clock))
    reader, series = Reader(store, overlay, clock, 1.0), SeriesReader(store, overlay, clock, rules_of("=day/30d"))
    for lately, read in (
        (reader.read_lately, reader.read(["a"])),
        (series.read_lately, series.read(series.range("a", "day", None, None))),
    ):
        assert not lately({"a", "b"})
        await read
        assert lately({"a", "b"})
        assert not lately({"b"})
        clock.turn(60)
        assert lately({"a"})
        clock.turn(1)
        assert not lately({"a"})


class HeldOpen(MemoryStore):
    """Closes no period until it is let: a flusher has died in a commit."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.ended = asyncio.Event()

    async def close_periods(self, until: WallMillis) -> None:
        await self.ended.wait()
        await super().close_periods(until)


async def test_what_holds_periods_open_holds_up_no_series() -> None:
    clock = ManualClock()
    store = HeldOpen(clock)
    series = SeriesReader(store, ExactOverlay(clock), clock, ALL_KEPT)
    present = series.range("a", "hour", int(clock.now() * 1_000), None)
    begun = asyncio.get_running_loop().time()
    async with asyncio.timeout(12 * CLOSED_WITHIN):
        held = [asyncio.create_task(series.read(everything("a"))) for _ in range(2 * MOST_READ_AT_ONCE)]
        await asyncio.sleep(0)
        await series.read(present)
        assert not any(task.done() for task in held)
        assert not any(found.exact for found in await asyncio.gather(*held))
        assert asyncio.get_running_loop().time() - begun < 2 * CLOSED_WITHIN
        store.ended.set()
        assert (await series.read(everything("a"))).exact


def buried(name: str, sums: dict[str, int], *keyed: Increment, until: StoreMillis = NEVER) -> Receipt:
    envelope = Envelope(name, sums, {}, keyed)
    return with_body(Receipt(envelope.key, StoreMillis(1), DEAD), envelope, "refused", BrokerMillis(0), until)


async def test_an_id_in_a_dead_letter_that_an_expired_receipt_may_have_counted_makes_readings_inexact() -> None:
    """Only while it is not known to be counted; sums are sure for ever."""
    clock = ManualClock()
    store = MemoryStore(clock)
    until = StoreMillis(int(clock.now() * 1_000) + 60_000)
    await store.apply(Commit((buried("e", {"a": 5, "b": 1}, Increment("a", 10, receipt="ix"), until=until),), ()))

    async def read() -> list[tuple[int, bool]]:
        reader = Reader(store, ExactOverlay(clock), clock, 1.0)
        return [(reading.value, reading.exact) for reading in await reader.read(["a", "b"])]

    assert await read() == [(15, True), (1, True)]
    clock.turn(61)
    assert await read() == [(15, False), (1, True)]
    await store.apply(Commit((Receipt("ix", StoreMillis(1 << 60)),), (ShardAdd("a", 0, 10, 1),)))
    assert await read() == [(15, True), (1, True)]


class Settling(ExactOverlay):
    """An overlay that a reading must settle something in, before it shows that."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.begun, self.goes_on = asyncio.Event(), asyncio.Event()
        self.away = False

    async def settle(self, settled: Collection[str], time: Instant, epoch: str = "") -> None:
        self.begun.set()
        await self.goes_on.wait()
        if self.away:
            raise TransientError("away")
        await super().settle(settled, time, epoch)


@pytest.mark.parametrize("away", [False, True])
async def test_what_is_applied_and_not_confirmed_is_shown_after_the_floor_has_risen(*, away: bool) -> None:
    """Otherwise one reader shows 5, and another, later, 0 from what it read before. The publisher has no answer yet."""
    clock = ManualClock()
    store, overlay = MemoryStore(clock), Settling(clock)
    one, other = [Reader(store, overlay, clock, 60.0) for _ in range(2)]
    series = SeriesReader(store, overlay, clock, ALL_KEPT)
    assert [reading.value for reading in await other.read(["a"])] == [0]
    overlay.begin([Envelope("e", {"a": 5})])
    await store.apply(Commit((Receipt(key_of_envelope("e"), StoreMillis(1 << 60)),), (ShardAdd("a", 0, 5, 1),)))
    overlay.away = away
    doing = asyncio.create_task(one.read(["a"])), asyncio.create_task(series.read(everything("a")))
    await overlay.begun.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not any(task.done() for task in doing)
    assert [(reading.value, reading.exact) for reading in await other.read(["a"])] == [(0, True)]
    overlay.goes_on.set()
    (reading,), counts = await doing[0], await doing[1]
    assert (reading.value, reading.exact) == (5, not away)
    assert (counts.value, counts.known) == (5, not away)
    assert [(again.value, again.exact) for again in await one.read(["a"])] == [(5, not away)]
    assert [(last.value, last.exact) for last in await other.read(["a"])] == ([(0, True)] if away else [(5, True)])


ORDER = ("pending", "dead", "stored")


class Moving:
    """Where an increment is. After each answer, it moves on by one place."""

    def __init__(self, place: str) -> None:
        self._place = place

    def names_in(self, place: str) -> Sequence[str]:
        there = ["a"] if self._place == place else []
        self._place = ORDER[min(ORDER.index(self._place) + 1, 2)]
        return there


class MovingOverlay(ExactOverlay):
    def __init__(self, moving: Moving) -> None:
        super().__init__(ManualClock())
        self._moving = moving

    async def names(self, *_: object, **__: object) -> Sequence[str]:
        return self._moving.names_in("pending")


class MovingStore(MemoryStore):
    def __init__(self, moving: Moving) -> None:
        super().__init__(ManualClock())
        self._moving = moving

    async def dead_names(self, *_: object) -> Sequence[str]:
        return self._moving.names_in("dead")

    async def names(self, *_: object) -> Sequence[str]:
        return self._moving.names_in("stored")


@pytest.mark.parametrize("place", ORDER)
async def test_a_counter_that_moves_is_listed(place: str) -> None:
    moving = Moving(place)
    assert await AllNames(MovingStore(moving), MovingOverlay(moving)).page("", "", 10) == ["a"]


@pytest.mark.parametrize(("shared", "exact"), [(True, True), (True, False), (False, True), (False, False)])
async def test_a_list_says_whether_it_may_lack_names(shared: bool, exact: bool) -> None:
    """An overlay that is not shared lists what it has. If it should see everything and does not, a page is an error."""
    clock = ManualClock()
    overlay = (ExactOverlay if exact else ProcessOverlay)(clock)
    overlay.shared = shared
    names = AllNames(MemoryStore(clock), overlay)
    assert await names.under([""], 10) == ([], shared and exact)
    if shared and not exact:
        with pytest.raises(InexactError):
            await names.page("", "", 10, exact=True)
    else:
        assert await names.page("", "", 10, exact=True) == []
