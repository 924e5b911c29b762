"""Dead receipts as readers and sets see them, step by step; an overlay that ingests write forgets what they keep."""

from collections.abc import Callable

import pytest

from shared.counters.reader import Reader
from shared.counters.setter import SET
from shared.memory.overlay import ProcessOverlay
from shared.model.words import APPLIED, DROPPED, Reading
from tests.interleavings.steps.changes import BASE
from tests.interleavings.steps.test_races import apply_all, count, through
from tests.interleavings.steps.world import POISON, IngestProcess, World
from tests.world.memory.exact_overlay import ExactOverlay


@pytest.fixture
def world(new_world: Callable[..., World]) -> World:
    """One dead letter; the flusher has settled its entry."""
    world = new_world(written=True)
    count(world, world.ingests[0], POISON)
    apply_all(world)
    assert len(world.broker.buried()) == 1
    return world


def read(world: World, ingest: IngestProcess, max_age: float = 60.0) -> None:
    """The world checks that the reading is exact, and holds all that was answered once."""
    world.read(ingest, [POISON], max_age)
    through(world, ingest)
    world.raise_mistakes()


def reading(reader: Reader, world: World, name: str = POISON) -> Reading:
    """With a base of its own, if it is new; the network is passed by."""
    return world.loop.run_until_complete(reader.read([name], 60.0))[0]


def new_reader(world: World, overlay: ProcessOverlay | None = None) -> Reader:
    return Reader(world.store, overlay or world.overlay, world.clock, 1.0)


def test_no_overlay_has_to_remember_a_dead_letter(world: World) -> None:
    assert isinstance(world.overlay, ProcessOverlay)
    assert not world.overlay._there
    for ingest in world.ingests:
        read(world, ingest)
    restarted = new_reader(world, ExactOverlay(world.clock))
    found = reading(restarted, world)
    assert (found.value, found.pending, found.exact, found.exists) == (1, 1, True, True)


def test_a_base_from_before_the_burial_is_void_when_the_entry_is_gone(new_world: Callable[..., World]) -> None:
    """Without a floor it would say what was true without the dead one, and no entry would add it."""
    world = new_world(written=True)
    reader = world.ingests[1]
    count(world, world.ingests[0], POISON)
    read(world, reader)
    apply_all(world)
    read(world, reader)


def test_a_set_finds_what_is_dead_and_a_replay_changes_nothing_after_it(world: World) -> None:
    ingest = world.ingests[1]
    world.store.picky = False
    world.set(ingest, POISON, SET)
    through(world, ingest)
    assert [*world.store.changes[POISON].values()] == [(1, BASE)]
    read(world, ingest)
    world.replay(0)
    world.deliver_all()
    assert world.store_total(POISON) == BASE
    read(world, ingest)


def test_a_letter_that_the_broker_has_lost_is_replayed_from_the_store(world: World) -> None:
    world.lose_letters()
    assert world.broker.buried() == {}
    read(world, world.ingests[0])
    world.store.picky = False
    world.replay(0)
    world.deliver_all()
    assert world.store_total(POISON) == 1


def test_at_each_step_of_a_burial_and_of_a_replay_it_is_counted_once(new_world: Callable[..., World]) -> None:
    world = new_world(written=True)
    count(world, world.ingests[0], POISON)
    for step in (world.pull, world.flush, world.replay):
        step(0)
        while world.network.calls:
            world.run(world.network.arrive(world.network.calls[0]))
            found = reading(new_reader(world), world)
            assert (found.value, found.exact) == (1, True)
        world.store.picky = step != world.flush


def test_an_id_in_a_dead_letter_counts_once_beside_entries_and_what_is_applied(new_world: Callable[..., World]) -> None:
    """It is in a dead receipt, then in an entry too, then applied by that one."""
    world = new_world(written=True)
    ingest = world.ingests[0]
    world.increment(ingest, POISON)
    world.send_keyed(ingest, "a", "id")
    through(world, ingest)
    apply_all(world)
    world.increment(ingest, POISON)
    world.send_keyed(ingest, "b", "other")
    through(world, ingest)
    assert reading(new_reader(world), world, "a").value == 1
    world.send_keyed(ingest, "a", "id")
    through(world, ingest)
    for applied in (0, 1):
        found = reading(new_reader(world), world, "a")
        assert (found.value, found.exact) == (1, True)
        assert applied == 0 or world.store_total("a") in {0, 1}
        apply_all(world)
    world.store.picky = False
    world.replay(0)
    world.deliver_all()
    assert world.store_total("a") == 1


def test_what_is_dropped_is_left_out_at_once_in_every_process(world: World) -> None:
    """Also by those who have a base of a moment ago."""
    readers = [new_reader(world) for _ in range(2)]
    assert [reading(one, world).value for one in readers] == [1, 1]
    world.drop_dead(0)
    world.deliver_all()
    assert [one.state for one in world.store._receipts.values()] == [DROPPED, APPLIED]
    assert [reading(one, world).value for one in (*readers, new_reader(world))] == [0, 0, 0]
    world.store.picky = False
    world.replay(0)
    world.deliver_all()
    assert (world.store_total(POISON), world.broker.buried()) == (0, {})
    world.reads_checked = False
    world.history._of(POISON).answered = 0
