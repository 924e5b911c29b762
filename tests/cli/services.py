"""A service for tests of commands, and its data."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import aiohttp

from tests.cli.running import LONGEST, environment
from tests.processes.fork_server import Forked, fork


class Service(NamedTuple):
    """One that runs."""

    url: str
    data: Path
    process: Forked


@contextlib.contextmanager
def service(data: Path, port: str = "0", **settings: str) -> Iterator[Service]:
    env = environment(COUNTERSINK_FLUSH_INTERVAL="0", **settings)
    reading, writing = os.pipe()
    process = fork(["up", "--port", port, "--data", str(data)], env, stdout=writing, stderr=2)
    os.close(writing)
    with os.fdopen(reading) as out:
        try:
            yield Service(out.readline().split()[4].rstrip(","), data, process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            process.end_within(LONGEST)


def apart() -> aiohttp.ClientSession:
    """For requests over connections of their own, so that each worker gets some."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))


async def count(url: str, times: int = 1, query: str = "") -> None:
    """One is added to the counter a, so many times."""
    async with apart() as session:
        for _ in range(times):
            async with session.post(f"{url}/v1/counters/a{query}") as response:
                assert response.status == 202


async def total(url: str, key: str = "") -> int:
    """Of the counter a, now."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with apart() as session, session.get(f"{url}/v1/counters/a?max_age=0", headers=headers) as response:
        found = await response.json()
    assert found["exact"]
    return int(found["value"])
