"""The wall clock jumps: days ahead, hours back, and right again, for all processes or for some of them."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.reliability.kills import again
from tests.reliability.rows import SQLITE, Row
from tests.reliability.scene import Scene

HOUR = 3_600
JUMPS = (30 * 24 * HOUR, -5 * HOUR, 0)
"""Seconds between the clock of the processes and ours."""
_SHIFTED = Path(__file__).with_name("shifted_clock.py")


def by_another_clock(scene: Scene) -> Sequence[str]:
    return (sys.executable, str(_SHIFTED), str(_file(scene)))


async def jumps(scene: Scene, seconds: float) -> None:
    """Now and then a process is killed by one clock, and the next one finds what it held by another."""
    pause, until = seconds / len(JUMPS), scene.seconds + seconds
    while scene.seconds < until:
        for jump in JUMPS:
            _file(scene).write_text(str(jump))
            await asyncio.sleep(min(pause, 2) / 2)
            await again(scene.pick(scene.ingests))
            await asyncio.sleep(min(pause, 2) / 2)
    _file(scene).unlink()


def _file(scene: Scene) -> Path:
    return scene.folder / "clock"


ROWS = (
    Row(
        "clock-jumps",
        "the wall clock of two `countersink up` on one file jumps by 30 days and by hours, forwards and back; SIGKILL"
        " of one of them after each jump",
        jumps,
        (SQLITE,),
        ingests=2,
        flushers=0,
        ingest=("up", "--port", "0"),
        settings={"COUNTERSINK_FLUSH_INTERVAL": "1"},  # so that whoever is killed held something
        within=by_another_clock,
        short=3.0,
    ),
)
