"""The model of flushers that hand over: what they say together is right, and each rule is needed for that."""

from functools import partial

import pytest

from tests.interleavings.models.explore import explore
from tests.interleavings.models.handovers import Rules, State, steps


@pytest.mark.check
def test_the_rules_hold() -> None:
    states, way = explore(State(), partial(steps, rules=Rules()))
    assert way == []
    assert states > 10_000, "the model can do something"


@pytest.mark.parametrize(
    "rules",
    [Rules(watches=1), Rules(keeps_what_it_saw=False), Rules(minds_gaps=False)],
    ids=str,
)
def test_each_rule_is_needed(rules: Rules) -> None:
    assert explore(State(), partial(steps, rules=rules))[1]
