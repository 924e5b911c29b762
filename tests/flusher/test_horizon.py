"""When receipts are swept, and when they expire, if the wall clock jumps."""

from flusher.horizon import PACE, SETTLES, Horizon
from shared.receipts import CLIENT_IDS_REMEMBERED, DAY
from shared.words import Commit, Envelope, Increment, Receipt
from tests.flusher.test_worker import Bench

HOUR = 3_600.0


class TwoClocks:
    """The wall clock jumps, the other one does not."""

    def __init__(self) -> None:
        self.wall, self.monotonic = 1_800_000_000.0, 50.0

    def pass_(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds


def test_a_right_clock_is_followed_once_it_has_settled() -> None:
    clocks, horizon = TwoClocks(), Horizon()
    assert horizon.until(clocks.wall, clocks.monotonic) is None
    clocks.pass_(SETTLES - 1)
    assert horizon.until(clocks.wall, clocks.monotonic) is None
    for _ in range(100):
        clocks.pass_(10)
        assert horizon.until(clocks.wall, clocks.monotonic) == clocks.wall


def test_a_jump_ahead_is_followed_at_ten_times_the_pace_of_time() -> None:
    clocks, horizon = TwoClocks(), Horizon()
    horizon.until(clocks.wall, clocks.monotonic)
    clocks.pass_(SETTLES)
    before = horizon.until(clocks.wall, clocks.monotonic)
    assert before == clocks.wall
    clocks.wall += 30 * 24 * HOUR
    for _ in range(36):
        clocks.pass_(100)
        until = horizon.until(clocks.wall, clocks.monotonic)
    assert until == before + PACE * HOUR
    clocks.wall -= 30 * 24 * HOUR
    clocks.pass_(10)
    assert horizon.until(clocks.wall, clocks.monotonic) == clocks.wall


def test_who_was_off_for_long_catches_up() -> None:
    clocks, horizon = TwoClocks(), Horizon()
    horizon.until(clocks.wall, clocks.monotonic)
    clocks.wall += 9 * HOUR
    clocks.pass_(HOUR)
    assert horizon.until(clocks.wall, clocks.monotonic) == clocks.wall


def test_a_clock_that_is_set_right_soon_after_the_start_has_swept_nothing() -> None:
    clocks, horizon = TwoClocks(), Horizon()
    clocks.wall += 30 * 24 * HOUR
    horizon.until(clocks.wall, clocks.monotonic)
    clocks.pass_(60)
    clocks.wall -= 30 * 24 * HOUR
    horizon.until(clocks.wall, clocks.monotonic)
    clocks.pass_(SETTLES)
    assert horizon.until(clocks.wall, clocks.monotonic) == clocks.wall


async def test_a_flusher_sweeps_what_has_expired_and_no_more() -> None:
    bench = Bench()
    now = int(bench.clock.now() * 1000)
    await bench.store.apply(Commit((Receipt("old", now), Receipt("young", now + DAY)), ()))
    await bench.flusher.sweep_once()
    assert set((await bench.store.receipts(["old", "young"])).found) == {"old", "young"}
    bench.clock.turn(SETTLES)
    await bench.flusher.sweep_once()
    assert set((await bench.store.receipts(["old", "young"])).found) == {"young"}


async def test_a_receipt_never_expires_before_what_it_stands_for_by_a_clock_that_was_set_back() -> None:
    bench = Bench()
    published = int(bench.clock.now() * 1000)
    await bench.publish(Envelope("e1", {}, {}, (Increment("a", 1, "id"),), published))
    bench.clock.turn(-30 * 24 * HOUR)
    await bench.flusher.pull_once(0)
    await bench.flusher.flush_once()
    bench.clock.turn(30 * 24 * HOUR)
    assert await bench.store.sweep(published + CLIENT_IDS_REMEMBERED - 1, 10) == 0
