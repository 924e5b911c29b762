"""Admission: shares of the room, what really waits, and the ids that were accepted."""

from collections.abc import Sequence
from itertools import chain, count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.accept.admission import BYTES, Admission, KnownIds, PendingShares, weight_of
from ingest.accept.drafts import Batch, Coalescer, Draft
from ingest.parsing.parse import BodyError
from shared.model.buckets import Monotonic
from shared.model.errors import OverloadedError, ShareError
from shared.model.receipts import CLIENT_IDS_REMEMBERED
from shared.model.words import Increment, Message
from shared.ports.broker import Check, at_any_time
from tests.world.manual_clock import ManualClock

TENANTS = "abcd"
COUNTERS = "wxyz"


class Scene:
    """Admission before a coalescer, and a ledger that is kept in the plainest way."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        numbers = count()
        self.coalescer = Coalescer(lambda: f"e{next(numbers)}", max_entries=3)
        self.flights: list[list[Draft]] = []
        self.admission = Admission(capacity, self.drafts)
        self.held: list[tuple[Draft, str, int]] = []

    def drafts(self) -> list[Draft]:
        return [*self.coalescer.drafts(), *chain(*self.flights)]

    def total(self) -> int:
        return sum(weight for _, _, weight in self.held)

    def of(self, tenant: str) -> int:
        return sum(weight for _, one, weight in self.held if one == tenant)

    def of_counter(self, counter: str) -> int:
        return sum(draft.by_counter().get(counter, 0) for draft in self.drafts())

    def enter(self, tenant: str, counts: dict[str, int], keyed: int = 0, weight: int = 0) -> None:
        items = [Increment(next(iter(counts)), 1, f"id{number}") for number in range(keyed)]
        many = {name: number for name, number in counts.items() if number > 1}
        batch = Batch(dict(counts), many, items, sum(counts.values()) + keyed)
        weight = max(weight, batch.increments)
        self.admission.enter(tenant, weight, batch.by_counter(), 0.0)
        last = self.coalescer.add_batch(batch)[-1]
        last.senders[tenant] = last.senders.get(tenant, 0) + weight
        self.held.append((last, tenant, weight))

    def take(self, limit: int) -> None:
        self.flights.append(self.coalescer.take(limit))

    def land(self) -> None:
        drafts = self.flights.pop(0)
        self.admission.leave(drafts, 1.0)
        self.held = [entry for entry in self.held if entry[0] not in drafts]

    def rest(self) -> None:
        while self.coalescer:
            self.take(2)
        while self.flights:
            self.land()


_ENTER = st.tuples(
    st.sampled_from(TENANTS),
    st.dictionaries(st.sampled_from(COUNTERS), st.integers(1, 4), min_size=1),
    st.integers(0, 2),
    st.integers(0, 12),
)
_STEPS = st.lists(st.one_of(_ENTER, st.integers(0, 4)), max_size=60)


@given(capacity=st.integers(1, 40), steps=_STEPS)
def test_shares_are_kept_and_nothing_is_forgotten(
    capacity: int, steps: list[tuple[str, dict[str, int], int, int] | int]
) -> None:
    scene = Scene(capacity)
    for step in steps:
        if isinstance(step, int):
            scene.take(step) if step else scene.land() if scene.flights else None
        else:
            tenant, counts, keyed, weight = step
            before, own = scene.total(), scene.of(tenant)
            by_counter = Batch(dict(counts), counts, [Increment(next(iter(counts)))] * keyed).by_counter()
            of_counters = {counter: scene.of_counter(counter) for counter in by_counter}
            weight = max(weight, sum(by_counter.values()))
            free = capacity - before - weight
            try:
                scene.enter(tenant, counts, keyed, weight)
            except ShareError:
                over = own + weight > free
                over |= any(held and held + by_counter[name] > free for name, held in of_counters.items())
                assert over
                assert scene.total() == before
            except OverloadedError:
                assert free < 0 < before
            else:
                assert not before or free >= 0
                assert not before or not own or own + weight <= free
                assert not before or all(
                    not held or held + by_counter[name] <= free for name, held in of_counters.items()
                )
        assert scene.admission.held == scene.total()
        tenants, counters = scene.admission._tenants.holders, scene.admission._counters.holders
        if scene.admission.easy < 0:
            assert tenants == {one: scene.of(one) for one in TENANTS if scene.of(one)}
            assert counters == {one: scene.of_counter(one) for one in COUNTERS if scene.of_counter(one)}
        else:
            assert not tenants
            assert not counters
    scene.rest()
    assert scene.admission.held == 0
    assert (scene.admission._tenants.holders, scene.admission._counters.holders) == ({}, {})
    scene.enter("new", {"new": 1})


def test_what_is_larger_than_all_of_it_gets_in_alone() -> None:
    scene = Scene(10)
    scene.enter("a", {"x": 25})
    says = "25 increments wait to be published, and COUNTERSINK_MAX_WAITING allows 10"
    with pytest.raises(OverloadedError, match=says):
        scene.enter("b", {"y": 1})
    scene.rest()
    scene.enter("b", {"y": 1})


def test_a_tenant_that_holds_nothing_may_take_much_but_not_all_that_is_left() -> None:
    scene = Scene(80)
    scene.enter("a", {"x": 10})
    with pytest.raises(ShareError, match="exceed its share"):
        scene.enter("b", {"y": 65})
    scene.enter("b", {"y": 60})
    with pytest.raises(ShareError):
        scene.enter("c", {"z": 6})
    scene.enter("c", {"z": 5})


def test_a_refusal_comes_before_the_body_is_read_which_weighs_by_its_bytes_if_these_are_many() -> None:
    scene = Scene(100)
    scene.enter("a", {"x": 50})
    scene.admission.check("b", 30, 0.0)
    assert scene.of("b") == 0
    with pytest.raises(ShareError):
        scene.admission.check("a", 10, 0.0)
    assert [weight_of(3, size) for size in (90, 100 * BYTES)] == [3, 100]


def test_a_refusal_says_when_there_will_be_room() -> None:
    scene = Scene(1_000)
    for number in range(100):
        scene.enter("a", {f"{number}-{part}": 1 for part in range(5)})
    with pytest.raises(ShareError) as new:
        scene.enter("a", {"x": 1})
    assert new.value.retry_after == 1
    scene.take(20)  # 60 of 500, in the second that `land` says
    scene.land()
    scene.enter("b", {f"b{part}": 1 for part in range(50)})
    with pytest.raises(ShareError) as error:
        scene.enter("a", {f"x{part}": 1 for part in range(200)})
    assert 4 < error.value.retry_after < 10


MOST = 32 * 2**20


class Broker:
    """A third of what it may hold is pending."""

    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None: ...

    async def check(self) -> None: ...

    def pending(self) -> tuple[int, int]:
        return MOST // 3, MOST

    def weigh(self, message: Message) -> int:
        return len(message.data)


def test_what_has_been_published_does_not_count_as_waiting() -> None:
    """A client may send far more than its share in a moment, if the ingest sums and publishes it in that moment."""
    clock = ManualClock()
    shares = PendingShares(Broker(), list[Draft], clock.monotonic)
    for _ in range(100):
        shares.judge("a", MOST // 10)
        clock.turn(0.001)


NOW = Monotonic(1_000.0)


def keyed(*items: Increment) -> Draft:
    return Draft(keyed=list(items))


def test_a_refusal_does_not_advise_to_count_again_what_may_have_counted() -> None:
    """Another process may have accepted this one first: a retry of it under a new id would count twice."""
    known = KnownIds()
    known.accepted(keyed(Increment("a", 2, "x")), NOW)
    known.accepted(Draft({"a": 2}, id="key", attempt="1"), NOW)
    says = r"perhaps this one, if you sent it before.*If it is not a retry, send it with a new id or key"
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
