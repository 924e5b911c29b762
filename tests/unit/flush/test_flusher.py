"""The flusher pulls, commits, acknowledges, buries and gives back, and no bug that some messages meet ends it."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from flusher.flush.commit_loop import MOST_BUGS, Flush
from flusher.flush.window import MOST_IN_COMMIT, MOST_IN_COMMIT_OF_FILE, TOO_OLD, Window
from flusher.service import make_flusher
from shared.config.settings import Settings
from shared.model.buckets import DAY, HOUR, Instant, Millis, StoreMillis
from shared.model.errors import DamagedError, GoneError, RefusedError, SettingsError, TransientError
from shared.model.receipts import key_of_envelope, promised
from shared.model.words import Commit, Delivery, Envelope, Increment, Message
from shared.runtime.retry import Stop
from shared.wire import codec
from shared.wire.codec import encode
from tests.http.faults import failing
from tests.world.flushing import Bench, Gate, running, tools_of
from tests.world.manual_clock import ManualClock
from tests.world.memory.broker import MemoryBroker, MemoryOverlay
from tests.world.memory.store import MemoryStore
from tests.world.parts import parts_of

NOBODY = 60.0
TOO_LARGE = Envelope("e1", {"a" * 400: 1, **{f"{n}{'b' * 390}": 1 for n in range(30)}}, {})
"""Larger than a window."""


async def test_a_flusher_of_a_file_makes_room_before_clients_are_refused() -> None:
    """Clients are judged from a quarter of what may be pending, by up to five times its bytes."""
    clock = ManualClock()
    broker, store = MemoryBroker(clock), MemoryStore(clock)
    settings = Settings(max_pending_bytes=2**20)
    flusher = make_flusher(parts_of(broker, store, clock), settings)
    names = [f"{number:099}" for number in range(700)]
    await broker.publish([encode(Envelope(f"e{number}", dict.fromkeys(names, 1))) for number in range(2)])
    while not flusher.due():
        assert await flusher.pull_once(0)
    assert len(list(flusher._held())) == 1


async def test_a_message_that_somebody_waits_for_ends_a_long_window() -> None:
    bench = Bench(longest=10.0)
    for number in range(9):
        await bench.publish(Envelope(f"calm{number}", {"a": 1}, patient=True))
        await bench.flusher.pull_once(0)
        bench.clock.turn(10)
        await bench.flusher.flush_once()
    await bench.publish(Envelope("calm", {"a": 1}, patient=True))
    await bench.flusher.pull_once(0)
    bench.clock.turn(5)
    assert not bench.flusher.due()
    await bench.publish(Envelope("awaited", {"a": 1}))
    await bench.flusher.pull_once(0)
    assert bench.flusher.due()
    await bench.flusher.flush_once()
    assert await bench.total() == 11


async def test_receipts_name_the_envelopes_that_ingests_made() -> None:
    """Ingests find out by that which of theirs are applied. The id of a client does not say when it was used."""
    bench = Bench()
    await bench.publish(Envelope("e1", {"a": 1}, {}), Envelope("e2", {"a": 1}, retried=True, attempt="1"))
    await bench.broker.publish([Message(b'{"counters":{"a":1}}')])
    await bench.flush()
    assert await bench.total() == 3
    _, found = await bench.store.applied("", "~", 10)
    assert [*found] == [key_of_envelope("e1")]


async def test_rubbish_is_buried_side_by_side_and_what_fails_comes_again() -> None:
    bench = Bench()
    await bench.broker.publish([Message(b"rubbish") for _ in range(4)])
    all_there = asyncio.Barrier(4)
    bury = bench.broker.bury

    async def slow(delivery: Delivery, reason: str) -> None:
        await all_there.wait()
        if delivery.message_id == "2":
            raise TransientError("away")
        await bury(delivery, reason)

    bench.broker.bury = slow  # type: ignore[method-assign] # a broker far away
    async with asyncio.timeout(NOBODY):
        with pytest.raises(TransientError):
            await bench.flusher.pull_once(0)
    assert sorted(bench.broker.buried()) == ["1", "3", "4"]
    assert bench.broker.unburied() == 1


async def test_who_stops_does_not_wait_for_a_broker_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for a pull, beyond the drain, nor for what is to be given back."""
    monkeypatch.setattr("flusher.flush.flusher.GIVE_BACK", 0.05)
    bench = Bench()
    await bench.publish(Envelope("e1", {"a": 1}, {}))
    await bench.flusher.pull_once(0)
    never, asked = asyncio.Event(), []

    async def hang(*_: object) -> Sequence[Delivery]:
        asked.append(1)
        await never.wait()
        return ()

    bench.broker.pull = bench.broker.give_back = bench.store.apply = hang  # type: ignore[method-assign,assignment]
    async with running(bench.flusher.run, 0.05):
        while not asked:
            await asyncio.sleep(0)
    assert len(asked) == 3


