"""The rules of the generations hold over all interleavings of a small model, and each of them is needed."""

import pytest

from tests.interleavings.models.explore import explore
from tests.interleavings.models.generations import RULES, Model, State, flaw


def test_an_id_counts_once_however_long_its_messages_wait() -> None:
    states, way = explore(State(), Model().steps, flaw)
    assert way == []
    assert states > 1_000


@pytest.mark.parametrize("rule", sorted(RULES))
def test_without_one_of_the_rules_it_counts_twice(rule: str) -> None:
    _, way = explore(State(), Model(RULES - {rule}).steps, flaw)
    assert way
    assert way[-1] == "it is counted twice"
