"""The model of looks: the rules hold, and each of them is needed."""

from functools import partial

import pytest

from tests.interleavings.models.explore import explore
from tests.interleavings.models.looks import AGE, Rules, State, flaw, steps


def test_the_rules_hold() -> None:
    states, way = explore(State(), partial(steps, rules=Rules()), partial(flaw, rules=Rules()))
    assert way == []
    assert states > 10_000, "the model can do something"


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
    assert explore(State(), partial(steps, rules=rules), partial(flaw, rules=rules))[1]
