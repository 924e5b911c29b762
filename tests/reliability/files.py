"""What others do to the file, and what its disk does: locks, and calls that fail."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from tests.processes.trace import strace_needed
from tests.reliability.kills import again
from tests.reliability.rows import SQLITE, Clients, Row
from tests.reliability.scene import Scene

HELD = 12.0
"""Seconds for which somebody else holds the lock: longer than what waits first and what waits next have patience."""
LONGEST_HELD = 60.0
UP = ("up", "--port", "0")
NOTICED = 20.0
"""Seconds until a process whose file has gone has ended, at most."""


async def locked(scene: Scene, seconds: float) -> None:
    """By a program that knows nothing of ours."""
    file, until = scene.folder / "countersink.db", scene.seconds + seconds
    while scene.seconds < until:
        await asyncio.to_thread(_hold, file, lambda: scene.calls.errors["503"] > 0)
        await scene.busy(20)
    assert scene.calls.errors["503"], "nobody noticed the lock"


def _hold(file: Path, noticed: Callable[[], bool]) -> None:
    """For `HELD`, and until somebody has noticed it: on a busy machine that takes longer."""
    with closing(sqlite3.connect(file, timeout=20, isolation_level=None)) as db:
        db.execute("BEGIN EXCLUSIVE")
        begun = time.monotonic()
        while (held := time.monotonic() - begun) < HELD or (not noticed() and held < LONGEST_HELD):
            time.sleep(0.1)
        db.execute("ROLLBACK")


def failing(scene: Scene) -> Sequence[str]:
    """Of each thread's calls some fail, again and again; the process keeps its number."""
    strace_needed()
    return (
        *("strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=pwrite64,fdatasync,ftruncate"),
        *("-e", "inject=fdatasync:error=EIO:when=40+9"),
        *("-e", "inject=pwrite64:error=ENOSPC:when=300+97"),
        *("-e", "inject=ftruncate:error=EIO:when=12+5"),
    )


FAILS_WITHIN: Final = 60.0
"""Seconds within which a call fails. A disk that is slow is asked seldom."""


async def errors(scene: Scene, seconds: float) -> None:
    """A process is killed after errors, too, and the last ones are started on a disk that is whole."""
    async with asyncio.timeout(FAILS_WITHIN):
        while not scene.calls.errors["503"]:
            await asyncio.sleep(0.1)
    until = scene.seconds + seconds
    while scene.seconds < until:
        await asyncio.sleep(min(seconds / 2, 5))
        await again(scene.pick(scene.ingests))
    for slot in scene.ingests:
        slot.within = ()
        await again(slot)


async def taken_away(scene: Scene, seconds: float) -> None:
    """The process ends by itself, and whoever starts it again is told what is wrong until the file is back."""
    file, until = scene.folder / "countersink.db", scene.seconds + seconds
    away = file.with_suffix(".away")
    while scene.seconds < until:
        await scene.busy(20)
        slot = scene.pick(scene.ingests)
        slot.busy = True
        running, slot.running = slot.running, None
        assert running
        await asyncio.to_thread(file.rename, away)
        assert await asyncio.wait_for(running.process.wait(), NOTICED) == 1
        said = await scene.command("flusher", code=1)
        assert f"{file} is gone" in said, said
        await asyncio.to_thread(away.rename, file)
        await slot.start()
        slot.busy = False


ROWS = (
    Row(
        "file-taken-away",
        "the data file is taken away under `countersink up`, which ends; a start without the file is refused; the file"
        " is put back",
        taken_away,
        (SQLITE,),
        smoke=(SQLITE,),
        flushers=0,
        ingest=UP,
        clients=Clients(foreign=0),  # who publishes has the file open, too, and is told the same
    ),
    Row(
        "locked",
        f"another program locks the file for {HELD:g} s, again and again",
        locked,
        (SQLITE,),
        flushers=0,
        ingest=UP,
        short=HELD,
    ),
    Row(
        "disk-errors",
        "of `countersink up`, every 9th fdatasync and every 5th ftruncate fail with EIO, every 97th write with ENOSPC;"
        " SIGKILL now and then",
        errors,
        (SQLITE,),
        smoke=(SQLITE,),
        flushers=0,
        ingest=UP,
        within=failing,
        short=3.0,
        refusals=frozenset({503, 507}),
    ),
)
