"""Members that are cut off, come back, crash or leave; what a new fleet may trust; who clears a suspicion."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.errors import OverloadedError, TransientError
from shared.reader import Reader
from shared.redis import fleet_scripts
from shared.redis.evidence import SILENCE
from shared.redis.links import Script
from shared.redis.member import Member
from shared.redis.overlay import RedisOverlay
from shared.redis.scripts import WRITE
from shared.words import Commit, Envelope, Receipt, ShardAdd
from tests.emulators.proxy import Proxy, proxy
from tests.emulators.redis_fixtures import (
    LEASE,
    PERIOD,
    Fleet,
    RedisServer,
    accept,
    acquainted,
    exact,
    keys,
    names_in,
    until,
    until_exact,
    until_inexact,
)


@pytest.fixture
async def network(redis: RedisServer) -> AsyncIterator[Proxy]:
    async with proxy(redis.host) as network:
        yield network


def through(network: Proxy) -> str:
    return f"redis://{network.address}/0"


def member_of(overlay: RedisOverlay) -> Member:
    assert overlay._member is not None
    return overlay._member


async def test_one_that_is_cut_off_accepts_and_is_seen_when_it_is_back(fleet: Fleet, network: Proxy) -> None:
    one, two = await fleet.process(through(network), period=20.0), await fleet.process(lease=10.0)
    await accept(one, "before")
    network.close()
    begun = time.monotonic()
    await accept(one, "apart")
    assert time.monotonic() - begun > LEASE / 2
    assert await names_in(two) == (keys("before"), False), "somebody may accept what is not seen"
    assert await names_in(one) == (keys("before", "apart"), False)
    network.open()
    await until_exact(two, one)
    for overlay in (one, two):
        assert await names_in(overlay) == (keys("before", "apart"), True)


async def test_nothing_is_exact_as_long_as_one_may_accept_unseen(fleet: Fleet, network: Proxy) -> None:
    """From the moment it answers without Redis, until it has written all of it."""
    one, two = await fleet.process(through(network), period=30.0), await fleet.process(lease=10.0)
    answered: set[str] = set()
    done = asyncio.Event()

    async def write() -> None:
        for number in range(400):
            await accept(one, f"e{number}")
            answered.add(f"e{number}")
            await asyncio.sleep(0.002)
        done.set()

    async def look() -> None:
        while not done.is_set():
            before = set(answered)
            seen, exact = await names_in(two)
            assert not exact or keys(*before) <= seen
            await asyncio.sleep(0.001)

    async def disturb() -> None:
        for _ in range(3):
            await asyncio.sleep(0.1)
            network.close()
            await asyncio.sleep(LEASE * 1.5)
            network.open()
            await until_exact(two)

    await asyncio.gather(write(), look(), disturb())
    await until_exact(two)
    assert (await names_in(two))[0] == keys(*answered)


async def test_one_that_crashed_is_forgotten(fleet: Fleet) -> None:
    one, two = await fleet.process(), await fleet.process()
    await accept(one, "e")
    await fleet.crash(one)
    await until_inexact(two)
    await until_exact(two)
    assert await names_in(two) == (keys("e"), True)


async def test_one_that_leaves_is_not_missed(redis: RedisServer, fleet: Fleet) -> None:
    one, two = await fleet.process(), await fleet.process()
    await accept(one, "e")
    fleet.overlays.remove(one)
    await one.close()
    assert await names_in(two) == (keys("e"), True)
    assert redis.ask("HLEN", "countersink:test:members") == "1"


async def test_one_that_was_cut_off_too_long_accepts_nothing_until_it_is_back(fleet: Fleet, network: Proxy) -> None:
    """Others stopped waiting for it: they count on it that nothing is accepted after its period."""
    one, two = await fleet.process(through(network)), await fleet.process()
    network.close()
    await accept(one, "apart")
    member = member_of(one)

    async def fenced() -> bool:
        try:
            await accept(one, f"apart-{time.monotonic()}")
        except OverloadedError:
            return all(apart.fenced for apart in member._known.values())
        return False

    await until(fenced)
    with pytest.raises(OverloadedError):
        one.check()
    assert not await exact(two)
    network.open()

    async def accepts() -> bool:
        return not any(apart.fenced for apart in member._known.values())

    await until(accepts)
    await accept(one, "back")
    assert keys("apart", "back") <= (await names_in(two))[0]


async def suspected(fleet: Fleet, network: Proxy) -> RedisOverlay:
    """One accepted without Redis and was never seen again; another lives."""
    one, two = await fleet.process(through(network)), await fleet.process()
    network.close()
    await accept(one, "apart")
    await fleet.crash(one)

    async def dropped() -> bool:
        known = member_of(two).fleet
        return known is not None and known.suspect and len(known.members) == 1

    begun = time.monotonic()
    await until(dropped)
    assert time.monotonic() - begun > PERIOD / 2
    assert not await exact(two)
    return two


async def test_what_was_lost_is_suspected_until_somebody_says_otherwise(fleet: Fleet, network: Proxy) -> None:
    two = await suspected(fleet, network)
    epoch = (await two.view(["a"]))["a"].epoch
    await two.trust()
    await until_exact(two)
    assert (await two.view(["a"]))["a"].epoch != epoch, "bases of before may lack it"


async def test_flushers_clear_a_suspicion_by_what_they_pull(fleet: Fleet, network: Proxy) -> None:
    two = await suspected(fleet, network)
    flusher = await fleet.process(member=False, flusher_lease=-9.0)
    epoch = (await two.view(["a"]))["a"].epoch
    until_ = time.monotonic() + 2.5
    while time.monotonic() < until_:
        flusher.pulled(int(time.time() * 1000))  # not much later than the suspicion
        assert not await exact(two)
        await asyncio.sleep(0.05)

    async def pulls() -> bool:
        flusher.pulled(int((time.time() + 60) * 1000))
        return await exact(two)

    begun = time.monotonic()
    await until(pulls)
    assert time.monotonic() - begun > 0.5, "what was pulled a moment ago still counts"
    assert (await two.view(["a"]))["a"].epoch != epoch, "bases of before may lack it"


async def test_a_flusher_that_holds_its_window_and_does_not_pull_keeps_up_the_suspicion(
    fleet: Fleet, network: Proxy
) -> None:
    """Its leases are prolonged, so that nobody else sees what it holds. It counts no more when it is gone."""
    two = await suspected(fleet, network)
    full, other = [await fleet.process(member=False, flusher_lease=-9.0) for _ in range(2)]
    full.pulled(int(time.time() * 1000) - 60_000)
    until_ = time.monotonic() + SILENCE + 3.0
    while time.monotonic() < until_:
        other.pulled(int((time.time() + 60) * 1000))
        assert not await exact(two)
        await asyncio.sleep(0.05)
    await fleet.crash(full)

    async def pulls() -> bool:
        other.pulled(int((time.time() + 60) * 1000))
        return await exact(two)

    await until(pulls)


async def test_a_new_fleet_is_exact_at_once(redis: RedisServer, fleet: Fleet) -> None:
    one = await fleet.process(grace=60.0)
    assert await exact(one)


async def test_a_new_fleet_on_a_used_store_is_not(redis: RedisServer, fleet: Fleet) -> None:
    """Redis lost all while nobody was there to tell it again."""
    one = await fleet.process()
    await accept(one, "lost")
    await fleet.crash(one)
    redis.ask("FLUSHALL")
    two = await fleet.process()
    await asyncio.sleep(LEASE)
    assert not await exact(two)
    await two.trust()
    await until_exact(two)


async def test_entries_of_those_who_left_are_suspected_when_they_are_lost(redis: RedisServer, fleet: Fleet) -> None:
    one, two = await fleet.process(), await fleet.process()
    await acquainted(one, two)
    await accept(one, "e")
    fleet.overlays.remove(one)
    await one.close()

    async def known() -> bool:
        fleet = member_of(two).fleet
        return fleet is not None and fleet.orphans == 1

    await until(known)
    redis.ask("FLUSHALL")
    await until(lambda: registered(redis, 1))
    await asyncio.sleep(LEASE)
    assert not await exact(two)


async def registered(redis: RedisServer, members: int) -> bool:
    return redis.ask("HLEN", "countersink:test:members") == str(members)


async def test_one_that_died_together_with_redis_is_suspected(redis: RedisServer, fleet: Fleet) -> None:
    """What it had there nobody writes again."""
    one, two = await fleet.process(), await fleet.process()
    await acquainted(one, two)
    await accept(one, "lost")

    async def knows() -> bool:
        known = member_of(two).fleet
        return known is not None and len(known.members) == 2

    await until(knows)
    await fleet.crash(one)
    redis.ask("FLUSHALL")

    async def dropped() -> bool:
        known = member_of(two).fleet
        return known is not None and known.suspect

    async def watch() -> bool:
        assert not await exact(two)
        return await dropped()

    await until(watch)
    await two.trust()
    await until_exact(two)


async def test_a_renewal_that_comes_late_revives_nothing(redis: RedisServer, fleet: Fleet) -> None:
    one, two = await fleet.process(), await fleet.process(lease=20.0)
    member = member_of(one)
    name, epoch = member._id, member._epoch
    await fleet.crash(one)
    await until_inexact(two)
    later = int(time.time() * 1000) + 60_000
    assert (await two._server.ask(fleet_scripts.RENEW, epoch, name, later))[0] == b"lapsed"
    assert not await exact(two)


async def test_what_a_lapsed_member_writes_is_refused(fleet: Fleet) -> None:
    """It may have been taken for dead."""
    one, two = await fleet.process(), await fleet.process()
    member = member_of(one)
    before = [*member.ids]
    await two._server.ask(fleet_scripts.LEAVE, *before)
    await accept(one, "e")
    assert [*member.ids] != before
    await until_exact(two)
    assert await names_in(two) == (keys("e"), True)


async def test_one_that_nobody_had_heard_of_is_suspected(redis: RedisServer, fleet: Fleet) -> None:
    """It came, accepted and died between two renewals of the other, and what it wrote is gone."""
    one = await fleet.process(lease=6.0)
    await exact(one)
    two = await fleet.process()
    await accept(two, "lost")
    await fleet.crash(two)
    known = member_of(one).fleet
    assert known is not None
    assert len(known.members) == 1
    redis.ask("FLUSHALL")

    async def told() -> bool:
        assert not await exact(one)
        fleet = member_of(one).fleet
        return fleet is not None and fleet.epoch != known.epoch

    await until(told)
    await asyncio.sleep(0.5)
    assert not await exact(one)
    await one.trust()
    await until_exact(one)


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("base", ["before", "after"])
async def test_bases_and_what_was_accepted_unseen(fleet: Fleet, network: Proxy, base: str, *, settled: bool) -> None:
    """It is applied while it can't be written. A base of before lacks it, and must not do once nobody tells of it; one
    of after holds it, and must not be added to an entry that comes late.
    """
    one, two = await fleet.process(through(network), period=30.0), await fleet.process(lease=10.0)
    reader = Reader(fleet.store, two, fleet.clock, cache_ttl=60.0)
    if base == "before":
        assert (await reader.read(["a"]))[0].value == 0
    network.close()
    await accept(one, "apart")
    (key,) = keys("apart")
    applied = await fleet.store.apply(Commit((Receipt(key, 2**62),), (ShardAdd("a", 0, 1, 1),)))
    if base == "after":
        assert (await reader.read(["a"]))[0].value == 1
    if settled:
        with pytest.raises(TransientError):
            await one.settle([key], applied)
    network.open()
    await until_exact(two)
    (reading,) = await reader.read(["a"])
    assert reading.exact
    assert reading.value == 1


async def test_a_large_envelope_is_whole_though_redis_began_anew_meanwhile(
    redis: RedisServer, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first steps of the write were in what is gone, and the last ones were not."""
    monkeypatch.setattr("shared.redis.entries.MOST_IN_ONE_STEP", 1)
    one, two = await fleet.process(timeout=5.0), await fleet.process(timeout=5.0)
    await acquainted(one, two)
    member, server = member_of(one), one._server
    ask, asked = server.ask, 0

    async def disturbed(script: Script, *arguments: Any, looking: bool = False) -> Any:
        nonlocal asked
        reply = await ask(script, *arguments, looking=looking)
        if script is WRITE and arguments[2] == 1:
            asked += 1
            if asked == 2:
                redis.ask("FLUSHALL")
                before = [*member.ids]
                await until(lambda: changed(before))
        return reply

    async def changed(before: list[str]) -> bool:
        one._server.wake.set()
        return [*member.ids] != before and member.registered

    monkeypatch.setattr(server, "ask", disturbed)
    async with one.entered([Envelope("large", {f"n{number}": 1 for number in range(3_500)})]):
        pass
    await until_exact(two)
    views = await two.view([f"n{number}" for number in range(3_500)])
    assert all(len(view.entries) == 1 and view.entries[0].confirmed for view in views.values())


async def test_one_that_was_never_opened_can_be_closed(fleet: Fleet) -> None:
    await (await fleet.process(opened=False)).close()
