"""--statsd: where lines come, who may send them, and which process reads them."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deploy.processes import free_port
from tests.cli.running import run
from tests.cli.services import total
from tests.cli.test_listening import EVERYWHERE
from tests.cli.test_serving import in_the_file
from tests.http.keys import keys_file
from tests.processes.harness import Processes, Running, processes
from tests.processes.test_senders import address_of


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Processes]:
    async with processes(tmp_path, tmp_path / "log") as it:
        yield it


def send(address: tuple[str, int], packet: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(packet, address)


async def until_total(running: Running, value: int, key: str = "") -> None:
    async with asyncio.timeout(60):
        while await total(running.url, key) != value:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("command", ["up", "ingest"])
async def test_lines_are_counted_also_those_that_came_just_before_the_end(
    started: Processes, tmp_path: Path, command: str
) -> None:
    running = await started.start(command, "--port", "0", "--statsd", "0")
    assert f"is up on {running.url}, StatsD on 127.0.0.1:" in running.line
    send(address_of(running), b"a:1|c\na:1|c|@0.5")
    await until_total(running, 3)
    send(address_of(running), b"a:4|c")
    assert await running.end(signal.SIGTERM) == 0
    await started.start("up", "--port", "0")
    async with asyncio.timeout(60):
        while in_the_file(tmp_path) != (7, 0):
            await asyncio.sleep(0.01)


async def test_the_first_worker_reads_them_and_the_kernel_keeps_some_until_it_is_back(started: Processes) -> None:
    running = await started.start("ingest", "--port", "0", "--workers", "2", "--statsd", "0", "--admin-port", "0")
    send(address_of(running), b"a:1|c")
    await until_total(running, 1)
    first, second = running.children()
    os.kill(second, signal.SIGKILL)
    send(address_of(running), b"a:2|c")
    await until_total(running, 3)
    os.kill(first, signal.SIGKILL)
    send(address_of(running), b"a:4|c")
    with socket.create_connection(address_of(running)) as sock:
        sock.sendall(b"a:8|c\n")
        await until_total(running, 15)
    assert await running.end(signal.SIGTERM) == 0


async def test_with_keys_lines_count_under_one_of_them(tmp_path: Path) -> None:
    file, keys = keys_file(tmp_path, all={}, lines={"scopes": ["write"]})
    settings = {"COUNTERSINK_KEYS_FILE": str(file), "COUNTERSINK_STATSD_KEY": keys["lines"]}
    async with processes(tmp_path / "data", tmp_path / "log", **settings) as started:
        up = await started.start("up", "--port", "0", "--statsd", "0", "--statsd-host", EVERYWHERE)
        _, port = address_of(up)
        send(("127.0.0.1", port), b"a:1|c")
        await until_total(up, 1, keys["all"])
    assert keys["lines"] not in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "have no credentials, and this service has keys: set COUNTERSINK_STATSD_KEY"),
        ({"COUNTERSINK_STATSD_KEY": "csk_x"}, "COUNTERSINK_STATSD_KEY: this key is not valid"),
    ],
)
@pytest.mark.parametrize("command", ["up", "ingest"])
def test_with_keys_a_good_one_is_needed(tmp_path: Path, command: str, settings: dict[str, str], says: str) -> None:
    file, _ = keys_file(tmp_path, all={})
    settings = {"COUNTERSINK_KEYS_FILE": str(file)} | settings
    assert says in run(command, "--port", "0", "--statsd", "0", cwd=tmp_path, **settings).refusal


def test_without_keys_nothing_comes_from_other_machines(tmp_path: Path) -> None:
    arguments = ("up", "--port", "0", "--statsd", "0", "--statsd-host", EVERYWHERE)
    said = run(*arguments, cwd=tmp_path).refusal
    assert f"--statsd-host {EVERYWHERE}: anyone who can connect could add to all counters" in said


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_a_port_that_is_taken_is_named(tmp_path: Path, kind: socket.SocketKind) -> None:
    port = free_port()
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.bind(("127.0.0.1", port))
        if kind == socket.SOCK_STREAM:
            sock.listen()
        said = run("up", "--port", "0", "--statsd", str(port), cwd=tmp_path).refusal
    assert f"port {port} of 127.0.0.1" in said
    assert "choose another with --statsd-port" in said