async def test_what_is_older_than_receipts_are_kept_is_buried_never_applied() -> None:
    """An ingest whose clock is behind makes nothing older. Where receipts do not expire by it, nothing is old."""
    bench = Bench(ages=True)
    await bench.published_ago("old", 8 * DAY)
    await bench.published_ago("young", 7 * DAY)
    await bench.flush(Envelope("behind", {"a": 10}, {}, (), int(bench.clock.now() * 1000) - 9 * DAY))
    assert await bench.total() == 11
    assert "older than receipts" in bench.broker.buried()["1"]
    forever = Bench(ages=False)
    await forever.published_ago("old", 800 * DAY)
    await forever.flush()
    assert await forever.total() == 1


async def test_what_came_too_late_counts_by_a_copy_that_came_in_time() -> None:
    """Its spool has forwarded it, and both are in one window."""
    bench = Bench(ages=True)
    await bench.published_ago("e", 7 * DAY + 2 * HOUR)
    await bench.published_ago("e", 6 * DAY + 12 * HOUR)
    await bench.flush()
    assert (await bench.total(), bench.broker.buried()) == (1, {})


async def test_a_flusher_that_stood_still_does_not_count_what_one_with_a_shorter_retention_has_counted() -> None:
    """The receipt is gone before the time until which the first one wanted to commit."""
    bench = Bench(ages=True)
    await bench.publish(Envelope("e", {"a": 1}, {}, (), int(bench.clock.now() * 1_000)))
    gate, flushes = Gate(bench.store), []
    processes: list[tuple[Any, int]] = [(gate, 30), (bench.store, 7)]
    for store, days in processes:
        (delivery,) = await bench.broker.pull(1, 10**9, 0)
        window = Window()
        window.add(delivery, codec.decode(delivery, "t"), aged=True)
        promise = promised(Millis(days * DAY), DAY)
        tools = tools_of(store, bench.broker, MemoryOverlay(bench.broker), bench.clock, promise=promise)
        flushes.append(asyncio.create_task(Flush(window, tools).run()))
        await (gate.reached.wait() if store is gate else flushes[1])
        bench.clock.turn(4 * HOUR / 1_000)
    bench.clock.turn(9 * DAY / 1_000)
    assert await bench.store.sweep(StoreMillis(int(bench.clock.now() * 1_000)), 100)
    gate.go.set()
    await flushes[0]
    assert await bench.total() == 1


class Apart(MemoryStore):
    """Its clock is not the flusher's."""

    def __init__(self, clock: ManualClock) -> None:
        self.own = ManualClock(clock.now())
        super().__init__(self.own)


async def test_a_flusher_whose_clock_is_ahead_buries_nothing_that_is_healthy() -> None:
    bench = Bench(Apart, ages=True)
    await bench.publish(Envelope("e", {"a": 1}, {}))
    bench.clock.turn(9 * DAY / 1_000)
    await bench.flush()
    assert await bench.total() == 1


async def test_what_became_too_old_on_its_way_to_the_store_is_not_applied() -> None:
    """The process stands still after it has judged, and the store's time goes on."""
    bench = Bench(Apart, ages=True)
    await bench.publish(Envelope("e", {"a": 1}, {}), Envelope("f", {"a": 1}, {}))
    apply = bench.store.apply

    async def long_on_its_way(commit: Commit) -> Instant:
        bench.store.apply = apply  # type: ignore[method-assign]
        bench.store.own.turn(9 * DAY / 1_000)  # type: ignore[attr-defined] # it is such a store
        return await bench.store.apply(commit)

    bench.store.apply = long_on_its_way  # type: ignore[method-assign]
    await bench.flush()
    assert await bench.total() == 0
    assert set(bench.broker.buried().values()) == {TOO_OLD}


