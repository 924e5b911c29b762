"""Starts Countersink's processes, and ends what it started."""

import asyncio
import contextlib
import itertools
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import aiohttp

from countersink import AsyncClient
from tests.cli.running import Done, run
from tests.processes.fork_server import Forked, can_fork, fork_in_loop

START_UP = 120.0
PATIENT = {f"COUNTERSINK_{name}_TIMEOUT": "60" for name in ("BODY", "DRAIN", "HEAD")}
"""So that a machine that pauses changes nothing of what a process does."""
_URL = re.compile(r"http://127\.0\.0\.1:(\d+)")


class Running:
    """A process that said that it is there."""

    def __init__(self, process: Process | Forked, line: str) -> None:
        self.process = process
        self.line = line
        self._reading = asyncio.create_task(self._read())

    @property
    def port(self) -> int:
        found = _URL.search(self.line)
        assert found, self.line
        return int(found[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def children(self) -> list[int]:
        """Process ids."""
        pid = self.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    async def _read(self) -> None:
        """So that its pipe never fills."""
        assert self.process.stdout
        while await self.process.stdout.readline():
            pass

    async def end(self, number: int) -> int:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        async with asyncio.timeout(START_UP):  # Python 3.11's wait_for may ignore that its task is cancelled
            code = await self.process.wait()
        await self._reading
        return code


class Processes:
    """All that one test started."""

    def __init__(self, data: Path, settings: Mapping[str, str], log: Path | None = None) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("COUNTERSINK_")}
        kept.setdefault("XDG_STATE_HOME", f"{data}-state")
        self.environment = kept | PATIENT | {"COUNTERSINK_BROKER": f"sqlite:///{data}/countersink.db"} | dict(settings)
        self.log = log
        """Takes what all of them write to standard error; without it whoever runs the tests sees it."""
        self._all: list[Running] = []

    async def start(self, *arguments: str, within: Sequence[str] = (), **settings: str) -> Running:
        """`python -m countersink ARGUMENTS`, once it has said that it runs; again while its port is taken."""
        with contextlib.ExitStack() as stack:
            log = stack.enter_context(self.log.open("ab")) if self.log else None
            return await self._start(arguments, within, self.environment | settings, log)

    async def _start(
        self, arguments: Sequence[str], within: Sequence[str], environment: Mapping[str, str], log: IO[bytes] | None
    ) -> Running:
        async with asyncio.timeout(START_UP):
            while True:
                process = await self._process(arguments, within, environment, log)
                assert process.stdout
                try:
                    line = (await process.stdout.readline()).decode()
                except BaseException:  # too late, or nobody waits for it any more
                    process.kill()
                    await process.wait()
                    raise
                if line:
                    running = Running(process, line)
                    self._all.append(running)
                    return running
                await process.wait()
                assert "--port" in arguments, f"{arguments} ended with {process.returncode}"

    async def _process(
        self, arguments: Sequence[str], within: Sequence[str], environment: Mapping[str, str], log: IO[bytes] | None
    ) -> Process | Forked:
        if not within and can_fork(environment):
            return await fork_in_loop(arguments, environment, log.fileno() if log else 2)
        command = (*within, sys.executable, "-m", "countersink", *arguments)
        return await asyncio.create_subprocess_exec(*command, env=environment, stdout=PIPE, stderr=log)

    async def command(self, *arguments: str, **settings: str) -> Done:
        """A command that ends by itself."""
        return await asyncio.to_thread(run, *arguments, cwd=None, **(self.environment | settings))

    async def close(self) -> None:
        for running in self._all:
            if running.process.returncode is None:
                await running.end(signal.SIGKILL)
        said = self.log.read_text() if self.log and self.log.exists() else ""
        assert "Traceback" not in said, said[said.index("Traceback") :][:4_000]


@contextlib.asynccontextmanager
async def processes(data: Path, log: Path | None = None, **settings: str) -> AsyncIterator[Processes]:
    started = Processes(data, settings, log)
    try:
        yield started
    finally:
        await started.close()


async def count(url: str, times: int = 1, counter: str = "a", query: str = "") -> None:
    """Requests one after the other, each of which is accepted."""
    async with aiohttp.ClientSession() as session:
        for _ in range(times):
            async with session.post(f"{url}/v1/counters/{counter}{query}") as response:
                assert response.status in {200, 202}, await response.text()


async def value(url: str, counter: str = "a", max_age: float | None = None) -> tuple[int, bool]:
    """And whether it is exact."""
    async with AsyncClient(url, patience=60) as client:
        read = await client.get(counter, max_age=max_age)
    return read.value, read.exact


async def total(url: str, counter: str) -> int:
    """The value, which must be exact."""
    found, exact = await value(url, counter, 0)
    assert exact
    return found


async def accept(session: aiohttp.ClientSession, urls: Sequence[str], deltas: Mapping[str, int], key: str) -> None:
    """Send it until it is accepted, by any of them: some may be away."""
    asked: dict[str, Any] = {"json": {"counters": deltas}, "headers": {"Idempotency-Key": key}}
    async with asyncio.timeout(60):
        for url in itertools.cycle(urls):
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with session.post(f"{url}/v1/increments", timeout=aiohttp.ClientTimeout(5), **asked) as answer:
                    if answer.status == 202:
                        return
            await asyncio.sleep(0.01)


async def series(session: aiohttp.ClientSession, url: str, name: str, query: str) -> Any:
    async with session.get(f"{url}/v1/counters/{name}/series?{query}") as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()
