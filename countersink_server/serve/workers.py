"""Runs several ingest processes on one socket, and restarts those that die."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any, Final

from countersink_server.serve.run import MARGIN, Say, of_data, ready, stopping
from countersink_server.serve.sockets import Sockets
from ingest.access.door import Doors
from shared.config.settings import Settings
from shared.model.errors import CountersinkError
from shared.runtime import instruments
from shared.runtime.retry import Backoff, Stop
from shared.wiring.files import check_files, until_closed
from shared.wiring.process import connect

_log = logging.getLogger(__name__)

LONG: Final = 10.0
"""A worker that ran for this many seconds is restarted without the growing pause."""


async def supervise(settings: Settings, sockets: Sockets, count: int, say: Say) -> None:
    """Run until SIGTERM, then let all workers drain.

    Workers also drain if this process dies: they see that their pipe from it has ended.
    """
    stop = stopping()
    # Otherwise gRPC warns at each start of a worker. Its fork support is not needed: our children exec at once.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
    parts = connect(settings, makes=True)  # so that a bad setting is reported once, not by each worker
    async with until_closed(parts, parts.close):
        Doors(settings, parts.clock)
        await ready(parts, flushes=False)
    theirs, ours = os.pipe()
    public, *admin = [sock.fileno() for sock in (sockets.public, sockets.admin) if sock is not None]
    given = (public, theirs, *admin)
    statsd = () if sockets.statsd is None else tuple(sock.fileno() for sock in sockets.statsd)
    metrics = [instruments.make_shared() for _ in range(count)]
    for number in (*given, *statsd, *metrics):
        os.set_inheritable(number, True)
    patience, check = settings.drain_timeout + MARGIN, partial(check_files, settings)
    keepers = [_Keeper(number, given, patience, check, metrics) for number in range(count)]
    keepers[0].statsd = statsd
    try:
        async with asyncio.TaskGroup() as tasks:
            for keeper in keepers:
                tasks.create_task(keeper.run(stop), name=f"worker {keeper.number}")
            for keeper in keepers:
                await _before(stop, keeper.ready.wait())
            if not stop.is_set():
                say(f"countersink ingest is up on {sockets.described()} with {count} workers, {of_data(parts)}")
    finally:
        os.close(ours)
        os.close(theirs)


@dataclass
class _Keeper:
    number: int
    descriptors: Sequence[int]
    """The socket, the pipe from this process, and the socket for administrators if there is one."""
    patience: float
    check: Callable[[], None]
    """Raises an error if a restarted worker could not work."""
    metrics: Sequence[int]
    """The memory in which each worker counts. It outlives them, so a restarted worker continues to count there."""
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    statsd: Sequence[int] = ()
    """Where StatsD lines come: the first worker alone reads them. While it is restarted, the kernel keeps some."""

    async def run(self, stop: Stop) -> None:
        backoff = Backoff(first=0.1)
        loop = asyncio.get_running_loop()
        while not stop.is_set():
            worker = await self._start()
            begun = loop.time()
            try:
                await _before(stop, self._watch(worker))
            finally:
                await self._end(worker)
                instruments.shared(self.metrics[self.number], writes=True).drop_gauges()
            if stop.is_set():
                return
            how = _how(worker)
            if not self.ready.is_set():
                raise CountersinkError(f"a worker {how} before it was ready")
            _log.error("worker %d (process %d) %s and is started again", self.number, worker.pid, how)
            self.check()
            if loop.time() - begun > LONG:
                backoff.reset()
            await _before(stop, backoff.wait())

    async def _start(self) -> Process:
        arguments = [*command(sys.modules["__main__"]), "ingest", "--worker", *map(str, self.descriptors)]
        if self.statsd:
            arguments += ["--worker-statsd", *map(str, self.statsd)]
        arguments += ["--worker-metrics", str(self.number), *map(str, self.metrics)]
        given = (*self.descriptors, *self.statsd, *self.metrics)
        return await asyncio.create_subprocess_exec(*arguments, pass_fds=given, stdout=PIPE)

    async def _watch(self, worker: Process) -> None:
        """Wait until the worker ends. The line that it prints at the start says that it listens."""
        assert worker.stdout is not None  # noqa: S101 (`_start` asked for it)
        while await worker.stdout.readline():
            self.ready.set()
        await worker.wait()

    async def _end(self, worker: Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            worker.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(self.patience):
                await worker.wait()
        except TimeoutError:
            worker.kill()
            await worker.wait()
            raise CountersinkError(
                f"worker {self.number} did not finish within {self.patience:g} seconds and was killed;"
                " all increments that were answered 202 are safe"
            ) from None


async def _before(stop: Stop, work: Coroutine[Any, Any, object]) -> None:
    """Run `work` until it is done or `stop` is set."""
    working = asyncio.create_task(work)
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((working, stopped), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        working.cancel()
        stopped.cancel()


def _how(worker: Process) -> str:
    code = worker.returncode or 0
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def command(main: ModuleType) -> tuple[str, ...]:
    """The command that starts this program again, in the same way.

    `-m` is not always right: it could find a module of the same name in the current folder.
    """
    return (sys.executable, "-m", "countersink") if main.__spec__ is not None else (sys.executable, sys.argv[0])
