"""A job visits every counter of which something was accepted before it began; and each rule is needed for it."""

from itertools import permutations

import pytest

from tests.interleavings.models.explore import explore
from tests.interleavings.models.pages import DEAD, ORDER, OVERLAY, STORE, Counter, Model, State, flaw


def test_a_job_visits_what_was_accepted_before_it_began() -> None:
    states, way = explore(State(), Model().steps, flaw)
    assert way == []
    assert states > 1_000


@pytest.mark.parametrize(
    "order", [*[order for order in permutations(ORDER) if order != ORDER], (DEAD, STORE), (OVERLAY, STORE), (STORE,)]
)
def test_in_another_order_or_without_a_place_it_misses_some(order: tuple[str, ...]) -> None:
    _, way = explore(State(), Model(order).steps, flaw)
    assert way


def test_a_page_that_is_longer_than_one_place_can_answer_misses_some() -> None:
    _, way = explore(State((Counter(),) * 3), Model(merged=False).steps, flaw)
    assert way
