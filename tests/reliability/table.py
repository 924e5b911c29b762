"""All rows, in the order of the table."""

from typing import Final

from tests.reliability import clock, descriptors, disk, files, kills
from tests.reliability.rows import Row

ROWS: Final[tuple[Row, ...]] = (*kills.ROWS, *files.ROWS, *disk.ROWS, *descriptors.ROWS, *clock.ROWS)
