"""Interleavings of compactions with flushes, sets and reads, step by step."""

from typing import Any

from tests.interleavings.steps.test_sets import changes
from tests.interleavings.steps.world import World


def shards(world: World) -> int:
    return world.store._configs["a"]


def in_flight(world: World, shard: int) -> None:
    """A flusher's commit to this shard, of 9, has been sent."""
    owner = world.flushers[0].owner
    while True:
        world.count(world.ingests[0])
        world.flush_until(0, "apply")
        (call,) = [call for call in world.network.calls if call.owner == owner]
        effect: Any = call.effect  # the store's `apply`, with its commit
        (add,) = effect.args[0].adds
        if add.shard == shard:
            return
        world.arrives_of(owner)


def test_an_increment_in_flight_to_the_highest_shard_goes_to_another(world: World) -> None:
    world.run(world.grow("a", 9))
    in_flight(world, 8)
    world.run(world.compact("a", 1))
    world.apply_all()
    assert shards(world) == 1


def test_one_that_arrived_first_is_moved(world: World) -> None:
    world.run(world.grow("a", 9))
    in_flight(world, 8)
    world.network.lose(next(call for call in world.network.calls if call.name == "apply"), for_good=False)
    world.deliver_all()
    world.run(world.compact("a", 2))
    assert shards(world) == 2


def test_a_set_that_chose_a_shard_which_went_begins_anew(world: World) -> None:
    first = world.ingests[0]
    for number in range(1, 9):
        world.count(first)
        world.apply_all()
        world.run(world.grow("a", 9))
        world.set(first, "a", "set")
        world.through(first, but="apply")
        world.run(world.compact("a", 1))
        world.through(first)
        assert len(changes(world)) == number
    for ingest in world.ingests:
        world.look(ingest)


def test_bases_from_before_stay_true(world: World) -> None:
    """It adds nothing and takes nothing away."""
    world.run(world.grow("a", 9))
    for _ in range(12):
        world.count(world.ingests[0])
        world.apply_all()
    for ingest in world.ingests:
        world.look(ingest)
    world.run(world.compact("a", 1))
    for _ in range(2):
        for ingest in world.ingests:
            world.look(ingest)
        world.count(world.ingests[1])
        world.look(world.ingests[0])
