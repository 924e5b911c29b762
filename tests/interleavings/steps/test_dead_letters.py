"""Dead letters and dead receipts, step by step: as readers and sets see them, and as they are replayed, beside flushers
and other replays; an overlay that ingests write forgets what they keep.
"""

import pytest

from shared.counters.reader import Reader
from shared.counters.setter import SET
from shared.memory import ProcessOverlay
from shared.model.words import APPLIED, DROPPED, Reading
from tests.interleavings.steps.changes import BASE
from tests.interleavings.steps.world import POISON, World
from tests.world.memory.exact_overlay import ExactOverlay


def with_a_letter(world: World) -> World:
    """The flusher has settled its entry."""
    world.count(world.ingests[0], POISON)
    world.apply_all()
    assert len(world.broker.buried()) == 1
    return world


@pytest.fixture
def dead(written: World) -> World:
    return with_a_letter(written)


@pytest.fixture
def cured(world: World) -> World:
    """The cause of the letter is gone."""
    with_a_letter(world)
    world.store.picky = False
    return world


def reading(reader: Reader, world: World, name: str = POISON) -> Reading:
    """With a base of its own, if it is new; the network is passed by."""
    return world.loop.run_until_complete(reader.read([name], 60.0))[0]


def new_reader(world: World, overlay: ProcessOverlay | None = None) -> Reader:
    return Reader(world.store, overlay or world.overlay, world.clock, 1.0)


def test_no_overlay_has_to_remember_a_dead_letter(dead: World) -> None:
    assert isinstance(dead.overlay, ProcessOverlay)
    assert not dead.overlay._there
    for ingest in dead.ingests:
        dead.look(ingest, POISON)
    restarted = new_reader(dead, ExactOverlay(dead.clock))
    found = reading(restarted, dead)
    assert (found.value, found.pending, found.exact, found.exists) == (1, 1, True, True)


def test_a_base_from_before_the_burial_is_void_when_the_entry_is_gone(written: World) -> None:
    """Without a floor it would say what was true without the dead one, and no entry would add it."""
    reader = written.ingests[1]
    written.count(written.ingests[0], POISON)
    written.look(reader, POISON)
    written.apply_all()
    written.look(reader, POISON)


def test_a_set_finds_what_is_dead_and_a_replay_changes_nothing_after_it(dead: World) -> None:
    ingest = dead.ingests[1]
    dead.store.picky = False
    dead.set(ingest, POISON, SET)
    dead.through(ingest)
    assert [*dead.store.changes[POISON].values()] == [(1, BASE)]
    dead.look(ingest, POISON)
    dead.replay_cured()
    assert dead.store_total(POISON) == BASE
    dead.look(ingest, POISON)


def test_a_letter_that_the_broker_has_lost_is_replayed_from_the_store(dead: World) -> None:
    dead.lose_letters()
    assert dead.broker.buried() == {}
    dead.look(dead.ingests[0], POISON)
    dead.replay_cured()
    assert dead.store_total(POISON) == 1


def test_at_each_step_of_a_burial_and_of_a_replay_it_is_counted_once(written: World) -> None:
    written.count(written.ingests[0], POISON)
    for step in (written.pull, written.flush, written.replay):
        step(0)
        while written.network.calls:
            written.run(written.network.arrive(written.network.calls[0]))
            found = reading(new_reader(written), written)
            assert (found.value, found.exact) == (1, True)
        written.store.picky = step != written.flush


def test_an_id_in_a_dead_letter_counts_once_beside_entries_and_what_is_applied(written: World) -> None:
    """It is in a dead receipt, then in an entry too, then applied by that one."""
    ingest = written.ingests[0]
    written.increment(ingest, POISON)
    written.count_keyed(ingest, "a", "id")
    written.apply_all()
    written.increment(ingest, POISON)
    written.count_keyed(ingest, "b", "other")
    assert reading(new_reader(written), written, "a").value == 1
    written.count_keyed(ingest, "a", "id")
    for applied in (0, 1):
        found = reading(new_reader(written), written, "a")
        assert (found.value, found.exact) == (1, True)
        assert applied == 0 or written.store_total("a") in {0, 1}
        written.apply_all()
    written.replay_cured()
    assert written.store_total("a") == 1


def test_what_is_dropped_is_left_out_at_once_in_every_process(dead: World) -> None:
    """Also by those who have a base of a moment ago."""
    readers = [new_reader(dead) for _ in range(2)]
    assert [reading(one, dead).value for one in readers] == [1, 1]
    dead.drop_dead(0)
    dead.deliver_all()
    assert [one.state for one in dead.store._receipts.values()] == [DROPPED, APPLIED]
    assert [reading(one, dead).value for one in (*readers, new_reader(dead))] == [0, 0, 0]
    dead.replay_cured()
    assert (dead.store_total(POISON), dead.broker.buried()) == (0, {})
    dead.reads_checked = False
    dead.history._of(POISON).answered = 0


def until(world: World, index: int, name: str) -> None:
    """All that this replay sends arrives, up to a call of that name."""
    owner = world.replayers[index].owner
    world.replay(index)
    while (call := next(call for call in world.network.calls if call.owner == owner)).name != name:
        world.run(world.network.arrive(call))


def counted_once(world: World) -> None:
    assert world.store_total(POISON) == 1
    world.look(world.ingests[0], POISON)


def test_killed_before_it_forgets_the_next_one_only_forgets(cured: World) -> None:
    until(cured, 0, "forget")
    assert cured.store_total(POISON) == 1
    cured.network.calls.clear()
    cured.crash_replayer(0)
    assert len(cured.broker.buried()) == 1
    cured.replay_cured(1)
    assert cured.broker.buried() == {}
    counted_once(cured)


def test_of_two_at_once_one_counts(cured: World) -> None:
    until(cured, 0, "apply")
    until(cured, 1, "apply")
    cured.deliver_all()
    assert cured.broker.buried() == {}
    counted_once(cured)


def test_a_commit_of_a_replay_that_comes_twice_and_late_counts_once(cured: World) -> None:
    until(cured, 0, "apply")
    commit = next(call for call in cured.network.calls if call.name == "apply")
    cured.network.lose(commit, for_good=False)
    cured.crash_replayer(0)
    cured.replay_cured(1)
    counted_once(cured)


def test_a_flusher_that_found_it_dead_may_bury_it_after_the_replay(written: World) -> None:
    """A second letter of what is counted: it is only forgotten."""
    written.count(written.ingests[0], POISON)
    written.flush_until(0, "bury")
    written.broker.expire_leases()
    written.apply_all(1)
    assert len(written.broker.buried()) == 1
    written.store.picky = False
    written.replay(0)
    written.arrives_of(written.replayers[0].owner)
    assert written.broker.buried() == {}
    written.arrives_of(written.flushers[0].owner)
    assert len(written.broker.buried()) == 1
    counted_once(written)


def test_what_a_reader_saw_pending_it_sees_applied(cured: World) -> None:
    """At each step of the replay."""
    reader = cured.ingests[1]
    for name in ("receipts", "apply", "forget"):
        until(cured, 0, name)
        cured.look(reader, POISON)
    cured.deliver_all()
    counted_once(cured)
