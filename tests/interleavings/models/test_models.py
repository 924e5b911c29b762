"""The rules of each protocol hold over all interleavings of a small model, and each of them is needed."""

from dataclasses import replace
from functools import partial
from itertools import permutations
from typing import Any

import pytest

from tests.interleavings.models import (
    closed,
    debts,
    followed,
    generations,
    handovers,
    looks,
    promises,
    reaches,
    series,
    stops,
)
from tests.interleavings.models.explore import explore
from tests.interleavings.models.pages import DEAD, ORDER, OVERLAY, STORE, Counter, Model, State, flaw

MODELS = {
    "an id counts once however long its messages wait": (generations, 1_000, {"it is counted twice"}),
    "an envelope is added once whoever stands still": (promises, 1_000, {"it is added twice"}),
    "a point that says it is exact is right": (series, 1_000, {"a point is wrong"}),
    "a point is right though some follow no rules": (followed, 1_000, {"a point is wrong"}),
    "an exact total of a period that is over is final": (
        closed,
        1_000,
        {
            "an exact total of a period that is over has changed",
            "a period that was not kept is said to be exact",
        },
    ),
    "a receiver has the total though flushers are killed": (debts, 1_000, {"the receiver has another value"}),
    "a threshold is told if it was reached": (
        reaches,
        1_000,
        {"a threshold is told that was not reached", "a threshold is missed"},
    ),
}
"""Models whose rules have names, how many states each has at least, and what goes wrong without a rule."""


def explored(which: Any, *rules: Any) -> tuple[int, list[str]]:
    model = which.Model(*rules)
    return explore(which.State(), model.steps, getattr(model, "flaw", None) or which.flaw)


@pytest.mark.parametrize("model", MODELS)
def test_with_all_rules(model: str) -> None:
    which, least, _ = MODELS[model]
    states, way = explored(which)
    assert way == []
    assert states > least, "the model can do something"


@pytest.mark.parametrize(
    ("model", "rule"), [(model, rule) for model, (which, *_) in MODELS.items() for rule in sorted(which.RULES)]
)
def test_without_one_of_the_rules_it_goes_wrong(model: str, rule: str) -> None:
    which, _, wrong = MODELS[model]
    _, way = explored(which, which.RULES - {rule})
    assert way
    assert way[-1] in wrong


@pytest.mark.check
def test_totals_are_final_though_there_are_two_increments() -> None:
    states, way = explore(closed.State(ones=(closed.One(),) * 2), closed.Model().steps, closed.Model.flaw)
    assert way == []
    assert states > 10_000


@pytest.mark.check
def test_readings_that_lean_on_looks_miss_nothing() -> None:
    states, way = explore(
        looks.State(), partial(looks.steps, rules=looks.Rules()), partial(looks.flaw, rules=looks.Rules())
    )
    assert way == []
    assert states > 10_000


@pytest.mark.check
@pytest.mark.parametrize(
    "rules",
    [
        looks.Rules(wait=0),
        looks.Rules(wait=looks.AGE),
        looks.Rules(waits_for_epochs=False),
        looks.Rules(owes_first=False),
        looks.Rules(changes_void_bases=False),
        looks.Rules(seeds=False),
    ],
    ids=str,
)
def test_without_one_of_the_rules_of_looks_they_do(rules: looks.Rules) -> None:
    assert explore(looks.State(), partial(looks.steps, rules=rules), partial(looks.flaw, rules=rules))[1]


@pytest.mark.check
def test_what_flushers_that_hand_over_say_together_is_right() -> None:
    states, way = explore(handovers.State(), partial(handovers.steps, rules=handovers.Rules()))
    assert way == []
    assert states > 10_000


@pytest.mark.check
@pytest.mark.parametrize(
    "rules",
    [handovers.Rules(watches=1), handovers.Rules(keeps_what_it_saw=False), handovers.Rules(minds_gaps=False)],
    ids=str,
)
def test_without_one_of_the_rules_of_handovers_it_is_not(rules: handovers.Rules) -> None:
    assert explore(handovers.State(), partial(handovers.steps, rules=rules))[1]


def test_a_member_that_stops_leaves_nothing_unseen() -> None:
    states, way = explore(stops.first(), partial(stops.steps, rules=stops.Rules()))
    assert way == []
    assert states > 10_000


@pytest.mark.parametrize(
    "rule", ["ends_publishes", "lists_confirmed", "lists_its_copy", "all_of_it", "needs_list", "voids"]
)
def test_without_one_of_the_rules_of_stops_it_does(rule: str) -> None:
    """A list of which all has to be settled has two increments."""
    rules = replace(stops.Rules(), **{rule: False})
    assert explore(stops.first(2 if rule == "all_of_it" else 0), partial(stops.steps, rules=rules))[1]


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
