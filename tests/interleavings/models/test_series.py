"""The rules of counts by time hold over all interleavings of a small model, and each of them is needed."""

import pytest

from tests.interleavings.models.explore import explore
from tests.interleavings.models.series import RULES, Model, State


def test_a_point_that_says_it_is_exact_is_right() -> None:
    model = Model()
    states, way = explore(State(), model.steps, model.flaw)
    assert way == []
    assert states > 1_000


@pytest.mark.parametrize("rule", sorted(RULES))
def test_without_one_of_the_rules_a_point_is_wrong(rule: str) -> None:
    model = Model(RULES - {rule})
    _, way = explore(State(), model.steps, model.flaw)
    assert way
    assert way[-1] == "a point is wrong"
