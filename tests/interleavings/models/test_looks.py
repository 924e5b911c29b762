"""The model of looks: the rules hold, and each of them is needed."""

from functools import partial

import pytest

from tests.interleavings.models.explorer import explore
from tests.interleavings.models.looks import AGE, Rules, State, steps


def test_the_rules_hold() -> None:
    explored = explore(State(), partial(steps, rules=Rules()))
    assert explored.trace is None
    assert explored.states > 10_000, "the model can do something"


@pytest.mark.parametrize(
    "rules",
    [
        Rules(wait=0),
        Rules(wait=AGE),
        Rules(waits_for_epochs=False),
        Rules(owes_first=False),
        Rules(changes_void_bases=False),
        Rules(seeds=False),
    ],
    ids=str,
)
def test_each_rule_is_needed(rules: Rules) -> None:
    assert explore(State(), partial(steps, rules=rules)).trace is not None
