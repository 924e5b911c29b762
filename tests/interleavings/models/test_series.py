"""The rules of counts by time hold over all interleavings of a small model, and each of them is needed."""

from typing import Any

import pytest

from tests.interleavings.models import followed, series
from tests.interleavings.models.explore import explore


@pytest.mark.parametrize("which", [series, followed])
def test_a_point_that_says_it_is_exact_is_right(which: Any) -> None:
    model = which.Model()
    states, way = explore(which.State(), model.steps, model.flaw)
    assert way == []
    assert states > 1_000


@pytest.mark.parametrize(
    ("which", "rule"), [(which, rule) for which in (series, followed) for rule in sorted(which.RULES)]
)
def test_without_one_of_the_rules_a_point_is_wrong(which: Any, rule: str) -> None:
    model = which.Model(which.RULES - {rule})
    _, way = explore(which.State(), model.steps, model.flaw)
    assert way
    assert way[-1] == "a point is wrong"
