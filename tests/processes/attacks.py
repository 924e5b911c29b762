"""Attacks on a real process, from clients on this machine, and whoever is polite to it meanwhile.

`python -m tests.processes.attacks [--tree DIR] [NAME…]` prints what each does to the code in a folder: docs/attacks.md.
"""

import argparse
import asyncio
import contextlib
import gzip
import itertools
import math
import os
import resource
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from random import randrange
from typing import Any, Final

from tests.processes.harness import Running, processes

POLITE: Final = 15
"""Requests of the polite client."""
BIG: Final = 8_000_000


def post(body: bytes = b"", headers: bytes = b"", target: bytes = b"/v1/counters/hostile") -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n%b\r\n%b" % (target, len(body), headers, body)


LARGE: Final = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"


def peak(server: Running) -> int:
    """KiB."""
    return _status(server, "VmHWM")


def memory(server: Running) -> int:
    """KiB."""
    return _status(server, "VmRSS")


def _status(server: Running, name: str) -> int:
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def processor(server: Running) -> float:
    """Seconds for which processors have worked for it."""
    words = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


class Victim:
    """A server, and whoever is polite to it."""

    def __init__(self, server: Running) -> None:
        self.server = server
        self.accepted = 0
        self.largest = 0
        self.many = False
        self.sent = 0
        """Bytes of the attackers."""

    async def open(self, host: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.server.port, local_addr=(host, 0))

    @contextlib.asynccontextmanager
    async def attacked(self, start: bytes) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """A connection of an attacker, which sends that first; with `many`, of one of many clients."""
        reader, writer = await self.open(f"127.0.{randrange(1, 20)}.1" if self.many else "127.0.0.1")
        try:
            writer.write(start)
            self.sent += len(start)
            yield reader, writer
        finally:
            writer.transport.abort()

    async def polite(self) -> float:
        """Several times; for how long the server worked at most until it answered. How long that took says nothing on a
        machine that has other work, too.
        """
        worked = []
        for _ in range(POLITE):
            before = processor(self.server)
            async with asyncio.timeout(60):
                await self.ask_politely()
            worked.append(processor(self.server) - before)
        return max(worked)

    async def ask_politely(self) -> float:
        """Seconds until the answer to a request on a connection of its own."""
        begun = time.perf_counter()
        reader, writer = await self.open("127.9.9.9")
        writer.write(post(target=b"/v1/counters/polite"))
        line = await reader.readline()
        seconds = time.perf_counter() - begun
        assert b" 202 " in line, line
        self.accepted += 1
        writer.close()
        self.largest = max(self.largest, memory(self.server))
        await asyncio.sleep(0.01)
        return seconds

    async def total(self) -> bytes:
        reader, writer = await self.open()
        writer.write(b"GET /v1/counters/polite?max_age=0 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        found = await reader.read()
        writer.close()
        return found


Attacker = Callable[[Victim], Coroutine[Any, Any, None]]


def _again(attack: Attacker) -> Attacker:
    """Again and again, as fast as it is answered or refused."""

    async def attacks(victim: Victim) -> None:
        while True:
            with contextlib.suppress(ConnectionError):
                await attack(victim)

    return attacks


def _reads(request: bytes) -> Attacker:
    """Reads the answers until the connection is closed."""

    @_again
    async def attack(victim: Victim) -> None:
        async with victim.attacked(request) as (reader, _):
            while await reader.read(65_536):
                pass

    return attack


def _holds(start: bytes, then: bytes = b"") -> Attacker:
    """Reads nothing, and keeps the connection open. `then` is sent every tenth of a second."""

    @_again
    async def attack(victim: Victim) -> None:
        async with victim.attacked(start) as (_, writer):
            while not writer.transport.is_closing():
                writer.write(then)
                await asyncio.sleep(0.1)

    return attack


def _hangs_up(request: bytes) -> Attacker:
    """Waits for nothing."""

    @_again
    async def attack(victim: Victim) -> None:
        async with victim.attacked(request):
            await asyncio.sleep(0.1)

    return attack


CLOSE: Final = b"Connection: close\r\n"
MANY: Final = b"/v1/increments"
DEEP: Final = b"[%b1]" % (b'{"a":{"a":{"a":{"a":1}}}},' * (BIG // 26))
BOMB: Final = gzip.compress(b" " * 100_000_000)
GZIP: Final = b"Content-Encoding: gzip\r\n"
BAD: Final = gzip.compress(b"[%b1]" % (b"1," * 90_000))
WAITING: Final = b"/v1/counters/hostile?wait=applied&timeout=60"
ATTACKS: Final[dict[str, tuple[int, Attacker]]] = {
    "pipelines": (4, _holds(LARGE.replace(b"openapi.json", b"version") * 2_000)),
    "pipelined increments": (4, _holds(post() * 3_000)),
    "answers that nobody reads": (20, _holds(LARGE * 500)),
    "lists of what is wrong that nobody reads": (20, _holds(post(BAD, GZIP, MANY) * 50)),
    "heads that drip": (300, _holds(post()[:-2] + b"X: ", b" ")),
    "bodies that drip": (300, _holds(post(b" " * 999)[:-900], b" ")),
    "bombs": (4, _reads(post(BOMB, GZIP + CLOSE))),
    "packed batches": (4, _reads(post(BOMB, GZIP + CLOSE, MANY))),
    "deep batches": (4, _reads(post(DEEP, CLOSE, MANY))),
    "deep bodies": (4, _reads(post(b"[" * (BIG // 10), CLOSE))),
    "escapes": (4, _reads(post(b'{"id": [%b""]}' % (b'"\\u0061",' * (BIG // 90)), CLOSE))),
    "long numbers": (4, _reads(post(b'{"a\\\\": 1%b}' % (b"9" * (BIG // 10)), CLOSE))),
    "spaces in headers": (8, _reads(post(headers=b"X:" + b" " * 3_900 + b"\x7f\r\n" + CLOSE))),
    "resets": (20, _hangs_up(post()[:40])),
    "waits that hang up": (200, _hangs_up(post(target=WAITING))),
}


def head(size: int, rest: bytes) -> bytes:
    lines = (b"X: " + b"y" * 995 + b"\r\n") * (size // 1_000)
    return post(target=WAITING)[:-2] + lines + rest


def names(number: int) -> bytes:
    return b'{"counters":{%b}}' % b",".join([b'"%020d%d":1' % (number, each) for each in range(5_000)])


_numbers: Final = itertools.count()


async def _new_names(victim: Victim) -> bytes:
    """The answer to a batch of names that are all new."""
    async with victim.attacked(post(names(next(_numbers)), CLOSE, MANY)) as (reader, _):
        return await reader.read()


async def fill(victim: Victim) -> None:
    """Let as much be pending as may be. With one batch after the other, the flusher could keep up."""
    while not any(
        b"COUNTERSINK_MAX_PENDING_BYTES" in answer
        for answer in await asyncio.gather(*[_new_names(victim) for _ in range(100)])
    ):
        pass


@_again
async def _flood(victim: Victim) -> None:
    await _new_names(victim)


@_again
async def _says_who(victim: Victim) -> None:
    """With headers that are long, and different each time."""
    said = b"".join([b"X-Forwarded-For: %b\r\n" % (b"%d," % next(_numbers) * 500) for _ in range(8)])
    async with victim.attacked(post(headers=said + CLOSE)) as (reader, _):
        await reader.read()


AT_ONCE: Final = ATTACKS | {
    "names that are all new": (2, _flood),
    "headers that say who it is": (4, _says_who),
    "half heads": (800, _holds(head(30_000, b""))),
    "whole heads": (800, _holds(head(30_000, b"\r\n"))),
    "longer heads": (800, _holds(head(120_000, b"\r\n"))),
    "much behind a request": (800, _holds(head(0, b"\r\n") + post() * 2_000)),
}
CROWDS: Final = {
    "waits": (4_000, post(target=WAITING)),
    "idle connections": (11_000, b""),
    "half heads of 60 bytes": (9_000, post()[:-2]),
    "half bodies": (9_000, post(b" " * 999)[:-900]),
    "pipelines of increments": (200, post() * 3_000),
}
"""So many connections, each of which sends that and nothing more."""
SECONDS: Final = 6.0
"""For each attack of the command."""


async def measured(name: str, tree: Path) -> str:
    """A row of the table."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as crowd:
        async with processes(Path(folder)) as started:
            within = ("env", "-C", str(tree), f"PYTHONPATH={tree}")
            victim = Victim(await started.start("up", "--port", "0", within=within))
            await victim.polite()
            before, waited = memory(victim.server), list[float]()
            tasks: list[asyncio.Task[None]] = []
            if name in CROWDS:
                count, start = CROWDS[name]
                for _ in range(count):
                    _join(crowd, victim, start)
            else:
                count, attack = AT_ONCE[name]
                tasks += [asyncio.create_task(attack(victim)) for _ in range(count)]
            until = time.monotonic() + SECONDS
            try:
                while time.monotonic() < until:
                    try:
                        async with asyncio.timeout(60):
                            waited.append(await victim.ask_politely())
                    except (AssertionError, OSError, TimeoutError):
                        waited.append(math.inf)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            grown = (peak(victim.server) - before) / 1_024
    median, longest = 1_000 * statistics.median(waited), 1_000 * max(waited)
    sent = f"{victim.sent / 1e6:,.1f} MB"
    return f"| {name} | {count:,} | {sent} | {grown:,.0f} MiB | {median:,.0f} | {longest:,.0f} |"


def _join(crowd: contextlib.ExitStack, victim: Victim, start: bytes) -> None:
    sock = crowd.enter_context(socket.create_connection(("127.0.0.1", victim.server.port)))
    sock.setblocking(False)
    with contextlib.suppress(ConnectionError):
        victim.sent += sock.send(start)


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.processes.attacks", allow_abbrev=False)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--tree", type=Path, default=Path.cwd(), help="the code that is attacked")
    options = parser.parse_args(words)
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    _say("| attack | clients | sent | memory grew by | polite, median ms | polite, longest ms |")
    _say("|---|---|---|---|---|---|")
    for name in options.names or [*AT_ONCE, *CROWDS]:
        _say(asyncio.run(measured(name, options.tree)))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
