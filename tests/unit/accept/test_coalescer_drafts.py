"""Which increments share a draft, and which draft an answer waits for."""

from collections import Counter
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from ingest.accept.batch import Batch, Draft
from ingest.accept.coalescer import LARGE, MAX_ENTRIES, Coalescer
from shared.model.envelope import PART_ENTRIES
from shared.model.words import MAX_DELTA, MAX_SUM, Increment

NAMES = st.sampled_from("abcdef")


def make(most: int = 1_000) -> Coalescer:
    numbers = count()
    return Coalescer(lambda: f"m{next(numbers):06}", most)


def batch_of(sums: dict[str, int], counts: dict[str, int], keyed: list[Increment]) -> Batch:
    return Batch(sums, counts, keyed, len(sums) + sum(counts.values()) - len(counts) + len(keyed))


def test_what_waits_together_travels_in_one_envelope() -> None:
    coalescer = make()
    drafts = {coalescer.add(name, 2).id for name in "abcab"}
    drafts.add(coalescer.add_keyed(Increment("a", 1, "x")).id)
    drafts |= {draft.id for draft in coalescer.add_batch(batch_of({"a": 9, "d": 1}, {"a": 3}, []))}
    assert len(drafts) == 1
    (draft,) = coalescer.take(10)
    envelope = draft.close(7)
    assert envelope.id in drafts
    assert envelope.sums == {"a": 13, "b": 4, "c": 2, "d": 1}
    assert envelope.counts == {"a": 5, "b": 2}
    assert (envelope.created, envelope.increments, envelope.retried) == (7, 10, False)
    assert not coalescer
    assert coalescer.take(1) == []


def test_a_count_goes_with_its_sum() -> None:
    coalescer = make()
    coalescer.add("a", 50, 10)
    coalescer.add("a", 1)
    coalescer.add("b", 3, 3)
    assert coalescer.waiting == 14
    (draft,) = coalescer.take(1)
    assert draft.close(0).counts == {"a": 11, "b": 3}


def test_a_sum_that_would_be_too_large_begins_another_envelope() -> None:
    coalescer = make()
    drafts = [coalescer.add("a", MAX_SUM, 4), coalescer.add("a", 1, 2), coalescer.add("a", -5)]
    assert [draft.id for draft in drafts] == ["m000000", "m000001", "m000001"]
    envelopes = [draft.close(0) for draft in coalescer.take(5)]
    assert [envelope.sums for envelope in envelopes] == [{"a": MAX_SUM}, {"a": -4}]
    assert [envelope.increments for envelope in envelopes] == [4, 3]


def test_deltas_with_ids_that_would_be_too_much_together_begin_another_envelope() -> None:
    most = MAX_SUM // MAX_DELTA
    coalescer = make()
    drafts = [coalescer.add_keyed(Increment("a", -MAX_DELTA, f"i{number}")) for number in range(most + 1)]
    assert len({draft.id for draft in drafts[:most]}) == 1
    assert drafts[most].id != drafts[0].id


def test_what_a_client_named_travels_alone_under_its_name() -> None:
    coalescer = make()
    coalescer.add("a", 1)
    coalescer.add_whole(batch_of({"a": 2}, {}, [Increment("b", 3, "x")]), "key")
    coalescer.add("a", 4)
    envelopes = [draft.close(0) for draft in coalescer.take(5)]
    assert [(envelope.id, envelope.sums, envelope.retried) for envelope in envelopes] == [
        ("m000000", {"a": 1}, False),
        ("key", {"a": 2}, True),
        ("m000002", {"a": 4}, False),
    ]


def test_what_fits_is_what_one_envelope_may_hold() -> None:
    coalescer = make(3)
    assert coalescer.fits(batch_of({"a": 1, "b": 1}, {}, [Increment("a", 1, "x")]))
    assert not coalescer.fits(batch_of({"a": 1, "b": 1, "c": 1}, {}, [Increment("a", 1, "x")]))


def test_no_envelope_that_is_published_would_be_divided() -> None:
    """The overlay of an ingest has one entry of it, under one receipt key."""
    assert MAX_ENTRIES <= PART_ENTRIES


def test_no_more_are_taken_than_asked_for_and_the_oldest_first() -> None:
    coalescer = make(1)
    for name in "abcde":
        coalescer.add(name, 1)
    taken = [[*draft.sums] for limit in (2, 1, 9) for draft in coalescer.take(limit)]
    assert taken == [["a"], ["b"], ["c"], ["d"], ["e"]]


def test_what_comes_after_a_take_is_not_in_what_was_taken() -> None:
    coalescer = make()
    coalescer.add("a", 1)
    (taken,) = coalescer.take(1)
    assert coalescer.add("a", 1).id != taken.id
    assert taken.close(0).sums == {"a": 1}


@given(
    st.lists(
        st.tuples(
            st.dictionaries(NAMES, st.integers(1, 10**6), max_size=4),
            st.lists(st.tuples(NAMES, st.integers(-9, 9)), max_size=4),
            st.integers(1, 3),
            st.booleans(),
        ),
        max_size=12,
    ),
    st.integers(1, 6),
)
def test_the_drafts_of_a_batch_hold_all_of_it(
    batches: list[tuple[dict[str, int], list[tuple[str, int]], int, bool]], most: int
) -> None:
    """Its answer is given when they are durable: each of its increments is in one of them."""
    coalescer, numbers = make(most), count()
    drafts: dict[str, Draft] = {}
    sent, got, ids = Counter[str](), Counter[str](), set[str]()
    for sums, pairs, times, large in batches:
        more = {f"n{number}": 1 for number in range(LARGE)} if large else {}
        keyed = [Increment(name, delta, f"i{next(numbers)}") for name, delta in pairs]
        counts = {name: times for name in sums if times > 1}
        mine = coalescer.add_batch(batch_of(sums | more, counts, keyed))
        assert len({draft.id for draft in mine}) == len(mine)
        held = {item.id for draft in mine for item in draft.keyed}
        assert {item.id for item in keyed} <= held
        assert {*sums, *more} <= {name for draft in mine for name in draft.sums}
        assert all(draft.entries() <= most for draft in mine)
        drafts |= {draft.id: draft for draft in mine}
        sent.update(sums | more)
        ids |= {item.id or "" for item in keyed}
    waiting, taken = coalescer.waiting, coalescer.take(10**6)
    assert {draft.id for draft in taken} == set(drafts)
    assert sum(draft.close(0).increments for draft in taken) == waiting
    for draft in taken:
        got.update(dict(draft.sums))
        ids -= {item.id or "" for item in draft.keyed}
    assert got == sent
    assert not ids
