"""What is pending: views agree with the simplest model, are summed on from earlier ones, and have names in order."""

import tracemalloc
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shared.counters import pending as module
from shared.counters import reader
from shared.counters.pending import NAMES_AT_ONCE, Base, EntryLog, NameIndex, Pending, in_blocks, keys_of, pending_since
from shared.counters.reader import Reader
from shared.model.buckets import BrokerMillis, Instant, Monotonic, StoreMillis, WallSeconds
from shared.model.receipts import key_of_envelope
from shared.model.words import Delivery, Entry, Envelope, Increment, Total, View
from shared.wire.codec import decode, encode
from tests.world.manual_clock import ManualClock
from tests.world.memory.broker import MemoryBroker, MemoryOverlay
from tests.world.memory.exact_overlay import ExactOverlay
from tests.world.memory.store import MemoryStore

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
    monkeypatch.setattr(module, "MOST_FLOORS", most)
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


ROUNDS = 5_000


def base(random: Random, view: View) -> Base:
    """A base of the view, which found some of its entries applied, and others dead."""
    keys = keys_of(view)
    settled = {key for key in keys if random.random() < 0.3}
    dead = tuple([replace(one, confirmed=True) for one in view.entries if random.random() < 0.2])
    time = Instant(random.randint(0, 9))
    return Base(time, WallSeconds(0), StoreMillis(0), Total(0, 1, dead=dead), {*keys}, settled, Monotonic(0))


def envelope(random: Random, number: int) -> Envelope:
    """Most only add to sums, and have an id of their own."""
    rare = random.random() < 0.1
    keyed = (Increment("a", random.randint(-9, 9), random.choice("xy")),) if random.random() < 0.1 else ()
    name = "again" if rare else f"e{number}"
    return Envelope(name, {"a": random.randint(-9, 9), "b": 1}, keyed=keyed, retried=rare and random.random() < 0.5)


def test_it_is_as_if_all_had_been_summed_anew() -> None:
    summed_on = 0
    for seed in range(ROUNDS):
        random = Random(seed)
        overlay, there = Pending(), list[int]()
        earlier = overlay.view("a")
        found, before = base(random, earlier), 0
        for number in range(1, random.randint(2, 15)):
            step = random.choice(["add", "add", "begin", "confirm", "confirm", "withdraw", "settle", "read", "raise"])
            if step in {"add", "begin"}:
                there.append(number)
                overlay.add(number, envelope(random, number), confirmed=step == "add")
            elif step == "read":
                earlier = overlay.view("a")
                found = base(random, earlier)
                before = module.pending(found, earlier) or 0
            elif step == "raise":
                overlay.raise_floor("a", Instant(random.randint(0, 9)))
            elif there and step == "confirm":
                overlay.confirm(random.choice(there))
            elif there:
                gone = there.pop(random.randrange(len(there)))
                overlay.settle([gone], Instant(random.randint(0, 9))) if step == "settle" else overlay.withdraw(gone)
            view = overlay.view("a")
            more = pending_since(found, before, earlier, view) if module.pending(found, earlier) is not None else None
            if more is not None:
                assert more == module.pending(found, view), seed
                summed_on += len(view.entries) > len(earlier.entries)
    assert summed_on > ROUNDS / 10


async def test_a_read_after_each_write_sums_only_what_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each read would take as long as everything that waits."""
    clock = ManualClock()
    broker = MemoryBroker(clock)
    asked = list[View]()

    def anew(base: Base, view: View, *each: Any) -> int | None:
        asked.append(view)
        return module.pending(base, view, *each)

    monkeypatch.setattr(reader, "pending", anew)
    written = ExactOverlay(clock)
    for overlay in (MemoryOverlay(broker), written):
        asked.clear()
        read = Reader(MemoryStore(clock), overlay, clock, 1.0)
        await read.read(["a"])
        for number in range(1, 50):
            envelope = Envelope(f"e{number}", {"a": 2})
            if overlay is written:
                async with written.entered([envelope]):
                    assert [one.pending for one in await read.read(["a"])] == [2 * number - 2]
            else:
                await broker.publish([encode(envelope)])
            assert [one.pending for one in await read.read(["a"])] == [2 * number]
        assert len(asked) <= 2


def test_logs_that_part_do_not_see_each_others_entries() -> None:
    one, two, three = Entry("1", 1), Entry("2", 2), Entry("3", 3)
    first = EntryLog([one])
    second, other = first.grown([two], ()), first.grown([three], ())
    assert [*first] == [one]
    assert [*second] == [one, two]
    assert [*other] == [one, three]
    assert second.since(first) == [two]
    assert other.since(second) is None
    assert first.since(second) is None
    assert second.grown((), [three]) == (one, two, three)


WORDS = st.text("abc€", min_size=1, max_size=4)


@given(
    begun=st.sets(WORDS),
    changes=st.lists(st.tuples(st.booleans(), WORDS), max_size=80),
    prefix=st.text("abc€", max_size=2),
    after=st.text("abc€", max_size=3),
    limit=st.one_of(st.none(), st.integers(1, 9)),
)
def test_pages_are_those_of_a_sorted_set(
    begun: set[str], changes: list[tuple[bool, str]], prefix: str, after: str, limit: int | None
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", 2)
        patch.setattr(module, "NAMES_AT_ONCE", 4)
        for index in (NameIndex([*in_blocks([*begun])][-1]), NameIndex()):
            names = set(begun)
            for name in begun:
                index.add(name)
            for comes, name in changes:
                (index.add if comes else index.discard)(name)
                (names.add if comes else names.discard)(name)
            expected = sorted(name for name in names if name.startswith(prefix) and name > after)
            assert index.page(prefix, after, limit) == expected[:limit]


def test_it_is_sorted_in_steps() -> None:
    names = [str(number) for number in range(50_000)]
    steps = [*in_blocks(names)]
    assert len(steps) > 2 * 50_000 / NAMES_AT_ONCE
    assert [name for block in steps[-1] for name in block] == sorted(names)
    assert not any(steps[:-1])
