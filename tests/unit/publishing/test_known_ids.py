"""What a process remembers of the ids that it accepted."""

import pytest

from ingest.parsing.json_object import BodyError
from ingest.publishing.batch import Batch
from ingest.publishing.known_ids import KnownIds
from shared.model.receipts import CLIENT_IDS_REMEMBERED
from shared.model.times import Monotonic
from shared.model.words import Increment

NOW = Monotonic(1_000.0)


def keyed(*items: Increment) -> Batch:
    return Batch(keyed=list(items))


def test_another_delta_under_an_id_is_refused_and_the_first_one_stays() -> None:
    known = KnownIds()
    known.check(Increment("a", 1, "x"), NOW)
    known.accepted(keyed(Increment("a", 1, "x")), NOW)
    known.accepted(keyed(Increment("a", 2, "x")), NOW)
    for other in (Increment("a", 1, "x"), Increment("b", 2, "x"), Increment("a", 2, "y")):
        known.check(other, NOW)
    with pytest.raises(BodyError, match="new one"):
        known.check(Increment("a", 2, "x"), NOW)


def test_it_forgets_the_oldest_and_what_counts_again() -> None:
    known = KnownIds(2)
    for id_ in "xyz":
        known.accepted(keyed(Increment("a", 1, id_)), NOW)
    known.check(Increment("a", 2, "x"), NOW)
    with pytest.raises(BodyError):
        known.check(Increment("a", 2, "y"), NOW)
    known.check(Increment("a", 2, "y"), Monotonic(NOW + CLIENT_IDS_REMEMBERED / 1_000))


def test_a_batch_is_the_same_in_any_order() -> None:
    known = KnownIds()
    known.accepted(Batch({"a": 1, "b": -1}, id="key-1", attempt="1"), NOW)
    known.check_whole("key-1", Batch({"b": -1, "a": 1}), NOW)
    for other in ({"a": 1, "b": -2}, {"a": 1}, {"a": 1, "b": -1, "c": 0}):
        with pytest.raises(BodyError) as raised:
            known.check_whole("key-1", Batch(other), NOW)
        assert raised.value.field == "Idempotency-Key"
    known.check_whole("key-2", Batch({"a": 5}), NOW)
