"""A window plans commits: nothing is forgotten or planned twice, and no commit is too large."""

from hypothesis import given
from hypothesis import strategies as st

from flusher.flush.window import MOST_BYTES_IN_COMMIT, MOST_IN_COMMIT, FlushPolicy, Plan, Window
from shared.model.buckets import DAY, BrokerMillis, Millis, Rule
from shared.model.receipts import key_of_envelope
from shared.model.words import (
    APPLIED,
    DEAD,
    MAX_DELTA,
    MAX_SUM,
    PART_ENTRIES,
    SHARD_FULL,
    Delivery,
    Envelope,
    Increment,
    Message,
)


def delivery(number: int, size: int = 10) -> Delivery:
    return Delivery(f"token{number}", Message(b" " * size), str(number), BrokerMillis(1))


def window(*envelopes: Envelope) -> Window:
    made = Window()
    for number, envelope in enumerate(envelopes):
        made.add(delivery(number), (envelope,))
    return made


def commits(made: Window, most: int = 10**6) -> list[Plan]:
    """All of them, each as if it had been applied."""
    plans = []
    while (plan := made.plan(most)).envelopes:
        made.learn(plan.receipt_keys(), APPLIED)
        plans.append(plan)
    return plans


ENVELOPES = st.lists(
    st.builds(
        lambda number, sums, ids: Envelope(
            f"e{number}", sums, {}, tuple(Increment(name, 2, f"i{key}") for name, key in ids)
        ),
        st.integers(0, 6),
        st.dictionaries(st.sampled_from("abc"), st.sampled_from([1, MAX_SUM, -MAX_SUM]), max_size=3),
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=4),
    ),
    max_size=12,
)


@given(ENVELOPES, st.integers(1, 5))
def test_each_envelope_and_each_id_counts_once_whatever_the_commits(envelopes: list[Envelope], most: int) -> None:
    first: dict[str, Envelope] = {}
    for envelope in envelopes:
        first.setdefault(envelope.id, envelope)
    wanted = dict.fromkeys("abc", 0)
    ids: set[tuple[str, str | None]] = set()
    for envelope in first.values():
        for name, total in envelope.sums.items():
            wanted[name] += total
        for item in envelope.keyed:
            if (item.counter, item.id) not in ids:
                ids.add((item.counter, item.id))
                wanted[item.counter] += item.delta
    plans = commits(window(*envelopes), most)
    got = {name: sum(plan.sums.get(name, 0) for plan in plans) for name in "abc"}
    assert got == wanted
    keys = [key for plan in plans for key in plan.receipt_keys()]
    assert len(keys) == len(set(keys)) == len(first) + len(ids)
    assert all(abs(total) <= SHARD_FULL + 1 for plan in plans for total in plan.sums.values())
    assert all(len(plan.envelopes) <= most for plan in plans)


def test_a_commit_is_never_larger_than_the_smallest_store_takes() -> None:
    long = [Envelope(f"e{n}", {f"{n}-{k}-{'x' * 380}": 1 for k in range(PART_ENTRIES)}, {}) for n in range(9)]
    keyed = [
        Envelope(f"k{n}", {}, {}, tuple(Increment("a", MAX_DELTA, f"{n}-{k}") for k in range(PART_ENTRIES)))
        for n in range(4)
    ]
    made = window(*long, *keyed)
    plans = commits(made)
    assert max(len(plan.sums) for plan in plans) >= PART_ENTRIES, "the largest envelope fits"
    for plan in plans:
        assert len(plan.receipt_keys()) + len(plan.sums) <= MOST_IN_COMMIT
        assert sum(len(name) + 100 for name in plan.sums) + 100 * len(plan.receipt_keys()) <= MOST_BYTES_IN_COMMIT
    assert not made.unsettled()


def test_counters_and_buckets_that_are_in_a_commit_take_room_once() -> None:
    names = {f"name{number}": 1 for number in range(1_000)}
    made = window(*(Envelope(f"e{number}", names, {}, created=number) for number in range(100)))
    plan = made.plan(10**6, (Rule("", (("hour", Millis(DAY)),)),))
    assert len(plan.envelopes) == 100
    assert len(plan.receipts) + len(plan.sums) + len(plan.buckets) == 2_100


def test_an_id_dropped_for_one_commit_is_there_for_the_next() -> None:
    """The first that carries it may turn out to be dead."""
    made = window(
        Envelope("first", {"poison": 1}, {}, (Increment("a", 1, "i"),)),
        Envelope("second", {}, {}, (Increment("a", 1, "i"),)),
    )
    both = made.plan(10)
    assert both.sums == {"poison": 1, "a": 1}
    made.learn([both.envelopes[0].key], DEAD)
    (second,) = commits(made)
    assert second.sums == {"a": 1}
    done, dead = made.settled()
    assert [held.delivery.token for held in done] == ["token1"]
    assert [held.delivery.token for held in dead] == ["token0"]


