"""All rows, in the order of the table."""

from typing import Final

from tests.reliability import kills
from tests.reliability.rows import Row

ROWS: Final[tuple[Row, ...]] = (*kills.ROWS,)
