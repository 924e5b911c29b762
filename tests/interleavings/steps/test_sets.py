"""Interleavings of sets with each other, with increments and with reads, step by step."""

from collections.abc import Callable

import pytest

from shared.counters.setter import DELETE, RESET, SET
from tests.interleavings.steps.changes import BASE
from tests.interleavings.steps.world import IngestProcess, World


def changes(world: World) -> list[tuple[int, int]]:
    return [*world.store.changes.get("a", {}).values()]


def committed(world: World, ingest: IngestProcess) -> None:
    """Its commit is done, and it has done nothing since."""
    world.through(ingest, but="apply")
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
    world.count(one)
    world.apply_all()
    for reader in (one, other):
        world.look(reader)
    world.set(setter, "a", kind)
    zombie = setter.owner
    if late:
        world.through(setter, but="apply")
        world.crash_ingest(0)
        world.arrives_of(zombie)
    else:
        committed(world, setter)
        world.crash_ingest(0)
        world.network.calls.clear()
    world.clock.turn(1.0)
    world.look(one, max_age=0.0)
    assert world.history.epoch("a") == 1
    world.look(other)


def test_of_two_sets_at_once_the_second_begins_anew(world: World) -> None:
    first, second = world.ingests
    world.count(first)
    for ingest in world.ingests:
        world.set(ingest, "a", SET)
        world.through(ingest, but="apply")
    for ingest in (second, first):
        world.through(ingest)
    assert changes(world) == [(1, 2 * BASE), (2 * BASE, BASE)]
    assert world.history.epoch("a") == 2


def test_what_is_answered_after_the_reading_counts_after_the_set(world: World) -> None:
    """Also what others have read before the set: it is in neither of its values, so it must not be lost."""
    ingest, other = world.ingests
    world.count(other)
    world.set(ingest, "a", SET)
    world.through(ingest, but="apply")
    world.count(other)
    world.look(other)
    world.apply_all()
    world.through(ingest)
    assert changes(world) == [(1, BASE)]
    for one_of in world.ingests:
        world.look(one_of)
    assert world.store_total("a") == BASE + 4


def test_what_is_pending_is_found_by_the_set_and_applied_once(world: World) -> None:
    world.count(world.ingests[0])
    world.flush_until(0, "apply")
    world.set(world.ingests[1], "a", RESET)
    world.through(world.ingests[1])
    assert changes(world) == [(1, 0)]
    world.look(world.ingests[0])
    world.arrives_of(world.flushers[0].owner)
    world.look(world.ingests[0])
    assert world.store_total("a") == 0


def test_a_reader_with_an_old_base_sees_a_set_at_once(world: World) -> None:
    for ingest in world.ingests:
        world.look(ingest)
    world.set(world.ingests[0], "a", SET)
    world.through(world.ingests[0])
    assert world.history.epoch("a") == 1
    for ingest in world.ingests:
        world.look(ingest)


def test_a_commit_whose_answer_is_lost_is_done_once_and_answered(world: World) -> None:
    ingest = world.ingests[0]
    world.count(ingest)
    world.set(ingest, "a", SET)
    world.through(ingest, but="apply")
    (commit,) = world.network.calls
    world.run(world.network.arrive(commit, lose_answer=True))
    world.count(world.ingests[1])
    world.through(ingest)
    assert changes(world) == [(1, BASE)]
    assert world.history.epoch("a") == 1
    world.look(world.ingests[1])


def test_a_retry_raises_the_floor_too(world: World) -> None:
    """Who committed died before that; others have bases from before the set. What the retry finds it can't settle."""
    first, second = world.ingests
    world.look(second)
    world.set(first, "a", SET, "key")
    committed(world, first)
    world.network.calls.clear()
    world.crash_ingest(0)
    world.set(second, "a", SET, "key")
    if world.written:
        world.through(second, but="settle")
        world.network.lose(world.network.calls[0], for_good=True)
        world.settle()
    world.through(second)
    assert changes(world) == [(0, BASE)]
    assert world.history.epoch("a") == 1
    world.look(second)


def test_a_commit_that_comes_late_changes_nothing_any_more(world: World) -> None:
    """Its ingest died; a retry under the same key was faster, and somebody else has set the counter since."""
    first, second = world.ingests
    world.set(first, "a", DELETE, "key")
    world.through(first, but="apply")
    zombie = first.owner
    world.crash_ingest(0)
    world.count(second)
    for key in ("key", "other"):
        world.set(second, "a", DELETE, key)
        world.through(second)
    world.count(second)
    world.arrives_of(zombie)
    assert changes(world) == [(1, 0), (0, 0)]
    world.look(second)


def test_a_set_of_what_is_there_still_disturbs_another(world: World) -> None:
    """It changes no shard. All the same the other one must find it done."""
    first, second = world.ingests
    for ingest in (first, second):
        world.set(ingest, "a", RESET)
        world.through(ingest, but="apply")
    world.through(first)
    world.count(first)
    world.through(second)
    assert changes(world) == [(0, 0), (1, 0)]