def test_a_window_is_due_by_age_by_counters_by_bytes_or_by_messages_and_at_once_if_somebody_waits() -> None:
    policy = FlushPolicy(max_age=1.0, max_counters=3, max_bytes=100)
    empty, few = Window(), window(Envelope("e", {"a": 1, "b": 1}, {}))
    assert not policy.due(empty, 0.0, 99.0, urgent=False)
    assert not policy.due(empty, 0.0, 99.0, urgent=True)
    assert policy.due(few, 10.0, 10.0, urgent=True)
    assert not policy.due(few, 10.0, 10.9, urgent=False)
    assert policy.due(few, 10.0, 11.0, urgent=False)
    assert policy.due(window(Envelope("e", dict.fromkeys("abc", 1), {})), 10.0, 10.0, urgent=False)
    large = Window()
    large.add(delivery(1, size=100), (Envelope("e", {"a": 1}, {}),))
    assert policy.due(large, 10.0, 10.0, urgent=False)
    policy.max_messages = 1
    assert policy.due(few, 10.0, 10.0, urgent=False)


def patient(number: int, size: int = 0) -> tuple[Delivery, tuple[Envelope, ...]]:
    return delivery(number, size=size), (Envelope(f"e{number}", {"a": 1}, patient=True),)


def test_windows_grow_while_nobody_waits_and_are_short_again_at_the_first_who_does() -> None:
    policy = FlushPolicy(max_age=1.0, max_counters=3, max_bytes=1_000, longest=10.0)
    calm, awaited = Window(), Window()
    calm.add(*patient(1))
    awaited.add(*patient(1))
    awaited.add(delivery(2), (Envelope("e2", {"a": 1}),))
    ages = []
    for _ in range(8):
        ages.append(policy.patience)
        assert not policy.due(calm, 0.0, policy.patience - 0.01, urgent=False)
        assert policy.due(calm, 0.0, policy.patience, urgent=False)
        policy.closed(calm)
    assert ages == [1.0, 1.5, 2.25, 3.375, 5.0625, 7.59375, 10.0, 10.0]
    assert not policy.due(awaited, 0.0, 0.99, urgent=False)
    assert policy.due(awaited, 0.0, 1.0, urgent=False)
    assert policy.due(calm, 0.0, 0.02, urgent=True)
    policy.closed(awaited)
    assert policy.due(calm, 0.0, 1.0, urgent=False)
    steady = FlushPolicy(max_age=1.0, max_counters=3, max_bytes=1_000)
    steady.closed(calm)
    assert steady.due(calm, 0.0, 1.0, urgent=False), "they do not grow where that saves nothing"


def test_a_long_window_is_flushed_with_a_quarter_of_the_bytes() -> None:
    policy = FlushPolicy(max_age=1.0, max_counters=3, max_bytes=1_000, longest=10.0)
    window = Window()
    window.add(*patient(1, size=240))
    for _ in range(9):
        policy.closed(window)
    assert not policy.due(window, 0.0, 5.0, urgent=False)
    window.add(*patient(2, size=10))
    assert not policy.due(window, 0.0, 0.9, urgent=False)
    assert policy.due(window, 0.0, 1.0, urgent=False)


def test_a_plan_says_which_increments_with_ids_are_second_uses() -> None:
    x, y, z = [Increment("a", 1, id_) for id_ in "xyz"]
    made = window(Envelope("e1", {}, {}, (x, y, x)), Envelope("e2", {"a": 1}, {}, (z, y)), Envelope("e3", {}, {}, (z,)))
    made.learn([z.key], APPLIED)
    plan = made.plan(2)
    assert plan.second_uses == {key_of_envelope("e1"): [2], key_of_envelope("e2"): [0, 1]}
    assert (plan.tally.applied, plan.tally.deduplicated) == (3, 3)


def test_places_of_second_uses_take_room_in_a_commit() -> None:
    """As text in notes. Else a commit of nothing but second uses would be larger than a store allows."""
    items = tuple([Increment("a", 1, str(number)) for number in range(PART_ENTRIES)])
    made = window(*(Envelope(f"e{number}", {}, {}, items) for number in range(MOST_IN_COMMIT)))
    made.learn([item.key for item in items], APPLIED)
    plan = made.plan(10**6)
    size = sum(len(str(places)) for places in plan.second_uses.values())
    assert MOST_BYTES_IN_COMMIT // 2 < size < MOST_BYTES_IN_COMMIT * 1.3
