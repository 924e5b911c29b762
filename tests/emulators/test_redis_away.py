"""Redis goes, hangs, comes back empty or as a replica that lags: writes go on, and exact is said only when it is so."""

import asyncio
import time

import pytest

from deploy.processes import free_port
from shared.model.buckets import Instant
from shared.model.errors import OverloadedError, TransientError
from shared.model.fleet import NamedOverlay
from shared.redis import scripts
from shared.redis.scripts import Script
from shared.redis.server import MOST, TIMEOUT, Identity, findings_of
from tests.emulators.proxy import Proxy
from tests.emulators.redis_fixtures import (
    Fleet,
    RedisServer,
    Start,
    accept,
    exact,
    keys,
    names_in,
    through,
    until_exact,
    until_inexact,
)
from tests.world.scraping import until


async def test_a_process_that_never_reached_the_store_accepts_nothing_until_it_has(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody could know that it lives."""
    away(fleet, monkeypatch)
    overlay = await fleet.process()
    with pytest.raises(OverloadedError, match="not in the store's list"):
        overlay.check()
    with pytest.raises(OverloadedError):
        await accept(overlay, "e")
    assert await names_in(overlay) == (set(), False)
    monkeypatch.undo()
    await until_exact(overlay)
    await accept(overlay, "e")
    assert await names_in(overlay) == (keys("e"), True)


def away(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store does not answer."""

    async def fail(*_: object) -> None:
        raise TransientError("the store is away")

    monkeypatch.setattr(fleet.book, "look", fail)
    monkeypatch.setattr(fleet.book, "change", fail)


async def test_a_publish_under_way_while_everything_is_deleted(redis: RedisServer, fleet: Fleet) -> None:
    one, two = await fleet.process(), await fleet.process()

    async def block() -> None:
        async with one.entered([]):
            pass

    await block()
    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(accept(one, f"e{number}"))
            if number == 10:
                await asyncio.to_thread(redis.ask, "FLUSHALL")
    await until_exact(one, two)
    assert (await names_in(two))[0] == keys(*(f"e{number}" for number in range(20)))


async def test_it_hangs_and_many_wait_for_their_turn(redis: RedisServer, fleet: Fleet) -> None:
    """All of them learn it from the first."""
    overlay = await fleet.process()
    await accept(overlay, "before")
    redis.hang()
    try:
        begun = time.monotonic()
        assert await names_in(overlay) == (keys("before"), False)
        await asyncio.gather(*(names_in(overlay) for _ in range(20 * MOST)))
        assert time.monotonic() - begun < 4 * TIMEOUT
        await accept(overlay, "meanwhile")
    finally:
        redis.go_on()
    await until_exact(overlay)
    assert (await names_in(overlay))[0] == keys("before", "meanwhile")


async def test_a_lost_connection_is_no_reason_to_begin_anew(fleet: Fleet, network: Proxy) -> None:
    overlay = await fleet.process(through(network), patience=5.0)
    before = (await fleet.fleet()).overlay
    for number in range(10):
        network.cut()
        await accept(overlay, f"e{number}")
    await until_exact(overlay)
    assert (await names_in(overlay))[0] == keys(*(f"e{number}" for number in range(10)))
    assert (await fleet.fleet()).overlay == before


async def test_a_replica_never_says_that_it_sees_all(redis: RedisServer, start_redis: Start, fleet: Fleet) -> None:
    other = start_redis()
    overlay = await fleet.process(member=True)
    await accept(overlay, "e")
    assert await exact(overlay)
    redis.ask("REPLICAOF", "127.0.0.1", str(other.port))
    assert not await exact(overlay)
    redis.ask("REPLICAOF", "NO", "ONE")
    await until_exact(overlay)
    assert (await names_in(overlay))[0] == keys("e")


async def test_it_is_full(start_redis: Start) -> None:
    redis = start_redis("--maxmemory", "3mb", "--maxmemory-policy", "noeviction")
    fleet = Fleet(redis.url)
    overlay = await fleet.process()
    try:
        await accept(overlay, "before")
        assert redis.ask("SET", "much", "x" * 100_000)
        redis.ask("CONFIG", "SET", "maxmemory", "100kb")
        await accept(overlay, "meanwhile")
        assert not await exact(overlay)
        overlay.check()
        await overlay.settle(keys("before"), Instant(3))  # that needs no memory, and is what frees it
        redis.ask("CONFIG", "SET", "maxmemory", "3mb")
        await until_exact(overlay)
        assert await names_in(overlay) == (keys("meanwhile"), True)
    finally:
        await fleet.close()


async def test_the_store_is_away_as_well(redis: RedisServer, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nothing can be promised. What was published all the same counts."""
    overlay = await fleet.process()
    redis.kill()
    away(fleet, monkeypatch)
    with pytest.raises(TransientError, match="the store is away"):
        await accept(overlay, "e")
    monkeypatch.undo()
    await accept(overlay, "f")
    redis.start()
    await until_exact(overlay)
    assert (await names_in(overlay))[0] == keys("e", "f")


async def test_the_store_alone_is_away(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that have joined go on; nobody knows whether another one goes apart, so nothing is exact."""
    overlay = await fleet.process()
    away(fleet, monkeypatch)
    await accept(overlay, "e")
    assert await names_in(overlay) == (keys("e"), False)
    monkeypatch.undo()
    await until_exact(overlay)


async def test_the_copy_is_bounded(fleet: Fleet) -> None:
    overlay = await fleet.process(most_entries=2)
    await accept(overlay, "e1")
    await accept(overlay, "e2")
    with pytest.raises(OverloadedError, match=r"2 .* wait to be applied"):
        await accept(overlay, "e3")
    await overlay.settle(keys("e1"), Instant(1))
    await accept(overlay, "e3")


async def test_what_others_settle_is_forgotten_here(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.redis.own_entries.FIRST_LOOK", 0.1)
    one, two = await fleet.process(), await fleet.process(member=False)
    await accept(one, "e1")
    await accept(one, "e2")
    await two.settle(keys("e1"), Instant(5))

    async def forgotten() -> bool:
        return one._copy.entries == 1

    await until(forgotten)
    assert one._copy.view(["a"])["a"].floor == 5
    assert one._copy.pending.holds(keys("e2"))


async def test_flaws(start_redis: Start, redis: RedisServer, fleet: Fleet) -> None:
    good = await fleet.process(member=False)
    assert await findings_of(good._server) == []
    redis.ask("REPLICAOF", "127.0.0.1", str(start_redis().port))
    (found,) = await findings_of(good._server)
    assert "is a replica" in found.said
    cluster = start_redis("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    (found,) = await findings_of((await fleet.process(cluster.url, member=False))._server)
    assert "is a cluster" in found.said
    await until_inexact(good)


async def test_it_is_looked_for_now_and_then(redis: RedisServer, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as fast as it can refuse: a few times at once, and then after pauses of a fifth of `every` at least."""
    overlay = await fleet.process(every=0.3)
    looks = 0
    look = overlay._server.who

    async def counted(named: NamedOverlay) -> Identity:
        nonlocal looks
        looks += 1
        return await look(named)

    monkeypatch.setattr(overlay._server, "who", counted)

    async def many() -> bool:
        return looks >= 10

    begun = asyncio.get_running_loop().time()
    redis.kill()
    assert not await exact(overlay)
    await until(many)
    assert asyncio.get_running_loop().time() - begun > 0.3


async def test_a_store_that_hangs_holds_up_no_answer(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is accepted needs Redis alone."""
    overlay = await fleet.process()

    async def hang(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(fleet.book, "look", hang)
    monkeypatch.setattr(fleet.book, "change", hang)
    monkeypatch.setattr("shared.fleet.fleet_view.LOOK_WITHIN", 0.2)
    for number in range(20):
        async with asyncio.timeout(0.5):
            await accept(overlay, f"e{number}")
        assert not await exact(overlay)
        await asyncio.sleep(0.02)


async def test_a_counter_with_too_much_unapplied_is_read_here_alone_and_holds_up_nobody(
    redis: RedisServer, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis would tell it to every reader, again and again, and has one thread for all."""
    shown = scripts.VIEW.text.replace(str(scripts.MOST_IN_VIEW), "5")
    monkeypatch.setattr(scripts, "VIEW", Script(shown))
    one, other = await fleet.process(), await fleet.process()
    await until_exact(one)
    await until_exact(other)
    for number in range(3):
        await accept(one, f"e{number}")
    assert await names_in(other) == (keys("e0", "e1", "e2"), True)
    for number in range(3, 9):
        await accept(one, f"e{number}")
    assert await names_in(one) == (keys(*(f"e{number}" for number in range(9))), False)
    assert await names_in(other) == (set(), False)
    await other.settle([*keys(*(f"e{number}" for number in range(2, 9)))], Instant(5))
    assert await names_in(other) == (keys("e0", "e1"), True)
