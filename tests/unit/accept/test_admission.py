"""Admission: no tenant or counter takes all the room, newcomers get in, and nothing is forgotten."""

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.accept.admission import BYTES, Admission, weight_of
from ingest.accept.drafts import Batch, Coalescer, Draft
from shared.model.errors import OverloadedError, ShareError
from shared.model.words import Increment

TENANTS = "abcd"
COUNTERS = "wxyz"


class Scene:
    """Admission before a coalescer, and a ledger that is kept in the plainest way."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        numbers = count()
        self.coalescer = Coalescer(lambda: f"e{next(numbers)}", max_entries=3)
        self.flights: list[list[Draft]] = []
        self.admission = Admission(
            capacity, lambda: [*self.coalescer.drafts(), *(d for drafts in self.flights for d in drafts)]
        )
        self.held: list[tuple[Draft, str, int]] = []

    def total(self) -> int:
        return sum(weight for _, _, weight in self.held)

    def of(self, tenant: str) -> int:
        return sum(weight for _, one, weight in self.held if one == tenant)

    def of_counter(self, counter: str) -> int:
        drafts = [*self.coalescer.drafts(), *(draft for drafts in self.flights for draft in drafts)]
        return sum(draft.by_counter().get(counter, 0) for draft in drafts)

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
    with pytest.raises(OverloadedError, match="25 increments wait to be published, COUNTERSINK_MAX_WAITING allows 10"):
        scene.enter("b", {"y": 1})
    scene.rest()
    scene.enter("b", {"y": 1})


def test_a_tenant_that_holds_nothing_may_take_much_but_not_all_that_is_left() -> None:
    scene = Scene(80)
    scene.enter("a", {"x": 10})
    with pytest.raises(ShareError, match="beyond its share"):
        scene.enter("b", {"y": 65})
    scene.enter("b", {"y": 60})
    with pytest.raises(ShareError):
        scene.enter("c", {"z": 6})
    scene.enter("c", {"z": 5})


def test_a_refusal_comes_before_the_body_is_read() -> None:
    scene = Scene(100)
    scene.enter("a", {"x": 50})
    scene.admission.check("b", 30, 0.0)
    assert scene.of("b") == 0
    with pytest.raises(ShareError):
        scene.admission.check("a", 10, 0.0)


def test_bodies_weigh_by_their_bytes_where_these_are_many() -> None:
    assert weight_of(3, 90) == 3
    assert weight_of(3, 100 * BYTES) == 100


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
