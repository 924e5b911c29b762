"""Interleavings that broke earlier wordings of the rules, step by step. Each test is named for what must hold."""

from tests.interleavings.steps.world import POISON, World


def test_a_snapshot_older_than_a_removal_is_void(kept: World) -> None:
    """Entry applied and removed while a snapshot from before it is in flight: it must not be installed without it."""
    ingest = kept.ingests[0]
    kept.count(ingest)
    kept.read(ingest, ["a"], None)
    kept.next_arrives(ingest.owner, "snapshot")
    kept.apply_all()
    kept.through(ingest)
    kept.look(ingest)


def test_the_overlay_is_read_after_the_instant_is_chosen(kept: World) -> None:
    """Read before it, an entry that was made and applied in between is in the base and, unasked, in the overlay."""
    ingest, other = kept.ingests
    kept.read(ingest, ["a"], None)
    for name in ("snapshot", "view"):
        kept.count(other)
        kept.apply_all(acks=False)
        kept.next_arrives(ingest.owner, name)
    kept.through(ingest)
    kept.look(ingest)


def test_an_id_in_two_envelopes_counts_once_while_both_are_pending(kept: World) -> None:
    for ingest in kept.ingests:
        kept.count_keyed(ingest, "a", "id")
    kept.look(kept.ingests[0])


def test_a_retry_after_the_base_has_counted_its_id_is_not_pending(kept: World) -> None:
    ingest = kept.ingests[0]
    kept.count_keyed(ingest, "a", "id")
    kept.apply_all()
    kept.look(ingest)
    kept.count_keyed(ingest, "a", "id")
    kept.look(ingest)


def test_a_commit_that_arrives_after_its_flusher_died_is_counted_once(kept: World) -> None:
    """The zombie's commit and that of its successor meet in the receipts, in either order."""
    kept.count(kept.ingests[0])
    zombie = kept.flushers[0].owner
    kept.flush_until(0, "apply")
    kept.crash_flusher(0)
    kept.broker.expire_leases()
    kept.apply_all(1)
    kept.arrives_of(zombie)
    kept.look(kept.ingests[0])


def test_whoever_finds_a_receipt_dead_buries_the_message(kept: World) -> None:
    """The one who wrote that receipt may have died before it did."""
    kept.count(kept.ingests[0], POISON)
    kept.flush_until(0, "bury")
    assert [call.name for call in kept.network.calls] == ["bury"]
    kept.network.calls.clear()
    kept.crash_flusher(0)
    kept.broker.expire_leases()
    kept.apply_all(1)
    assert kept.broker.buried() == {"1": "given up before"}


def test_the_second_of_two_equal_ids_counts_when_the_first_is_dead(kept: World) -> None:
    """A window drops the second only for this commit, not for good."""
    ingest = kept.ingests[0]
    kept.increment(ingest, POISON)
    for _ in range(2):
        kept.count_keyed(ingest, "a", "id")
    kept.apply_all()
    assert kept.store_total("a") == 1


def test_an_entry_that_is_settled_before_it_is_confirmed_comes_back_late(written: World) -> None:
    """A base that has it already, and did not ask for its receipt, would count it twice."""
    ingest, reader = written.ingests
    written.increment(ingest, "a")
    written.through(ingest, but="confirm")
    written.apply_all()
    written.look(reader)
    written.next_arrives(ingest.owner, "confirm")
    written.look(reader)


def test_an_entry_that_is_not_confirmed_adds_nothing(written: World) -> None:
    """Its publish may fail: readers would see it go."""
    ingest, reader = written.ingests
    written.increment(ingest, "a")
    written.next_arrives(ingest.owner, "begin")
    written.look(reader)
    (publish,) = written.network.calls
    written.network.lose(publish, for_good=True)
    written.settle()
    written.through(ingest)
    written.look(reader)


def test_an_entry_that_is_confirmed_after_a_snapshot_was_taken_is_known_to_it(written: World) -> None:
    """It was there, unconfirmed, so the snapshot asked for its receipt."""
    ingest, reader = written.ingests
    written.increment(ingest, "a")
    written.through(ingest, but="confirm")
    written.flush_until(0, "settle")
    assert written.store_total("a") == 1
    written.look(reader)
    written.next_arrives(ingest.owner, "confirm")
    written.look(reader)


def test_what_is_withdrawn_by_a_publish_that_comes_later_counts_when_it_is_applied(written: World) -> None:
    """Nobody was told that it was accepted."""
    ingest, reader = written.ingests
    written.increment(ingest, "a")
    written.next_arrives(ingest.owner, "begin")
    (publish,) = written.network.calls
    written.network.lose(publish, for_good=False)
    written.settle()
    written.through(ingest)
    written.look(reader)
    written.apply_all()
    written.look(reader)
