"""The rules of counts by time hold over all interleavings of a small model, and each of them is needed."""

from typing import Any

import pytest

from tests.interleavings.models import closed, followed, series
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


def test_an_exact_total_of_a_period_that_is_over_is_final() -> None:
    states, way = explore(closed.State(), closed.Model().steps, closed.Model.flaw)
    assert way == []
    assert states > 10_000


@pytest.mark.parametrize("rule", sorted(closed.RULES))
def test_without_one_of_the_rules_it_changes_or_was_not_kept(rule: str) -> None:
    _, way = explore(closed.State(), closed.Model(closed.RULES - {rule}).steps, closed.Model.flaw)
    assert way
    assert way[-1] in {
        "an exact total of a period that is over has changed",
        "a period that was not kept is said to be exact",
    }
