"""The least that a service in Python does which loses nothing: an ASGI application, on Granian or on uvicorn, that
writes a line for each POST into a file, and answers after a sync that it shares with all who wait. It adds nothing up,
and knows no counters and no ids.
"""

import asyncio
import contextlib
import importlib.util
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench import load
from bench.emulators import MissingError
from bench.peers.peer import Counting, Peer, listens, started
from bench.servers import Server
from bench.shapes import Shape, counter_path
from deploy.processes import free_port

LINES: Final = "COUNTERSINK_BENCH_LINES"
"""The variable that says where the file is."""
LINE: Final = b"1\n"
_ANSWER: Final = (
    {"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"0")]},
    {"type": "http.response.body", "body": b""},
)


class Application:
    """Several requests share a sync, as increments that arrive together do in Countersink."""

    def __init__(self) -> None:
        self._file = -1
        self._waiting: list[asyncio.Future[None]] = []
        self._syncing: asyncio.Task[None] | None = None

    async def __call__(
        self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        if scope["type"] != "http":
            return
        while (await receive()).get("more_body"):
            pass
        safe = asyncio.get_running_loop().create_future()
        self._waiting.append(safe)
        if self._syncing is None:
            self._syncing = asyncio.create_task(self._sync())
        await safe
        for part in _ANSWER:
            await send(part)

    async def _sync(self) -> None:
        if self._file < 0:
            self._file = os.open(os.environ[LINES], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            await asyncio.to_thread(self._write, LINE * len(waiting))
            for one in waiting:
                if not one.done():  # its client has gone
                    one.set_result(None)
        self._syncing = None

    def _write(self, lines: bytes) -> None:
        os.write(self._file, lines)
        os.fdatasync(self._file)


application = Application()


@contextlib.contextmanager
def _running(folder: Path, server: str, options: tuple[str, ...]) -> Iterator[Counting]:
    if importlib.util.find_spec(server) is None:
        raise MissingError(f"{server} is not installed")
    port, lines = free_port(), folder / "lines"
    lines.touch()
    where = ("bench.peers.asgi:application", "--host", "127.0.0.1", "--port", str(port))
    command = (sys.executable, "-m", server, *options, *where)
    with started(command, folder / "log", partial(listens, port), more={LINES: str(lines)}) as process:
        running = Server(process, f"http://127.0.0.1:{port}")
        yield Counting(
            lambda seconds, connections: load.run(running, Shape(counter_path()), seconds, connections),
            lambda: lines.stat().st_size // len(LINE),
        )


PEERS: Final = tuple(
    Peer(
        name,
        f"{name.capitalize()}, a handler that only writes a line to a file",
        "all, if the power fails; it adds nothing up",
        partial(_running, server=name, options=options),
    )
    for name, options in (
        ("granian", ("--interface", "asgi", "--workers", "1", "--loop", "uvloop", "--log-level", "critical")),
        ("uvicorn", ("--loop", "uvloop", "--http", "httptools", "--log-level", "critical", "--no-access-log")),
    )
)
