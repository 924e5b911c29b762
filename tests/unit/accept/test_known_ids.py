"""What a process remembers of the ids that it accepted."""

import pytest

from ingest.accept.admission import KnownIds
from ingest.accept.drafts import Batch, Draft
from ingest.parsing.parse import BodyError
from shared.model.buckets import Monotonic
from shared.model.receipts import CLIENT_IDS_REMEMBERED
from shared.model.words import Increment

NOW = Monotonic(1_000.0)


def keyed(*items: Increment) -> Draft:
    return Draft(keyed=list(items))


def test_a_refusal_does_not_advise_to_count_again_what_may_have_counted() -> None:
    """Another process may have accepted this one first: a retry of it under a new id would count twice."""
    known = KnownIds()
    known.accepted(keyed(Increment("a", 2, "x")), NOW)
    known.accepted(Draft({"a": 2}, id="key", attempt="1"), NOW)
    says = r"may be this one, if you sent it before.*If it is no retry, send it under"
    with pytest.raises(BodyError, match=says):
        known.check([Increment("a", 1, "x")], NOW)
    with pytest.raises(BodyError, match=says):
        known.check_whole("key", Batch({"a": 1}), NOW)


def test_of_equal_ids_in_a_batch_the_first_one_counts_so_its_retry_is_no_mistake() -> None:
    known = KnownIds()
    batch = [Increment("a", 1, "x"), Increment("a", 2, "x")]
    known.accepted(keyed(*batch), NOW)
    known.check(batch, NOW)
    with pytest.raises(BodyError, match="'a'"):
        known.check(batch[::-1], NOW)


def test_it_forgets_the_oldest_and_what_counts_again() -> None:
    known = KnownIds(2)
    for id_ in "xyz":
        known.accepted(keyed(Increment("a", 1, id_)), NOW)
    known.check([Increment("a", 2, "x")], NOW)
    with pytest.raises(BodyError):
        known.check([Increment("a", 2, "y")], NOW)
    known.check([Increment("a", 2, "y")], Monotonic(NOW + CLIENT_IDS_REMEMBERED / 1_000))


def test_a_batch_is_the_same_in_any_order() -> None:
    known = KnownIds()
    known.accepted(Draft({"a": 1, "b": -1}, id="key-1", attempt="1"), NOW)
    known.check_whole("key-1", Batch({"b": -1, "a": 1}), NOW)
    for other in ({"a": 1, "b": -2}, {"a": 1}, {"a": 1, "b": -1, "c": 0}):
        with pytest.raises(BodyError) as raised:
            known.check_whole("key-1", Batch(other), NOW)
        assert raised.value.field == "Idempotency-Key"
    known.check_whole("key-2", Batch({"a": 5}), NOW)


def test_second_uses_are_marked_whatever_they_bring_and_for_as_long_as_an_id_counts_once() -> None:
    known = KnownIds()
    later, forgotten = [Monotonic(NOW + factor * CLIENT_IDS_REMEMBERED / 1_000) for factor in (0.9, 1.0)]
    for time, expected in ((NOW, {1}), (later, {0, 1, 2}), (forgotten, {1}), (forgotten, {0, 1, 2})):
        draft = keyed(Increment("a", 1, "x"), Increment("a", 2, "x"), Increment("b", 1, "x"))
        known.accepted(draft, time)
        assert draft.second_uses == expected
