"""Interleavings of replays with flushers and with each other, step by step."""

from collections.abc import Callable

import pytest

from tests.interleavings.steps.test_races import apply_all, count, read
from tests.interleavings.steps.world import POISON, World


@pytest.fixture(params=[False, True], ids=["in the broker", "apart"])
def world(request: pytest.FixtureRequest, new_world: Callable[..., World]) -> World:
    """One dead letter, of which the cause is gone."""
    world = new_world(written=request.param)
    count(world, world.ingests[0], POISON)
    apply_all(world)
    assert len(world.broker.buried()) == 1
    world.store.picky = False
    return world


def until(world: World, index: int, name: str) -> None:
    """All that this replay sends arrives, up to a call of that name."""
    owner = world.replayers[index].owner
    world.replay(index)
    while (call := next(call for call in world.network.calls if call.owner == owner)).name != name:
        world.run(world.network.arrive(call))


def counted_once(world: World) -> None:
    assert world.store_total(POISON) == 1
    read(world, world.ingests[0])


def test_killed_before_it_forgets_the_next_one_only_forgets(world: World) -> None:
    until(world, 0, "forget")
    assert world.store_total(POISON) == 1
    world.network.calls.clear()
    world.crash_replayer(0)
    assert len(world.broker.buried()) == 1
    world.replay(1)
    world.deliver_all()
    assert world.broker.buried() == {}
    counted_once(world)


def test_of_two_at_once_one_counts(world: World) -> None:
    until(world, 0, "apply")
    until(world, 1, "apply")
    world.deliver_all()
    assert world.broker.buried() == {}
    counted_once(world)


def test_a_commit_of_a_replay_that_comes_twice_and_late_counts_once(world: World) -> None:
    until(world, 0, "apply")
    commit = next(call for call in world.network.calls if call.name == "apply")
    world.network.lose(commit, for_good=False)
    world.crash_replayer(0)
    world.replay(1)
    world.deliver_all()
    counted_once(world)


def test_a_flusher_that_found_it_dead_may_bury_it_after_the_replay(new_world: Callable[..., World]) -> None:
    """A second letter of what is counted: it is only forgotten."""
    world = new_world(written=True)
    count(world, world.ingests[0], POISON)
    zombie = world.flushers[0].owner
    world.pull(0)
    world.arrives_of(zombie)
    world.flush(0)
    world.arrives_of(zombie, but="bury")
    world.broker.expire_leases()
    apply_all(world, 1)
    assert len(world.broker.buried()) == 1
    world.store.picky = False
    world.replay(0)
    world.arrives_of(world.replayers[0].owner)
    assert world.broker.buried() == {}
    world.arrives_of(zombie)
    assert len(world.broker.buried()) == 1
    counted_once(world)


def test_what_a_reader_saw_pending_it_sees_applied(world: World) -> None:
    """At each step of the replay."""
    reader = world.ingests[1]
    for name in ("receipts", "apply", "forget"):
        until(world, 0, name)
        world.read(reader, [POISON], None)
        world.arrives_of(reader.owner)
        world.raise_mistakes()
    world.deliver_all()
    counted_once(world)