async def test_a_message_that_somebody_else_has_settled_is_dropped_and_the_others_are_applied() -> None:
    bench = Bench()
    await bench.publish(Envelope("e", {"a": 1}, {}), Envelope("f", {"a": 1}, {}))
    apply = bench.store.apply
    asked: list[tuple[str, ...]] = []

    async def without_the_first(commit: Commit) -> Instant:
        asked.append(commit.bounds.messages)
        if "1" in commit.bounds.messages:
            raise GoneError(["1"])
        return await apply(commit)

    bench.flusher._tools = replace(bench.flusher._tools, one_file=True)
    bench.store.apply = without_the_first  # type: ignore[method-assign]
    await bench.flush()
    assert asked == [("1", "2"), ("2",)]
    assert await bench.total() == 1


@pytest.mark.parametrize(("one_file", "most"), [(True, MOST_IN_COMMIT_OF_FILE), (False, MOST_IN_COMMIT)])
async def test_a_commit_has_as_much_as_its_store_takes(one_file: bool, most: int) -> None:
    bench = Bench()
    each = most // 10
    for number in range(12):
        ids = tuple(Increment("a", 1, f"{number}:{place}") for place in range(each))
        await bench.publish(Envelope(f"e{number}", {}, keyed=ids))
    apply = bench.store.apply
    sizes: list[int] = []

    async def weighed(commit: Commit) -> Instant:
        sizes.append(len(commit.receipts) + len(commit.adds))
        return await apply(commit)

    bench.flusher._tools = replace(bench.flusher._tools, one_file=one_file)
    bench.store.apply = weighed  # type: ignore[method-assign]
    while await bench.flusher.pull_once(0):
        pass
    await bench.flusher.flush_once()
    assert sizes == [9 * (each + 1) + 1, 3 * (each + 1) + 1]
    assert await bench.total() == 12 * each


async def test_a_full_window_is_pulled_into_no_further() -> None:
    """A message alone may be larger than the window; a second one waits until it is flushed."""
    bench = Bench()
    await bench.publish(TOO_LARGE, Envelope("e2", {"a": 1}, {}))
    assert await bench.flusher.pull_once(0) == 1
    assert bench.flusher.due()


class Moody(MemoryStore):
    """Fails before, fails after, then works."""

    moods = 6

    async def apply(self, commit: Commit) -> Instant:
        self.moods -= 1
        if self.moods > 3:
            raise TransientError("before")
        if self.moods > 0:
            await super().apply(commit)
            raise TransientError("after")
        return await super().apply(commit)


async def test_a_commit_is_tried_again_with_pauses_that_grow_until_its_receipts_tell() -> None:
    bench = Bench(Moody)
    await bench.flush(Envelope("e1", {"a": 5}, {}))
    assert await bench.total() == 5
    assert bench.broker.unburied() == 0
    assert bench.pauses == sorted(bench.pauses)
    assert bench.pauses[0] < bench.pauses[-1]


async def stopped(bench: Bench, drain: float) -> None:
    """It runs until it holds something."""
    await bench.publish(Envelope("e1", {"a": 1}, {}))
    async with running(bench.flusher.run, drain):
        while not bench.flusher._window:
            await asyncio.sleep(0.001)


async def test_stop_flushes_what_is_held_though_it_is_not_due() -> None:
    bench = Bench()
    await stopped(bench, NOBODY)
    assert await bench.total() == 1
    assert bench.broker.unburied() == 0


async def test_what_is_not_settled_by_the_deadline_is_given_back() -> None:
    bench = Bench()
    bench.store.apply = lambda _: asyncio.Event().wait()  # type: ignore[method-assign,assignment,return-value]
    await stopped(bench, 0.05)
    (again,) = await bench.broker.pull(10, 10**6, 0)
    assert again.attempt == 2


