"""Keeps a number of ingest processes on one socket: starts them, starts dead ones again, stops them."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys

from countersink.processes import Say, stopping, url_of
from shared.backoff import Backoff
from shared.supervise import Stop

_log = logging.getLogger(__name__)

MARGIN = 5.0
"""Seconds beyond the drain before a worker is killed."""


async def supervise(sock: socket.socket, count: int, drain_timeout: float, say: Say) -> None:
    """Until SIGTERM; then let all of them drain. They notice if this process dies: their pipe from it ends."""
    stop = stopping()
    sock.set_inheritable(True)
    theirs, ours = os.pipe()
    os.set_inheritable(theirs, True)
    try:
        async with asyncio.TaskGroup() as tasks:
            for number in range(count):
                tasks.create_task(_keep(sock, theirs, stop, drain_timeout), name=f"worker {number}")
            say(f"countersink ingest listens on {url_of(sock)} with {count} workers")
    finally:
        os.close(ours)
        os.close(theirs)


async def _keep(sock: socket.socket, parent: int, stop: Stop, drain_timeout: float) -> None:
    backoff = Backoff(first=0.1)
    while not stop.is_set():
        worker = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "countersink",
            "ingest",
            "--worker",
            str(sock.fileno()),
            str(parent),
            pass_fds=(sock.fileno(), parent),
            stdout=asyncio.subprocess.DEVNULL,
        )
        ended = asyncio.create_task(worker.wait())
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait((ended, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if stop.is_set():
            await _stop(worker, drain_timeout)
            return
        _log.error("a worker ended with %s and is started again", worker.returncode)
        await backoff.wait()


async def _stop(worker: asyncio.subprocess.Process, drain_timeout: float) -> None:
    with contextlib.suppress(ProcessLookupError):
        worker.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(drain_timeout + MARGIN):
            await worker.wait()
    except TimeoutError:
        _log.error("a worker did not drain within %g seconds and is killed", drain_timeout + MARGIN)
        worker.kill()
        await worker.wait()
