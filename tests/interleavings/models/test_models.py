"""The rules of each protocol hold over all interleavings of a small model, and each of them is needed."""

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
    replays,
    series,
    stops,
)
from tests.interleavings.models.explore import explore
from tests.interleavings.models.pages import DEAD, ORDER, OVERLAY, STORE, Counter, Model, State, flaw

MODELS = {
    "an id counts once however long its messages wait": (generations, {"it is counted twice"}),
    "an envelope is added once whoever stands still": (promises, {"it is added twice"}),
    "a dead letter counts once whoever stands still": (replays, {"it is added twice"}),
    "a point that says it is exact is right": (series, {"a point is wrong"}),
    "a point is right though some follow no rules": (followed, {"a point is wrong"}),
    "an exact total of a period that is over is final": (
        closed,
        {
            "an exact total of a period that is over has changed",
            "a period that was not kept is said to be exact",
        },
    ),
    "a receiver has the total though flushers are killed": (debts, {"the receiver has another value"}),
    "a threshold is told if it was reached": (
        reaches,
        {"a threshold is told that was not reached", "a threshold is missed"},
    ),
    "a member that stops leaves nothing unseen": (stops, {"a reading says exact and misses an increment"}),
    "readings that lean on looks miss nothing": (looks, {"a reading says exact and misses it"}),
    "what flushers that hand over say together is right": (
        handovers,
        {"the member is forgotten, and its message is not applied"},
    ),
}
"""What goes wrong in each of them without one of its rules."""
LARGE = (looks, handovers, promises, replays)
"""These take up to ten seconds each."""


def explored(which: Any, *rules: Any) -> tuple[int, list[str]]:
    model = which.Model(*rules)
    return explore(getattr(model, "first", which.State)(), model.steps, model.flaw)


def marks(model: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.check] if MODELS[model][0] in LARGE else []


@pytest.mark.parametrize("model", [pytest.param(model, marks=marks(model)) for model in MODELS])
def test_with_all_rules(model: str) -> None:
    states, way = explored(MODELS[model][0])
    assert way == []
    assert states > 1_000, "the model can do something"


@pytest.mark.parametrize(
    ("model", "rule"),
    [
        pytest.param(model, rule, marks=marks(model))
        for model, (which, _) in MODELS.items()
        for rule in sorted(which.RULES)
    ],
)
def test_without_one_of_the_rules_it_goes_wrong(model: str, rule: str) -> None:
    which, wrong = MODELS[model]
    _, way = explored(which, which.RULES - {rule})
    assert way
    assert way[-1] in wrong


@pytest.mark.check
def test_totals_are_final_though_there_are_two_increments() -> None:
    states, way = explore(closed.State(ones=(closed.One(),) * 2), closed.Model().steps, closed.Model.flaw)
    assert way == []
    assert states > 10_000


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