async def test_a_task_that_dies_ends_the_flusher() -> None:
    """Nobody is left to believe that it is at work."""
    bench = Bench()
    bench.store.apply = failing(LookupError("a mistake"))  # type: ignore[method-assign,assignment]
    await bench.publish(TOO_LARGE)
    with pytest.raises(ExceptionGroup) as died:
        await asyncio.wait_for(bench.flusher.run(Stop(), NOBODY), 60)
    assert died.group_contains(LookupError, match="a mistake")


class Guilty(MemoryStore):
    """Stumbles over two of the counters: before the commit, or after it."""

    before: Exception | None = None

    async def apply(self, commit: Commit) -> Instant:
        stumbles = any(add.counter in {"x13", "x14"} for add in commit.adds)
        if stumbles and self.before:
            raise self.before
        time = await super().apply(commit)
        if stumbles:
            raise KeyError("after")
        return time


def of(*numbers: int) -> list[Envelope]:
    return [Envelope(f"e{number}", {f"x{number}": 1}, {}) for number in numbers]


@pytest.mark.parametrize(
    ("before", "why"),
    [
        (RefusedError("not this one"), "not this one"),
        (TypeError("before"), "a bug in Countersink (TypeError('before'))"),
        (None, None),
    ],
    ids=["refused", "a bug before the commit", "a bug after it"],
)
async def test_commits_are_halved_until_the_guilty_are_buried_alone_and_all_others_count_once(
    caplog: pytest.LogCaptureFixture, before: Exception | None, why: str | None
) -> None:
    """Where the commit had happened all the same, the receipts tell, and nothing is buried."""
    bench = Bench(Guilty)
    bench.store.before = before  # type: ignore[attr-defined] # it is such a store
    await bench.flush(*of(*range(40)))
    buried = bench.broker.buried()
    assert set(buried) == ({"14", "15"} if before else set())
    assert all(str(why) in said for said in buried.values())
    assert bench.broker.unburied() == 0
    totals = [await bench.total(f"x{number}") for number in range(40)]
    assert totals == [0 if number in {13, 14} and before else 1 for number in range(40)]
    assert any(record.exc_info for record in caplog.records) or isinstance(before, RefusedError)
    await bench.flush(*of(3, 13))
    assert (await bench.total("x3"), await bench.total("x13")) == (1, int(not before)), "no id is counted twice"


@pytest.mark.parametrize("broken", [DamagedError("damaged"), OSError("the disk"), MemoryError(), SettingsError("no")])
async def test_what_is_broken_itself_ends_the_flusher_and_buries_nothing(broken: Exception) -> None:
    bench = Bench()
    bench.store.apply = failing(broken)  # type: ignore[method-assign,assignment]
    with pytest.raises(type(broken)):
        await bench.flush(*of(1))
    assert not bench.broker.buried()


async def test_a_bug_that_every_message_meets_ends_the_flusher_before_it_buries_all() -> None:
    bench = Bench()
    number = MOST_BUGS + 20
    await bench.publish(*of(*range(number)))
    apply = bench.store.apply

    async def stumble(commit: Commit) -> Instant:
        if commit.adds:
            raise TypeError("a bug")
        return await apply(commit)

    bench.store.apply = stumble  # type: ignore[method-assign]
    while await bench.flusher.pull_once(0):
        pass
    with pytest.raises(TypeError):
        await bench.flusher.flush_once()
    assert len(await bench.store.dead("", 10 * number)) == MOST_BUGS


async def test_a_bug_in_reading_a_message_buries_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    read = codec.decode

    def stumble(delivery: Delivery, topic: str) -> tuple[Envelope, ...]:
        if delivery.message_id == "2":
            raise KeyError("x")
        return read(delivery, topic)

    bench = Bench()
    monkeypatch.setattr("flusher.flush.flusher.decode", stumble)
    await bench.flush(*of(0, 1, 2))
    assert [await bench.total(f"x{number}") for number in range(3)] == [1, 0, 1]
    assert [*bench.broker.buried()] == ["2"]
    assert "a bug in Countersink (KeyError('x'))" in bench.broker.buried()["2"]
