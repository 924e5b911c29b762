"""How long an entry lives depends on what flushers promised in the store, not on the settings of any process."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from shared.config.settings import Settings
from shared.counters.reader import Reader
from shared.fleet import FleetView, Membership, new_member
from shared.model.buckets import DAY, Millis, StoreMillis, WallSeconds
from shared.model.receipts import Promise, promised
from shared.model.words import Commit, Envelope, Receipt, ShardAdd
from shared.redis.overlay import RedisOverlay
from shared.runtime.clock import SystemClock
from shared.wire.codec import encode
from shared.wiring.process import redis_overlay
from tests.emulators.redis_fixtures import Fleet, accept, keys, names_in, spool_in, until_exact
from tests.world.memory.store import MemoryStore

SHORT: dict[str, Any] = {"retention": 600, "spool_age": 60.0}
SMALL = promised(Millis(600_000), Millis(60_000))
DEFAULT = promised(Millis(7 * DAY), DAY)


class LaterClock(SystemClock):
    """The store's; hours pass in no time."""

    ahead = 0.0

    def now(self) -> WallSeconds:
        return WallSeconds(super().now() + self.ahead)


@pytest.fixture
def time(fleet: Fleet) -> LaterClock:
    clock = LaterClock()
    fleet.use(MemoryStore(clock))
    return clock


async def promise(fleet: Fleet, *promises: Promise) -> None:
    """As flushers do before they write a receipt."""
    for one in promises:
        await fleet.store.promise(one._replace(seen=await fleet.store.now()))


async def process(fleet: Fleet, **settings: Any) -> RedisOverlay:
    """An ingest with these settings."""
    looks = FleetView(fleet.book, fleet.clock, 0.0)
    membership = Membership(looks, fleet.clock, member=new_member(), topic="test", longest_look=0.0)
    chosen = Settings(overlay=fleet.url, **settings)
    overlay = redis_overlay(chosen, looks, fleet.clock, membership, fleet.store)
    await overlay.open()
    fleet.overlays.append(overlay)
    return overlay


async def steps(*overlays: RedisOverlay) -> None:
    """Each hears what time it is, and does what it does every second."""
    for overlay in overlays:
        await overlay._looks.get(0)
        await overlay._step()


@pytest.mark.parametrize(
    ("promises", "seconds", "there_and_exact"),
    [
        pytest.param([], 3 * 3_600, (True, True), id="a spool may forward it, and nobody has promised anything"),
        pytest.param([SMALL], 3 * 3_600, (True, True), id="a spool may forward it after the promise"),
        pytest.param([DEFAULT], 2 * 86_400, (True, True), id="its receipt lives"),
        pytest.param([SMALL, DEFAULT], 2 * 86_400, (True, False), id="its receipt may be gone"),
        pytest.param([DEFAULT], DEFAULT.life / 1_000 + 7_200, (False, True), id="it is older than all promises"),
    ],
)
async def test_how_long_an_entry_is_there_and_exact_is_by_the_promises_whatever_the_settings_are(
    fleet: Fleet, time: LaterClock, promises: list[Promise], seconds: float, there_and_exact: tuple[bool, bool]
) -> None:
    """The short settings add up to 71 minutes, and the spool may forward for 22 hours. Views are not sent again by
    Redis, where nothing has changed.
    """
    await promise(fleet, *promises)
    there, exact = there_and_exact
    processes = await process(fleet), await process(fleet, **SHORT)
    for number, one in enumerate(processes):
        await accept(one, f"{number}")
    for one in processes:
        assert await names_in(one) == (keys("0", "1"), True)
    time.ahead = seconds
    await steps(*processes)
    for one in processes:
        assert await names_in(one) == (keys("0", "1") if there else set(), exact)
        assert await one.holds(keys("0", "1")) == (keys("0", "1") if there else set())


