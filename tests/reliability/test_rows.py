"""Some rows of the table for real, for a few seconds: nothing is lost, nothing doubled, no reading wrong."""

import pytest

from tests.reliability.conftest import Shared
from tests.reliability.rows import Row
from tests.reliability.run import run
from tests.reliability.table import ROWS

LEAST = 100
"""Increments that must have been accepted, or the load was none."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("row", "pair"),
    [pytest.param(row, pair, id=f"{row.name}-{pair}") for row in ROWS for pair in row.smoke],
)
async def test_a_row(row: Row, pair: str, ground: Shared) -> None:
    result = await run(row, pair, ground, row.short)
    assert not result.wrong
    assert result.lost == result.doubled == 0
    assert result.accepted >= LEAST
    assert result.reads > 0
    assert result.peak > 0
