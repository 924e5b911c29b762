"""While some clients do their worst to a real process, the others are served, soon, and it does not grow."""

import asyncio
import contextlib
import gzip
import resource
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.processes.harness import Running, processes

MOST: Final = 4_000
CROWD: Final = 5_000
SOON: Final = 4.0
"""Seconds within which the polite must be answered. Usual are 0.2, but the machine of the tests has other work, too."""
POLITE: Final = 15
PER_CONNECTION: Final = 32
"""KiB."""
ROOM: Final = 600_000
"""KiB that the process may grow by under all of them: dozens of the largest bodies, with what is made of them."""


def post(body: bytes = b"", headers: bytes = b"", target: bytes = b"/v1/counters/hostile") -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n%b\r\n%b" % (target, len(body), headers, body)


LARGE: Final = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
BIG: Final = 8_000_000


@pytest.fixture(autouse=True)
def _many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < CROWD + 500:
        pytest.fail(f"this needs a limit of {CROWD + 500} open files, here it is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, CROWD + 500), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def memory(server: Running) -> int:
    """KiB."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


class _Victim:
    """A server, and whoever is polite to it."""

    def __init__(self, server: Running) -> None:
        self.server = server
        self.accepted = 0
        self.largest = 0

    async def open(self, limit: int = 65_536) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.server.port, limit=limit)

    async def polite(self) -> float:
        """Each time on a connection of its own; the longest time that an answer took, with the way there."""
        longest = 0.0
        for _ in range(POLITE):
            begun = time.perf_counter()
            reader, writer = await self.open()
            writer.write(post(target=b"/v1/counters/polite"))
            head = await reader.readline()
            longest = max(longest, time.perf_counter() - begun)
            assert b" 202 " in head, head
            self.accepted += 1
            writer.close()
            self.largest = max(self.largest, memory(self.server))
            await asyncio.sleep(0.01)
        return longest

    async def total(self) -> bytes:
        reader, writer = await self.open()
        writer.write(b"GET /v1/counters/polite?max_age=0 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        found = await reader.read()
        writer.close()
        return found


@pytest.fixture
async def victim(tmp_path: Path) -> AsyncIterator[_Victim]:
    async with processes(tmp_path, COUNTERSINK_MAX_CONNECTIONS=str(MOST)) as started:
        victim = _Victim(await started.start("up", "--port", "0"))
        await victim.polite()
        yield victim
        assert b'"value":%d,' % victim.accepted in await victim.total()


async def _repeat(victim: _Victim, request: bytes, *, read: bool = True) -> None:
    """Again and again, as fast as it is answered or refused."""
    while True:
        with contextlib.suppress(ConnectionError):
            reader, writer = await victim.open()
            try:
                writer.write(request)
                while await reader.read(65_536) if read else await asyncio.sleep(30, True):
                    pass
            finally:
                writer.transport.abort()


async def _drip(victim: _Victim, start: bytes) -> None:
    while True:
        with contextlib.suppress(ConnectionError):
            _, writer = await victim.open()
            try:
                writer.write(start)
                while not writer.transport.is_closing():
                    writer.write(b" ")
                    await asyncio.sleep(0.1)
            finally:
                writer.transport.abort()


CLOSE: Final = b"Connection: close\r\n"
MANY: Final = b"/v1/increments"
DEEP: Final = b"[%b1]" % (b'{"a":{"a":{"a":{"a":1}}}},' * (BIG // 26))
BOMB: Final = gzip.compress(b" " * 100_000_000)
ATTACKS: Final[dict[str, tuple[int, Callable[[_Victim], Coroutine[Any, Any, None]]]]] = {
    "pipelines": (4, lambda victim: _repeat(victim, LARGE.replace(b"openapi.json", b"version") * 2_000, read=False)),
    "pipelined increments": (4, lambda victim: _repeat(victim, post() * 3_000, read=False)),
    "answers that nobody reads": (20, lambda victim: _repeat(victim, LARGE * 500, read=False)),
    "heads that drip": (300, lambda victim: _drip(victim, post()[:-2] + b"X: ")),
    "bodies that drip": (300, lambda victim: _drip(victim, post(b" " * 999)[:-900])),
    "bombs": (4, lambda victim: _repeat(victim, post(BOMB, b"Content-Encoding: gzip\r\n" + CLOSE))),
    "packed batches": (4, lambda victim: _repeat(victim, post(BOMB, b"Content-Encoding: gzip\r\n" + CLOSE, MANY))),
    "deep batches": (4, lambda victim: _repeat(victim, post(DEEP, CLOSE, MANY))),
    "deep bodies": (4, lambda victim: _repeat(victim, post(b"[" * (BIG // 10), CLOSE))),
    "escapes": (4, lambda victim: _repeat(victim, post(b'{"id": [%b""]}' % (b'"\\u0061",' * (BIG // 90)), CLOSE))),
    "long numbers": (4, lambda victim: _repeat(victim, post(b'{"a\\\\": 1%b}' % (b"9" * (BIG // 10)), CLOSE))),
    "resets": (20, lambda victim: _repeat(victim, post()[:40], read=False)),
}


async def test_the_polite_are_served_under_each_attack(victim: _Victim) -> None:
    before = memory(victim.server)
    found: dict[str, float] = {}
    for attack, (count, attacker) in ATTACKS.items():
        tasks = [asyncio.create_task(attacker(victim)) for _ in range(count)]
        try:
            await asyncio.sleep(0.3)
            found[attack] = await victim.polite()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    said = [f"{attack}: {seconds:.2f} s" for attack, seconds in found.items()]
    assert max(found.values()) < SOON, "\n".join(said)
    assert victim.largest - before < ROOM, f"{victim.largest - before} KiB"


async def test_thousands_that_do_nothing_make_room(victim: _Victim) -> None:
    before = memory(victim.server)
    starts = (b"", b"POST", post()[:-2] + b"X: " + b"y" * 2_000)
    socks: list[socket.socket] = []
    try:
        for number in range(CROWD):
            socks.append(socket.create_connection(("127.0.0.1", victim.server.port)))
            socks[-1].send(starts[number % 3])
            if number % 100 == 0:
                await asyncio.sleep(0)
        longest = await victim.polite()
        victim.largest = max(victim.largest, memory(victim.server))
        assert longest < SOON
        assert victim.largest - before < MOST * PER_CONNECTION
        assert sum(map(_is_closed, socks)) >= CROWD - MOST
    finally:
        for sock in socks:
            sock.close()


def _is_closed(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