async def test_nothing_is_exact_and_wrong_once_a_receipt_may_be_gone(fleet: Fleet, time: LaterClock) -> None:
    """It was applied by a flusher with short settings, and nobody has told Redis. Others with longer settings may
    still apply what is as old.
    """
    await promise(fleet, SMALL, DEFAULT)
    ingest = await process(fleet)
    reader = Reader(fleet.store, ingest, fleet.clock, cache_ttl=0.0)
    await accept(ingest, "e")
    await accept(ingest, "other", "b")
    (key,) = keys("e")
    receipt = Receipt(key, StoreMillis(await fleet.store.now() + SMALL.life))
    await fleet.store.apply(Commit((receipt,), (ShardAdd("a", 0, 1, 1),)))
    time.ahead = (SMALL.life + 60_000) / 1_000
    await fleet.store.sweep(await fleet.store.now(), 10)
    await steps(ingest)
    await accept(ingest, "young", "c")
    old, other, young, none = await reader.read(["a", "b", "c", "d"])
    assert (old.value, old.exact) == (2, False)
    assert (other.value, other.exact) == (1, False)
    assert (young.value, young.exact) == (1, True)
    assert (none.value, none.exact) == (0, True)
    assert (await reader.read(["c", "a"]))[1].exact is False, "nor from the cache"


async def test_with_too_many_old_entries_nothing_is_exact(
    fleet: Fleet, time: LaterClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.redis.scripts.MOST_UNSURE", 1)
    await promise(fleet, SMALL, DEFAULT)
    ingest = await process(fleet)
    await accept(ingest, "e")
    assert await names_in(ingest, "other") == (set(), True)
    time.ahead = 2 * 86_400.0
    await steps(ingest)
    assert await names_in(ingest, "other") == (set(), False)


async def test_one_whose_receipt_is_found_is_settled_and_then_exact(fleet: Fleet, time: LaterClock) -> None:
    await promise(fleet, SMALL, DEFAULT)
    ingest = await process(fleet)
    reader = Reader(fleet.store, ingest, fleet.clock, cache_ttl=0.0)
    await accept(ingest, "e")
    (key,) = keys("e")
    await fleet.store.apply(Commit((Receipt(key, StoreMillis(2**62)),), (ShardAdd("a", 0, 1, 1),)))
    time.ahead = 3 * 86_400.0
    await steps(ingest)
    assert (await reader.read(["a"]))[0].value == 1
    (reading,) = await reader.read(["a"])
    assert (reading.value, reading.exact) == (1, True)


async def test_a_row_of_a_spool_is_as_old_as_when_it_was_taken(fleet: Fleet, time: LaterClock, tmp_path: Path) -> None:
    """It may have been published then, and applied since."""
    await promise(fleet, SMALL, DEFAULT)
    spool = spool_in(tmp_path, time)
    await spool.publisher.publish([encode(Envelope("row", {"a": 1}))])
    time.ahead = 2 * 86_400.0
    ingest = await fleet.process(spool=spool)
    await steps(ingest)
    assert await names_in(ingest) == (keys("row"), False)
    assert await names_in(ingest, "other") == (set(), True)
    await spool.close()


async def test_while_no_flusher_has_been_there_for_long_nothing_is_forgotten(fleet: Fleet, time: LaterClock) -> None:
    """The next one may have any settings, and apply it."""
    await promise(fleet, SMALL)
    time.ahead = 10 * 86_400.0
    ingest = await process(fleet)
    await accept(ingest, "e")
    time.ahead = 13 * 86_400.0
    await steps(ingest)
    assert await names_in(ingest) == (keys("e"), False)
    await promise(fleet, DEFAULT)
    again = await process(fleet)
    assert (await names_in(again))[0] == keys("e")


async def test_nothing_is_exact_while_the_promises_are_unknown(
    fleet: Fleet, time: LaterClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown, promises = asyncio.Event(), fleet.store.promises

    async def asked() -> Any:
        if not unknown.is_set():
            raise TimeoutError
        return await promises()

    monkeypatch.setattr(fleet.store, "promises", asked)
    monkeypatch.setattr("shared.redis.overlay.AGAIN", 0.0)
    ingest = await process(fleet)
    await accept(ingest, "e")
    time.ahead = 30 * 86_400.0
    await steps(ingest)
    assert await names_in(ingest) == (keys("e"), False)
    unknown.set()
    await until_exact(ingest)
