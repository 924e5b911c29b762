"""Interleavings of sets with each other, with increments and with reads, step by step."""

from collections.abc import Callable

import pytest

from shared.counters.setter import DELETE, RESET, SET
from tests.interleavings.steps.changes import BASE
from tests.interleavings.steps.test_races import apply_all, count, through
from tests.interleavings.steps.world import IngestProcess, World


@pytest.fixture(params=[False, True], ids=["kept", "written"])
def world(request: pytest.FixtureRequest, new_world: Callable[..., World]) -> World:
    return new_world(written=request.param)


def changes(world: World) -> list[tuple[int, int]]:
    return [*world.store.changes.get("a", {}).values()]


def read(world: World, ingest: IngestProcess, max_age: float = 60.0) -> None:
    world.read(ingest, ["a"], max_age)
    through(world, ingest)


def up_to(world: World, ingest: IngestProcess, name: str) -> None:
    """All that it sends arrives, except calls of this name."""
    world.arrives_of(ingest.owner, but=name)
    assert [call.name for call in world.network.calls if call.owner == ingest.owner] == [name]


def committed(world: World, ingest: IngestProcess) -> None:
    """Its commit is done, and it has done nothing since."""
    up_to(world, ingest, "apply")
    world.run(world.network.arrive(world.network.calls[0]))


@pytest.mark.parametrize("late", [False, True], ids=["killed after its commit", "its commit comes after its death"])
@pytest.mark.parametrize("kind", [SET, RESET, DELETE])
@pytest.mark.parametrize("written", [False, True], ids=["kept", "written"])
def test_a_set_that_one_reader_has_shown_is_in_what_others_read_later(
    new_world: Callable[..., World], kind: str, *, written: bool, late: bool
) -> None:
    """They have bases from before it, which are young enough."""
    world = new_world(ingests=3, written=written)
    setter, one, other = world.ingests
    count(world, one)
    apply_all(world)
    for reader in (one, other):
        read(world, reader)
    world.set(setter, "a", kind)
    zombie = setter.owner
    if late:
        up_to(world, setter, "apply")
        world.crash_ingest(0)
        world.arrives_of(zombie)
    else:
        committed(world, setter)
        world.crash_ingest(0)
        world.network.calls.clear()
    world.clock.turn(1.0)
    read(world, one, 0.0)
    assert world.history.epoch("a") == 1
    read(world, other)


def test_of_two_sets_at_once_the_second_begins_anew(world: World) -> None:
    first, second = world.ingests
    count(world, first)
    for ingest in world.ingests:
        world.set(ingest, "a", SET)
        up_to(world, ingest, "apply")
    for ingest in (second, first):
        through(world, ingest)
    assert changes(world) == [(1, 2 * BASE), (2 * BASE, BASE)]
    assert world.history.epoch("a") == 2


def test_what_is_answered_after_the_reading_counts_after_the_set(world: World) -> None:
    """Also what others have read before the set: it is in neither of its values, so it must not be lost."""
    ingest, other = world.ingests
    count(world, other)
    world.set(ingest, "a", SET)
    up_to(world, ingest, "apply")
    count(world, other)
    read(world, other)
    apply_all(world)
    through(world, ingest)
    assert changes(world) == [(1, BASE)]
    for one_of in world.ingests:
        read(world, one_of)
    assert world.store_total("a") == BASE + 4


def test_what_is_pending_is_found_by_the_set_and_applied_once(world: World) -> None:
    count(world, world.ingests[0])
    world.pull(0)
    world.arrives_of(world.flushers[0].owner)
    world.flush(0)
    flusher = world.flushers[0].owner
    world.arrives_of(flusher, but="apply")
    world.set(world.ingests[1], "a", RESET)
    through(world, world.ingests[1])
    assert changes(world) == [(1, 0)]
    read(world, world.ingests[0])
    world.arrives_of(flusher)
    read(world, world.ingests[0])
    assert world.store_total("a") == 0


def test_a_reader_with_an_old_base_sees_a_set_at_once(world: World) -> None:
    for ingest in world.ingests:
        read(world, ingest)
    world.set(world.ingests[0], "a", SET)
    through(world, world.ingests[0])
    assert world.history.epoch("a") == 1
    for ingest in world.ingests:
        read(world, ingest)


def test_a_commit_whose_answer_is_lost_is_done_once_and_answered(world: World) -> None:
    ingest = world.ingests[0]
    count(world, ingest)
    world.set(ingest, "a", SET)
    up_to(world, ingest, "apply")
    (commit,) = world.network.calls
    world.run(world.network.arrive(commit, lose_answer=True))
    count(world, world.ingests[1])
    through(world, ingest)
    assert changes(world) == [(1, BASE)]
    assert world.history.epoch("a") == 1
    read(world, world.ingests[1])


def test_a_retry_raises_the_floor_too(world: World) -> None:
    """Who committed died before that; others have bases from before the set. What the retry finds it can't settle."""
    first, second = world.ingests
    read(world, second)
    world.set(first, "a", SET, "key")
    committed(world, first)
    world.network.calls.clear()
    world.crash_ingest(0)
    world.set(second, "a", SET, "key")
    if world.written:
        up_to(world, second, "settle")
        world.network.lose(world.network.calls[0], for_good=True)
        world.settle()
    through(world, second)
    assert changes(world) == [(0, BASE)]
    assert world.history.epoch("a") == 1
    read(world, second)


def test_a_commit_that_comes_late_changes_nothing_any_more(world: World) -> None:
    """Its ingest died; a retry under the same key was faster, and somebody else has set the counter since."""
    first, second = world.ingests
    world.set(first, "a", DELETE, "key")
    up_to(world, first, "apply")
    zombie = first.owner
    world.crash_ingest(0)
    count(world, second)
    for key in ("key", "other"):
        world.set(second, "a", DELETE, key)
        through(world, second)
    count(world, second)
    world.arrives_of(zombie)
    assert changes(world) == [(1, 0), (0, 0)]
    read(world, second)


def test_a_set_of_what_is_there_still_disturbs_another(world: World) -> None:
    """It changes no shard. All the same the other one must find it done."""
    first, second = world.ingests
    for ingest in (first, second):
        world.set(ingest, "a", RESET)
        up_to(world, ingest, "apply")
    through(world, first)
    count(world, first)
    through(world, second)
    assert changes(world) == [(0, 0), (1, 0)]
