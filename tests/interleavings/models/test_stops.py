"""The model of members that stop: the rules hold, and each of them is needed."""

from dataclasses import replace
from functools import partial

import pytest

from tests.interleavings.models.explore import explore
from tests.interleavings.models.stops import Rules, first, steps


def test_the_rules_hold() -> None:
    states, way = explore(first(Rules()), partial(steps, rules=Rules()))
    assert way == []
    assert states > 10_000, "the model can do something"


@pytest.mark.parametrize(
    ("rule", "increments"),
    [
        ("ends_publishes", 1),
        ("lists_confirmed", 1),
        ("lists_its_copy", 1),
        ("all_of_it", 2),
        ("needs_list", 1),
        ("voids", 1),
    ],
)
def test_each_rule_is_needed(rule: str, increments: int) -> None:
    rules = replace(Rules(increments=increments), **{rule: False})
    assert explore(first(rules), partial(steps, rules=rules))[1]
