"""While some clients do their worst to a real process, the others are served, soon, and it does not grow."""

import asyncio
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.processes.attacks import AT_ONCE, ATTACKS, Victim, fill, memory, peak, post
from tests.processes.harness import processes

pytestmark = pytest.mark.check  # half a minute of attacks

MIB: Final = 1_048_576
MOST: Final = 4_000
CROWD: Final = 5_000
SOON: Final = 4.0
"""Seconds of the server's processor time within which the polite must be answered. Usual are 0.2."""
PER_CONNECTION: Final = 32
"""KiB."""
ALL_AT_ONCE: Final = 8.0
"""Seconds: the memory has its peak after four."""
ROOM: Final = 600_000
"""KiB that the process may grow by under all of them: dozens of the largest bodies, with what is made of them."""


@pytest.fixture(autouse=True)
def _many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < CROWD + 500:
        pytest.fail(f"this needs a limit of {CROWD + 500} open files, here it is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, CROWD + 500), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
async def victim(tmp_path: Path) -> AsyncIterator[Victim]:
    async with processes(tmp_path, COUNTERSINK_MAX_CONNECTIONS=str(MOST)) as started:
        victim = Victim(await started.start("up", "--port", "0"))
        await victim.polite()
        yield victim
        assert b'"value":%d,' % victim.accepted in await victim.total()


async def test_the_polite_are_served_under_each_attack(victim: Victim) -> None:
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


SETTINGS: Final = {
    "COUNTERSINK_MAX_PENDING_BYTES": 8 * MIB,
    "COUNTERSINK_MAX_BODY_BYTES": 2 * MIB,
    "COUNTERSINK_MAX_WINDOW_BYTES": 4 * MIB,
    "COUNTERSINK_MAX_WAITING": 50_000,
    "COUNTERSINK_MAX_CONNECTIONS": 3_500,
}
ALLOWED: Final = (
    (64 + 64 + 128) * MIB
    + 8 * SETTINGS["COUNTERSINK_MAX_PENDING_BYTES"]
    + 10 * SETTINGS["COUNTERSINK_MAX_BODY_BYTES"]
    + 8 * SETTINGS["COUNTERSINK_MAX_WINDOW_BYTES"]
    + 1_024 * SETTINGS["COUNTERSINK_MAX_WAITING"]
    + 96 * 1_024 * SETTINGS["COUNTERSINK_MAX_CONNECTIONS"]
)
"""The sum of the table in docs/hardening.md."""


async def test_all_of_it_at_once_takes_no_more_memory_than_the_settings_allow(tmp_path: Path) -> None:
    settings = {name: str(number) for name, number in SETTINGS.items()}
    async with processes(tmp_path, None, COUNTERSINK_FLUSH_INTERVAL="20", **settings) as started:
        victim = Victim(await started.start("up", "--port", "0"))
        victim.many = True
        await fill(victim)
        tasks = [asyncio.create_task(run(victim)) for count, run in AT_ONCE.values() for _ in range(count)]
        try:
            await asyncio.sleep(ALL_AT_ONCE)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        assert 1_024 * peak(victim.server) < ALLOWED


async def test_thousands_that_do_nothing_make_room(victim: Victim) -> None:
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
