"""Interleavings that broke earlier wordings of the rules, step by step. Each test is named for what must hold."""

from collections.abc import Callable

import pytest

from tests.interleavings.steps.world import POISON, IngestProcess, World


@pytest.fixture
def world(new_world: Callable[..., World]) -> World:
    return new_world()


def through(world: World, ingest: IngestProcess) -> None:
    world.arrives_of(ingest.owner)


def one(world: World, owner: str, name: str) -> None:
    """The next call of this process is `name`, and arrives."""
    call = next(call for call in world.network.calls if call.owner == owner)
    assert call.name == name
    world.run(world.network.arrive(call))


def count(world: World, ingest: IngestProcess, counter: str = "a") -> None:
    world.increment(ingest, counter)
    through(world, ingest)


def read(world: World, ingest: IngestProcess) -> None:
    world.read(ingest, ["a"], None)
    through(world, ingest)


def apply_all(world: World, index: int = 0, *, acks: bool = True) -> None:
    for _ in range(20):
        world.round_of(index, acks=acks)


def test_a_snapshot_older_than_a_removal_is_void(world: World) -> None:
    """Entry applied and removed while a snapshot from before it is in flight: it must not be installed without it."""
    ingest = world.ingests[0]
    count(world, ingest)
    world.read(ingest, ["a"], None)
    one(world, ingest.owner, "snapshot")
    apply_all(world)
    through(world, ingest)
    read(world, ingest)


def test_the_overlay_is_read_after_the_instant_is_chosen(world: World) -> None:
    """Read before it, an entry that was made and applied in between is in the base and, unasked, in the overlay."""
    ingest, other = world.ingests
    world.read(ingest, ["a"], None)
    for name in ("snapshot", "view"):
        count(world, other)
        apply_all(world, acks=False)
        one(world, ingest.owner, name)
    through(world, ingest)
    read(world, ingest)


def test_an_id_in_two_envelopes_counts_once_while_both_are_pending(world: World) -> None:
    for ingest in world.ingests:
        world.send_keyed(ingest, "a", "id")
        through(world, ingest)
    read(world, world.ingests[0])


def test_a_retry_after_the_base_has_counted_its_id_is_not_pending(world: World) -> None:
    ingest = world.ingests[0]
    world.send_keyed(ingest, "a", "id")
    through(world, ingest)
    apply_all(world)
    read(world, ingest)
    world.send_keyed(ingest, "a", "id")
    through(world, ingest)
    read(world, ingest)


def test_a_commit_that_arrives_after_its_flusher_died_is_counted_once(world: World) -> None:
    """The zombie's commit and that of its successor meet in the receipts, in either order."""
    count(world, world.ingests[0])
    zombie = world.flushers[0].owner
    world.pull(0)
    world.arrives_of(zombie)
    world.flush(0)
    world.arrives_of(zombie, but="apply")
    world.crash_flusher(0)
    world.broker.expire_leases()
    apply_all(world, 1)
    world.arrives_of(zombie)
    read(world, world.ingests[0])


def test_a_commit_whose_answer_is_lost_is_counted_once(world: World) -> None:
    count(world, world.ingests[0])
    owner = world.flushers[0].owner
    world.pull(0)
    world.arrives_of(owner)
    world.flush(0)
    world.arrives_of(owner, but="apply")
    (commit,) = [call for call in world.network.calls if call.name == "apply"]
    world.run(world.network.arrive(commit, lose_answer=True))
    world.arrives_of(owner)
    assert world.broker.unburied() == 0


def test_whoever_finds_a_receipt_dead_buries_the_message(world: World) -> None:
    """The one who wrote that receipt may have died before it did."""
    count(world, world.ingests[0], POISON)
    owner = world.flushers[0].owner
    world.pull(0)
    world.arrives_of(owner)
    world.flush(0)
    world.arrives_of(owner, but="bury")
    assert [call.name for call in world.network.calls] == ["bury"]
    world.network.calls.clear()
    world.crash_flusher(0)
    world.broker.expire_leases()
    apply_all(world, 1)
    assert world.broker.buried() == {"1": "given up before"}


def test_poison_does_not_take_its_neighbours_along(world: World) -> None:
    for counter in ("a", POISON, "b"):
        count(world, world.ingests[0], counter)
    apply_all(world)
    assert list(world.broker.buried().values()) == ["poison"]
    assert world.broker.unburied() == 0


def test_the_second_of_two_equal_ids_counts_when_the_first_is_dead(world: World) -> None:
    """A window drops the second only for this commit, not for good."""
    ingest = world.ingests[0]
    world.increment(ingest, POISON)
    world.send_keyed(ingest, "a", "id")
    through(world, ingest)
    world.send_keyed(ingest, "a", "id")
    through(world, ingest)
    apply_all(world)
    assert world.store_total("a") == 1


def test_a_message_whose_ack_got_lost_comes_again_and_is_not_counted_again(world: World) -> None:
    count(world, world.ingests[0])
    apply_all(world, acks=False)
    world.network.calls.clear()
    world.crash_flusher(0)
    world.broker.expire_leases()
    apply_all(world, 1)
    assert world.broker.unburied() == 0
    assert world.store_total("a") == 1


@pytest.fixture
def written(new_world: Callable[..., World]) -> World:
    return new_world(written=True)


def test_an_entry_that_is_settled_before_it_is_confirmed_comes_back_late(written: World) -> None:
    """A base that has it already, and did not ask for its receipt, would count it twice."""
    ingest, reader = written.ingests
    written.increment(ingest, "a")
    written.arrives_of(ingest.owner, but="confirm")
    apply_all(written)
    read(written, reader)
    one(written, ingest.owner, "confirm")
    read(written, reader)


def test_an_entry_that_is_not_confirmed_adds_nothing(written: World) -> None:
    """Its publish may fail: readers would see it go."""
    ingest, reader = written.ingests
    written.increment(ingest, "a")
    one(written, ingest.owner, "begin")
    read(written, reader)
    (publish,) = written.network.calls
    written.network.lose(publish, for_good=True)
    written.settle()
    through(written, ingest)
    read(written, reader)


def test_an_entry_that_is_confirmed_after_a_snapshot_was_taken_is_known_to_it(written: World) -> None:
    """It was there, unconfirmed, so the snapshot asked for its receipt."""
    ingest, reader = written.ingests
    written.increment(ingest, "a")
    written.arrives_of(ingest.owner, but="confirm")
    for step in (written.pull, written.flush):
        step(0)
        written.arrives_of(written.flushers[0].owner, but="settle")
    assert written.store_total("a") == 1
    read(written, reader)
    one(written, ingest.owner, "confirm")
    read(written, reader)


def test_what_is_withdrawn_by_a_publish_that_comes_later_counts_when_it_is_applied(written: World) -> None:
    """Nobody was told that it was accepted."""
    ingest, reader = written.ingests
    written.increment(ingest, "a")
    one(written, ingest.owner, "begin")
    (publish,) = written.network.calls
    written.network.lose(publish, for_good=False)
    written.settle()
    through(written, ingest)
    read(written, reader)
    apply_all(written)
    read(written, reader)
