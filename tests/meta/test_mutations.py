"""A sabotage whose line has changed would do nothing, and end `make sabotage`."""

from collections import Counter

import pytest

from tests.meta.checkout import ROOT
from tests.mutations.sabotages import SABOTAGES, Sabotage


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda one: one.name)
def test_the_line_of_each_stands_once(sabotage: Sabotage) -> None:
    assert (ROOT / sabotage.file).read_text().count(sabotage.line) == 1


def test_no_two_have_the_same_name() -> None:
    assert [name for name, number in Counter(one.name for one in SABOTAGES).items() if number > 1] == []
