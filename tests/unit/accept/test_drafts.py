"""Drafts lose nothing, say which items of a batch and which uses of ids are in them, and wait only so long."""

from collections import Counter
from itertools import count

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ingest.accept.drafts import (
    ENOUGH,
    GAP,
    LARGE,
    MAX_ENTRIES,
    QUIET_TURNS,
    STRETCH,
    TOGETHER,
    Batch,
    Coalescer,
    Draft,
    Pace,
    Uses,
)
from shared.model.receipts import Note, key_of_envelope
from shared.model.words import MAX_DELTA, MAX_SUM, PART_ENTRIES, Increment
from shared.runtime.ids import mint

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


def make(most: int = MOST) -> Coalescer:
    numbers = count()
    return Coalescer(lambda: f"m{next(numbers):06}", most)


def batch_of(sums: dict[str, int], counts: dict[str, int], keyed: list[Increment]) -> Batch:
    return Batch(sums, counts, keyed, len(sums) + sum(counts.values()) - len(counts) + len(keyed))


@given(STEPS)
def test_what_is_added_is_taken_once_in_order_and_within_the_caps(steps: list[tuple[str, object, int]]) -> None:
    coalescer, sent, taken = make(), Counter[str](), list[Draft]()
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
            some = coalescer.take(what)
            assert len(some) <= what
            taken += some
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


LARGE_STEPS = st.lists(
    st.tuples(st.just("batch"), st.integers(LARGE, LARGE + 1), st.integers(1, 3), st.sampled_from([1, 1, 1, -1]))
    | st.tuples(st.just("one"), st.integers(LARGE - 1, LARGE), st.integers(1, 3), st.just(1))
    | st.tuples(st.sampled_from(["look", "take"]), st.just(0), st.just(0), st.just(0)),
    max_size=12,
)


@given(LARGE_STEPS)
@example([("batch", LARGE, 1, 1), ("batch", LARGE, 1, 1), ("one", LARGE, 1, 1), ("batch", LARGE + 1, 1, 1)])
def test_large_batches_and_what_comes_between_them_are_added_up(steps: list[tuple[str, int, int, int]]) -> None:
    """Whatever their order is, and if names are added to a draft that holds some."""
    coalescer = Coalescer(lambda: "m", 2 * LARGE)
    sums, counts = Counter[str](), Counter[str]()
    taken: list[Draft] = []
    for kind, number, times, order in steps:
        if kind == "batch":
            names = [f"n{one}" for one in range(number)][::order]
            its = dict.fromkeys(names[:7], times) if times > 1 else {}
            coalescer.add_batch(Batch(dict.fromkeys(names, 2), its, [], number + len(its) * (times - 1)))
            sums.update(dict.fromkeys(names, 2))
            counts.update(dict.fromkeys(names, 1) | its)
        elif kind == "one":
            coalescer.add(f"n{number}", 5, times)
            sums[f"n{number}"] += 5
            counts[f"n{number}"] += times
        elif kind == "look":
            assert sum(sum(draft.by_counter().values()) for draft in coalescer.drafts()) == coalescer.waiting
        else:
            taken += coalescer.take(9)
    for envelope in [draft.close(1) for draft in [*taken, *coalescer.take(99)]]:
        its = dict.fromkeys(envelope.sums, 1) | dict(envelope.counts)
        assert sum(its.values()) == envelope.increments
        sums.subtract(envelope.sums)
        counts.subtract(its)
    assert not any(sums.values())
    assert not any(counts.values())


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


def test_what_waits_together_travels_in_one_envelope() -> None:
    coalescer = make(1_000)
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


def test_deltas_with_ids_that_would_be_too_much_together_begin_another_envelope() -> None:
    most = MAX_SUM // MAX_DELTA
    coalescer = make(1_000)
    drafts = [coalescer.add_keyed(Increment("a", -MAX_DELTA, f"i{number}")) for number in range(most + 1)]
    assert len({draft.id for draft in drafts[:most]}) == 1
    assert drafts[most].id != drafts[0].id


def test_what_a_client_named_travels_alone_under_its_name() -> None:
    coalescer = make(1_000)
    coalescer.add("a", 1)
    coalescer.add_whole(batch_of({"a": 2}, {}, [Increment("b", 3, "x")]), "key")
    coalescer.add("a", 4)
    envelopes = [draft.close(0) for draft in coalescer.take(5)]
    assert [(envelope.id, envelope.sums, envelope.retried) for envelope in envelopes] == [
        ("m000000", {"a": 1}, False),
        ("key", {"a": 2}, True),
        ("m000002", {"a": 4}, False),
    ]


def test_what_fits_is_what_one_envelope_may_hold_which_is_never_divided() -> None:
    """The overlay of an ingest has one entry of it, under one receipt key."""
    coalescer = make(3)
    assert coalescer.fits(batch_of({"a": 1, "b": 1}, {}, [Increment("a", 1, "x")]))
    assert not coalescer.fits(batch_of({"a": 1, "b": 1, "c": 1}, {}, [Increment("a", 1, "x")]))
    assert MAX_ENTRIES <= PART_ENTRIES


