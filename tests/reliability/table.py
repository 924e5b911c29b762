"""All rows, in the order of the table."""

from typing import Final

from tests.reliability import (
    autoscaling,
    clock,
    descriptors,
    disk,
    ends,
    files,
    freezes,
    kills,
    network,
    overlays,
    poisoned,
    programs,
    restarts,
)
from tests.reliability.rows import Row

ROWS: Final[tuple[Row, ...]] = (
    *kills.ROWS,
    *programs.ROWS,
    *ends.ROWS,
    *freezes.ROWS,
    *network.ROWS,
    *restarts.ROWS,
    *overlays.ROWS,
    *poisoned.ROWS,
    *files.ROWS,
    *disk.ROWS,
    *descriptors.ROWS,
    *clock.ROWS,
    *autoscaling.ROWS,
)
