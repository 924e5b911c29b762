"""The coalescer loses nothing between requests and envelopes."""

from collections import Counter
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from ingest.publishing.batch import Batch
from ingest.publishing.coalescer import LARGE, Coalescer
from shared.model.words import MAX_DELTA, MAX_SUM, Increment

MOST = 5
NAMES = st.sampled_from("abcdefgh")
STEPS = st.lists(
    st.tuples(st.just("one"), NAMES, st.integers(-MAX_DELTA, MAX_DELTA))
    | st.tuples(st.just("sum"), NAMES, st.sampled_from([MAX_SUM, -MAX_SUM, MAX_SUM - 1]))
    | st.tuples(st.just("id"), NAMES, st.sampled_from([1, -MAX_DELTA, MAX_DELTA]))
    | st.tuples(st.just("batch"), st.dictionaries(NAMES, st.integers(1, 9), min_size=1), st.integers(1, 3))
    | st.tuples(st.just("large"), st.integers(LARGE, LARGE + 12), st.just(1))
    | st.tuples(st.just("whole"), st.dictionaries(NAMES, st.integers(1, 9), min_size=1, max_size=MOST), st.just(1))
    | st.tuples(st.just("take"), st.integers(1, 3), st.just(0)),
    max_size=60,
)


def make() -> Coalescer:
    numbers = count()
    return Coalescer(lambda: f"m{next(numbers):06}", MOST)


@given(STEPS)
def test_what_is_added_is_taken_once_in_order_and_within_the_caps(steps: list[tuple[str, object, int]]) -> None:
    coalescer, sent, taken = make(), Counter[str](), list[Batch]()
    ids = increments = 0
    for kind, what, number in steps:
        if kind in {"one", "sum"}:
            coalescer.add(str(what), number)
            sent[str(what)] += number
            increments += 1
        elif kind == "id":
            coalescer.add_keyed(Increment(str(what), number, f"i{ids}"))
            ids += 1
            increments += 1
        elif kind == "take":
            assert isinstance(what, int)
            taken += coalescer.take(what)
        else:
            sums = {f"n{n}": 1 for n in range(what)} if isinstance(what, int) else dict(what)  # type: ignore[call-overload]
            batch = Batch(dict(sums), {name: number for name in sums if number > 1}, [], len(sums) * number)
            sent.update(sums)
            increments += len(sums) * number
            if kind == "whole":
                coalescer.add_whole(batch, "key")
            else:
                drafts = coalescer.add_batch(batch)
                assert len({draft.id for draft in drafts}) == len(drafts)
    assert coalescer.waiting == increments - sum(draft.increments for draft in taken)
    while coalescer:
        taken += coalescer.take(2)
    assert coalescer.waiting == 0
    envelopes = [draft.close(1) for draft in taken]
    got = Counter[str]()
    for envelope in envelopes:
        for name, total in envelope.sums.items():
            got[name] += total
            assert abs(total) <= MAX_SUM
        assert len(envelope.sums) + len(envelope.keyed) <= MOST
        assert sum(abs(item.delta) for item in envelope.keyed) <= MAX_SUM
        assert envelope.retried == (envelope.id == "key")
    assert {name: total for name, total in got.items() if total} == {n: total for n, total in sent.items() if total}
    assert [item.id for envelope in envelopes for item in envelope.keyed] == [f"i{number}" for number in range(ids)]
    assert sum(envelope.increments for envelope in envelopes) == increments
    minted = [envelope.id for envelope in envelopes if not envelope.retried]
    assert minted == sorted(minted)
    assert len(set(minted)) == len(minted)


def test_large_batches_of_the_same_counters_travel_as_one() -> None:
    """Until a sum could be too large."""
    coalescer = Coalescer(lambda: "m", 2 * LARGE)
    names = [f"n{number}" for number in range(LARGE)]
    for _ in range(3):
        coalescer.add_batch(Batch(dict.fromkeys(names, 2), {"n0": 2}, [], LARGE + 1))
    coalescer.add_batch(Batch(dict.fromkeys(names[::-1], MAX_SUM), {}, [], LARGE))
    first, second = (draft.close(1) for draft in coalescer.take(9))
    assert first.sums == dict.fromkeys(names, 6)
    assert first.counts == dict.fromkeys(names, 3) | {"n0": 6}
    assert first.increments == 3 * (LARGE + 1)
    assert second.increments == LARGE
    assert coalescer.waiting == 0