@settings(max_examples=50)
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


LINGER = 0.02


def streaming(now: float = 1.0, *, metered: bool = True) -> Pace:
    """Many travelled in the last publish."""
    pace = Pace(LINGER, metered=metered)
    arrive(pace, 50)
    pace.started(now)
    return pace


def arrive(pace: Pace, requests: int) -> None:
    for _ in range(requests):
        pace.arrived()


def test_a_quiet_system_waits_for_nothing() -> None:
    for metered in (False, True):
        pace = Pace(LINGER, metered=metered)
        pace.arrived()
        assert pace.delay(0.0, busy=False) is None
        pace.started(0.0)
        pace.arrived()
        assert pace.delay(0.001, busy=False) is None


def test_beside_a_publish_the_linger_is_the_longest_wait_also_for_a_stream() -> None:
    pace = Pace(LINGER, metered=False)
    pace.started(0.0)
    pace.arrived()
    assert pace.delay(0.001, busy=True) == LINGER
    assert pace.look(0.001 + LINGER) is None
    pace = streaming(metered=False)
    pace.arrived()
    assert pace.delay(1.0, busy=True) == LINGER
    assert not pace.streams(1.0), "when it has ended, the next one may start"


def test_a_stream_waits_as_long_as_more_comes_and_not_longer_than_its_limit() -> None:
    pace, now = streaming(), 1.0
    pace.arrived()
    while (delay := pace.look(now)) is not None:
        assert delay <= GAP
        now += delay
        pace.arrived()
        assert now < 2, "it never ends"
    assert abs(now - 1 - STRETCH * LINGER) < GAP


def test_a_stream_that_pauses_is_published_at_once_and_one_that_ended_is_none() -> None:
    """Clients that wait for their answers send nothing meanwhile."""
    pace = streaming()
    pace.arrived()
    assert pace.delay(1.001, busy=False) == GAP
    assert pace.look(1.001 + GAP) is None
    pace = streaming()
    pace.arrived()
    assert pace.delay(1.0 + STRETCH * LINGER, busy=False) is None


def test_where_publishes_are_free_a_stream_ends_with_some_quiet_turns_after_a_moment_or_when_it_is_enough() -> None:
    pace = streaming(metered=False)
    pace.arrived()
    assert pace.delay(1.001, busy=False) == 0
    for _ in range(10):
        pace.arrived()
        assert pace.look(1.001) == 0
    assert [pace.look(1.001) for _ in range(QUIET_TURNS)] == [0] * (QUIET_TURNS - 1) + [None]
    for more, at in ((1, 1.001 + TOGETHER), (ENOUGH - 1, 1.001)):
        pace = streaming(metered=False)
        pace.arrived()
        assert pace.delay(1.001, busy=False) == 0
        arrive(pace, more)
        assert pace.look(at) is None


@given(st.lists(st.integers(0, 9), max_size=6), st.integers(0, 9), st.lists(st.integers(0, 9), max_size=3))
def test_the_places_are_those_of_its_own_increments(before: list[int], mine: int, after: list[int]) -> None:
    coalescer = Coalescer(mint, max_entries=4)
    others = [number for numbers in (before, after) for number in numbers]

    def of(owner: str, number: int) -> Batch:
        keyed = [Increment("c", 1, f"{owner} {place}") for place in range(number)]
        return Batch({f"{owner} {number}": 1}, {}, keyed, 1 + number)

    for number in before:
        coalescer.add_batch(of("other", number))
    drafts = coalescer.add_batch(of("mine", mine))
    uses = Uses(drafts, mine)
    for number in after:
        coalescer.add_batch(of("other", number))

    def seconds(draft: Draft, owner: str) -> list[int]:
        return [place for place, item in enumerate(draft.keyed) if (item.id or "").startswith(owner)]

    everything = coalescer.take(1_000)
    assert sum(len(seconds(draft, "other")) for draft in everything) == sum(others)
    for owner, expected in (("mine", mine), ("other", 0)):
        for draft in everything:
            draft.second_uses = set()
        notes = {key_of_envelope(draft.id): Note(second_uses=seconds(draft, owner)) for draft in everything}
        assert uses.second(notes) == expected
        for draft in everything:
            draft.second_uses = {*seconds(draft, owner)}
        assert uses.second() == expected
        assert uses.second(dict.fromkeys(notes, Note())) == expected


def test_a_batch_under_a_key_is_second_as_a_whole() -> None:
    coalescer = Coalescer(mint)
    draft = coalescer.add_whole(Batch({"a": 2, "b": 1}, {"a": 2}, [], 3), "key")
    uses, key = Uses([draft], 0), key_of_envelope("key")
    assert uses.second() == uses.second({key: Note(attempt=draft.attempt)}) == 0
    assert uses.second({key: Note()}) == 0, "it has no note"
    assert uses.second({key: Note(attempt="another")}) == 3
    draft.is_second = True
    assert uses.second() == 3
