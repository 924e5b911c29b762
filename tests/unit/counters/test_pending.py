"""The overlay of a broker in memory agrees with the simplest model that could be right."""

import tracemalloc

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shared.counters import pending as overlay
from shared.counters.pending import Pending
from shared.model.buckets import BrokerMillis, Instant
from shared.model.receipts import key_of_envelope
from shared.model.words import Delivery, Entry, Envelope, Increment
from shared.wire.codec import decode, encode

NAMES = ("a", "ab", "b", "c")
COUNTERS = st.sampled_from(NAMES)
INCREMENTS = st.builds(Increment, COUNTERS, st.integers(-9, 9), st.sampled_from("xyz"), st.just(""))
ENVELOPES = st.builds(
    Envelope,
    id=st.sampled_from(["e1", "e2", "e3"]),
    sums=st.dictionaries(COUNTERS, st.integers(-9, 9), max_size=3),
    keyed=st.lists(INCREMENTS, max_size=2).map(tuple),
    retried=st.booleans(),
)


def entry_of(envelope: Envelope, counter: str) -> Entry:
    ids = tuple((item.key, item.delta) for item in envelope.keyed if item.counter == counter)
    return Entry(envelope.key, envelope.sums.get(counter, 0), ids, late=envelope.retried or bool(ids))


class Model(RuleBasedStateMachine):
    """Messages in a list; a floor for each counter, which may be too high, but never too low or falling."""

    def __init__(self) -> None:
        super().__init__()
        self.pending = Pending()
        self.there: dict[int, Envelope] = {}
        self.last = 0
        self.floors = dict.fromkeys(NAMES, 0)
        self.greatest = 0
        self.shown = dict.fromkeys(NAMES, 0)
        self.versions: dict[int, tuple[tuple[Entry, ...], int]] = {}

    @rule(envelope=ENVELOPES)
    def add(self, envelope: Envelope) -> None:
        self.last += 1
        self.pending.add(self.last, envelope)
        self.there[self.last] = envelope

    @rule(data=st.data(), floor=st.integers(0, 50))
    def settle(self, data: st.DataObject, floor: Instant) -> None:
        numbers = data.draw(st.lists(st.sampled_from(sorted(self.there) or [0]), unique=True, max_size=3))
        self.pending.settle(numbers, floor)
        for number in numbers:
            gone = self.there.pop(number, None)
            self.raise_floors(NAMES if gone is None else gone.counters(), floor)

    @rule(data=st.data())
    def add_again(self, data: st.DataObject) -> None:
        """As an overlay does that finds out later that the message was published."""
        if self.there:
            number = data.draw(st.sampled_from(sorted(self.there)))
            self.pending.withdraw(number)
            self.pending.add(number, self.there[number])

    @rule(floor=st.integers(0, 50))
    def settle_what_was_never_seen(self, floor: Instant) -> None:
        self.pending.settle([10**6], floor)
        self.raise_floors(NAMES, floor)

    def raise_floors(self, counters: tuple[str, ...] | set[str], floor: Instant) -> None:
        for counter in counters:
            self.floors[counter] = max(floor, self.floors[counter])
        self.greatest = max(self.greatest, floor)

    @invariant()
    def views_are_what_is_there(self) -> None:
        for counter in NAMES:
            view = self.pending.view(counter)
            expected = tuple(
                entry_of(self.there[number], counter)
                for number in sorted(self.there)
                if counter in self.there[number].counters()
            )
            assert view.entries == expected
            assert self.floors[counter] <= view.floor <= self.greatest
            assert self.shown[counter] <= view.floor
            self.shown[counter] = view.floor
            assert self.versions.setdefault(view.version, (view.entries, view.floor)) == (view.entries, view.floor)
            assert self.pending.view(counter) is view

    @invariant()
    def names_and_keys_are_those_that_are_there(self) -> None:
        counters = {counter for envelope in self.there.values() for counter in envelope.counters()}
        for prefix in ("", "a", "ab", "z"):
            assert sorted(self.pending.names(prefix)) == sorted(name for name in counters if name.startswith(prefix))
        keys = {key_of_envelope(name) for name in ("e1", "e2", "e3", "e4")}
        assert self.pending.holds(keys) == {key_of_envelope(envelope.id) for envelope in self.there.values()}
        assert self.pending._messages.keys() == self.there.keys()


TestPending = Model.TestCase
TestPending.settings = settings(max_examples=50, stateful_step_count=40)


def test_an_ack_leaves_other_counters_their_bases() -> None:
    pending = Pending()
    pending.add(1, Envelope("one", {"a": 1}))
    pending.add(2, Envelope("two", {"b": 1}))
    before = pending.view("b")
    pending.settle([1], Instant(9))
    assert pending.view("a").floor == 9
    assert pending.view("b") is before
    assert pending.view("never").floor == 0


def test_it_remembers_floors_of_so_many_counters_and_then_raises_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded; too high a floor costs a read, too low a one would cost an increment."""
    most, pending = 50, Pending()
    monkeypatch.setattr(overlay, "MOST_FLOORS", most)
    for number in range(3 * most):
        pending.add(number, Envelope(f"e{number}", {f"n{number}": 1}))
        pending.settle([number], Instant(number + 1))
        assert len(pending._floors) <= most
        assert len(pending._views) <= most
        assert pending.view(f"n{number}").floor >= number + 1
    assert all(pending.view(f"n{number}").floor >= number + 1 for number in range(3 * most))


def test_reading_names_that_never_were_takes_no_memory() -> None:
    pending = Pending()
    for number in range(1_000):
        assert pending.view(f"n{number}").entries == ()
    assert not pending._views


def test_versions_of_two_overlays_of_a_process_never_meet() -> None:
    """One that begins anew takes the place of another, and readers compare versions."""
    first, second = Pending(), Pending()
    seen = set[int]()
    for pending in (first, second, first, second):
        pending.add(1, Envelope("e", {"a": 1}))
        version = pending.view("a").version
        assert version not in seen
        seen.add(version)


def test_names_that_come_while_others_are_sorted_are_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many they are."""
    monkeypatch.setattr("shared.counters.pending.MOST_UNSORTED", 10)
    pending = Pending()
    pending.add(1, Envelope("first", {f"a{number:05}": 1 for number in range(10_000)}))
    sorting = pending.sort_names()
    next(sorting)
    pending.add(2, Envelope("second", {f"b{number:05}": 1 for number in range(20)}))
    for _ in sorting:
        pass
    pending.add(3, Envelope("third", {"c": 1}))
    assert len(pending.names("")) == 10_021
    assert pending.names("c") == ["c"]


@pytest.mark.parametrize(("name", "times"), [("page:{0:03}", 2), ("page:{1}:{0:03}", 7)])
def test_messages_of_many_counters_take_so_many_times_their_bytes(name: str, times: int) -> None:
    """Names that are there already take less than new ones."""
    sums = [{name.format(item, number): 1 for item in range(1_000)} for number in range(200)]
    messages = [encode(Envelope(f"e{number}", its, created=1)) for number, its in enumerate(sums)]
    pending = Pending()
    tracemalloc.start()
    try:
        for number, message in enumerate(messages):
            pending.add(number, *decode(Delivery("", message, "", BrokerMillis(1)), ""))
        now, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert now < times * sum(len(message.data) for message in messages)
