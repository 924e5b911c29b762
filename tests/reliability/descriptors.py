"""More connections than a process may have files open."""

import asyncio
import resource
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from urllib.parse import urlsplit

from tests.processes.attacks import processor
from tests.reliability.rows import SQLITE, Row
from tests.reliability.scene import Scene

LIMIT = 200
"""File descriptors of the process."""
CROWD = 2_000
BUSY = 0.8
"""Of one core, at most, for those who are served meanwhile: spinning over a connection takes all of it."""


def with_few(scene: Scene) -> Sequence[str]:
    return ("prlimit", f"--nofile={LIMIT}:{LIMIT}")


async def crowds(scene: Scene, seconds: float) -> None:
    """Idle ones, who come again and again for as long as it takes; who was there before is served meanwhile."""
    (ingest,) = scene.ingests
    where = urlsplit(ingest.url)
    address = (where.hostname or "", where.port or 0)
    assert ingest.running
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4 * CROWD), hard))
    before, begun = processor(ingest.running), scene.seconds
    with ExitStack() as crowd:
        while scene.seconds < begun + seconds:
            for _ in range(CROWD // 20):
                client = crowd.enter_context(socket.socket())
                client.setblocking(False)
                client.connect_ex(address)
            await asyncio.sleep(seconds / 20)
        used = processor(ingest.running) - before
        assert used < BUSY * (scene.seconds - begun), f"{used} s of CPU"
        await scene.busy()


ROWS = (
    Row(
        "descriptors",
        f"{CROWD:,} idle connections to a process that may have {LIMIT} files open",
        crowds,
        (SQLITE,),
        smoke=(SQLITE,),
        flushers=0,
        ingest=("up", "--port", "0"),
        within=with_few,
        short=3.0,
    ),
)
