"""Where processes listen: who can connect without keys, Unix sockets, a port for administrators, and StatsD lines."""

import asyncio
import contextlib
import os
import re
import signal
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from deploy.processes import free_port
from tests.cli.running import apart, in_the_file, run, total
from tests.http.keys import keys_file
from tests.processes.harness import Processes, Running, processes
from tests.processes.test_senders import address_of

EVERYWHERE = "0.0.0.0"


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Processes]:
    async with processes(tmp_path / "data", tmp_path / "log") as it:
        yield it


@pytest.mark.parametrize(
    "arguments",
    [
        ("up", "--port", "0", "--host", EVERYWHERE),
        ("up", "--port", "0", "--host", ""),
        ("up", "--port", "0", "--host", "::"),
        ("ingest", "--port", "0", "--host", EVERYWHERE, "--workers", "2"),
        ("up", "--port", "0", "--admin-port", "0", "--admin-host", EVERYWHERE),
        ("flusher", "--port", "0", "--host", EVERYWHERE),
        ("flusher", "--admin-port", "0", "--admin-host", EVERYWHERE),
    ],
    ids=" ".join,
)
def test_without_keys_nothing_listens_to_other_machines(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    line = run(*arguments, cwd=tmp_path).refusal
    assert "host " in line
    assert "no keys: set COUNTERSINK_KEYS_FILE, use 127.0.0.1, or accept that with --insecure" in line
    assert not (tmp_path / ".countersink").exists()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.2", "::ffff:127.0.0.1"])
async def test_other_names_of_this_machine_need_no_keys(started: Processes, host: str) -> None:
    up = await started.start("up", "--port", "0", "--host", host)
    assert "127.0.0." in up.line


async def status(session: aiohttp.ClientSession, url: str, host: str) -> int:
    async with session.get(url, headers={"Host": host}) as response:
        return response.status


async def test_without_keys_host_is_checked_wherever_a_process_listens(tmp_path: Path) -> None:
    """A site that points its own name to this machine gets nothing, over no listener, from no process."""
    path, unix = "/v1/counters/a", "http://localhost"
    async with processes(tmp_path / "data", None, COUNTERSINK_HOSTS="counts.example") as started:
        addresses = ("--host", EVERYWHERE, "--admin-host", EVERYWHERE, "--insecure")
        up = await started.start("up", "--port", "0", "--admin-port", "0", *addresses)
        flusher = await started.start("flusher", "--port", "0", "--host", EVERYWHERE, "--insecure")
        await started.start("ingest", "--host", f"unix:{tmp_path / 's'}")
        urls = [url.replace(EVERYWHERE, "127.0.0.1") for url in re.findall(r"http://[0-9.:]+", up.line + flusher.line)]
        assert len(urls) == 3
        targets = [*(f"{url}{path}" for url in urls[:2]), f"{urls[2]}/metrics"]
        async with aiohttp.ClientSession() as tcp, at(tmp_path / "s") as other:
            for session, url in (*((tcp, url) for url in targets), (other, f"{unix}{path}")):
                hosts = ("localhost", "counts.example:80", "10.1.2.3:8080", "evil.example", "localhost.evil.example")
                assert [await status(session, url, host) for host in hosts] == [200, 200, 200, 403, 403], url


async def test_insecure_says_so_at_the_start(started: Processes, tmp_path: Path) -> None:
    up = await started.start("up", "--port", "0", "--host", EVERYWHERE, "--insecure")
    assert up.line.startswith(f"countersink is up on http://{EVERYWHERE}:")
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert f"--insecure: anyone who can connect to http://{EVERYWHERE}:" in line


def at(path: Path) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path)))


def kind_and_mode(path: Path) -> tuple[bool, int]:
    """Whether it is a socket, and its mode."""
    mode = path.lstat().st_mode
    return stat.S_ISSOCK(mode), stat.S_IMODE(mode)


@pytest.mark.parametrize("command", [("up",), ("ingest",), ("ingest", "--workers", "2")], ids=" ".join)
async def test_a_unix_socket_counts_and_is_removed_at_the_end(
    started: Processes, tmp_path: Path, command: tuple[str, ...]
) -> None:
    path = tmp_path / "s"
    running = await started.start(*command, "--host", f"unix:{path}")
    assert f"is up on unix:{path}" in running.line
    assert kind_and_mode(path) == (True, 0o660)
    async with at(path) as session:
        for number in range(30):
            body = (b"{}", chunked())[number % 2]
            async with session.post("http://localhost/v1/counters/a", data=body) as response:
                assert response.status == 202
        async with session.get("http://localhost/v1/counters/a?max_age=0") as response:
            assert (await response.json())["value"] == 30
    assert await running.end(signal.SIGTERM) == 0
    assert not path.exists()


async def chunked() -> AsyncIterator[bytes]:
    yield b"{}"


async def test_the_socket_of_a_process_that_was_killed_is_replaced(started: Processes, tmp_path: Path) -> None:
    path = tmp_path / "s"
    first = await started.start("up", "--host", f"unix:{path}")
    await first.end(signal.SIGKILL)
    assert path.exists()
    await started.start("up", "--host", f"unix:{path}")
    async with at(path) as session, session.get("http://localhost/healthz") as response:
        assert response.status == 200


async def test_the_socket_of_another_process_is_left_alone(started: Processes, tmp_path: Path) -> None:
    path = tmp_path / "s"
    await started.start("up", "--host", f"unix:{path}")
    done = await asyncio.to_thread(run, "up", "--host", f"unix:{path}", cwd=tmp_path)
    assert done.lines == [f"countersink: another process listens on unix:{path}: stop it, or choose another path"]
    async with at(path) as session, session.get("http://localhost/healthz") as response:
        assert response.status == 200


async def test_a_socket_that_another_process_made_meanwhile_is_not_removed(started: Processes, tmp_path: Path) -> None:
    path = tmp_path / "s"
    first = await started.start("up", "--host", f"unix:{path}")
    path.unlink()
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as other:
        other.bind(str(path))
        assert await first.end(signal.SIGTERM) == 0
        assert path.exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [("there", "is not a socket"), ("no/folder", "no does not exist: make it first"), ("x" * 200, "too long")],
)
def test_a_path_that_can_not_be_listened_on_is_one_line(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "there").write_text("mine")
    assert said in run("up", "--host", f"unix:{tmp_path / name}", cwd=tmp_path).refusal
    assert (tmp_path / "there").read_text() == "mine"


ADMIN = [
    ("PUT", "/v1/counters/a"), ("DELETE", "/v1/counters/a"), ("POST", "/v1/counters/a/reset"),
    ("PUT", "/v1/counters/a/shards"), ("POST", "/v1/jobs"), ("GET", "/v1/jobs/j"), ("DELETE", "/v1/jobs/j"),
    ("GET", "/v1/jobs/j/export"), ("GET", "/metrics"), ("HEAD", "/metrics"),
]  # fmt: skip
PUBLIC = [
    ("POST", "/v1/counters/a"), ("POST", "/v1/increments"), ("GET", "/v1/counters/a"), ("GET", "/v1/counters"),
    ("GET", "/v1/receipts/r"), ("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/version"), ("GET", "/openapi.json"),
]  # fmt: skip


async def asked(session: aiohttp.ClientSession, base: str, method: str, path: str) -> tuple[int, bytes]:
    async with session.request(method, base + path) as response:
        return response.status, await response.read()


def nowhere(status: int, body: bytes) -> bool:
    return status == 404 and (not body or b"there is no such path" in body)


@pytest.mark.parametrize("command", [("up",), ("ingest", "--workers", "2")], ids=" ".join)
async def test_a_port_for_administrators_takes_their_requests_from_the_other(
    started: Processes, tmp_path: Path, command: tuple[str, ...]
) -> None:
    admin = f"http://127.0.0.1:{free_port()}"
    running = await started.start(*command, "--port", "0", "--admin-port", admin.rpartition(":")[2])
    assert f"is up on {running.url}, admin on {admin}" in running.line
    async with apart() as session:
        for method, path in ADMIN:
            status, body = await asked(session, running.url, method, path)
            assert nowhere(status, body), (method, path)
            assert method == "HEAD" or b"is on the admin port of the service (--admin-port)" in body
            assert not nowhere(*await asked(session, admin, method, path)), (method, path)
        for method, path in PUBLIC:
            for base in (running.url, admin):
                assert not nowhere(*await asked(session, base, method, path)), (base, method, path)
        async with session.put(f"{admin}/v1/counters/b", json={"value": 7}) as response:
            assert response.status == 200
        async with session.get(f"{running.url}/v1/counters/b?max_age=0") as response:
            assert (await response.json())["value"] == 7
    assert await running.end(signal.SIGTERM) == 0
    assert in_the_file(tmp_path / "data")[0] >= 7


async def test_administrators_may_have_a_unix_socket(started: Processes, tmp_path: Path) -> None:
    path = tmp_path / "admin"
    running = await started.start("up", "--port", "0", "--admin-host", f"unix:{path}")
    async with at(path) as session:
        assert (await asked(session, "http://localhost", "GET", "/metrics"))[0] == 200
    assert await running.end(signal.SIGTERM) == 0
    assert not path.exists()


async def test_a_flusher_shows_its_metrics_to_administrators_alone(started: Processes) -> None:
    admin = f"http://127.0.0.1:{free_port()}"
    flusher = await started.start("flusher", "--port", "0", "--admin-port", admin.rpartition(":")[2])
    assert f"with its metrics on {admin}/metrics" in flusher.line
    alone = await started.start("flusher", "--admin-port", "0")
    async with aiohttp.ClientSession() as session:
        assert (await asked(session, admin, "GET", "/metrics"))[0] == 200
        assert (await asked(session, alone.url, "GET", "/metrics"))[0] == 200
        assert (await asked(session, alone.url, "GET", "/healthz"))[0] == 200


def send(address: tuple[str, int], packet: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(packet, address)


async def until_total(running: Running, value: int, key: str = "") -> None:
    async with asyncio.timeout(60):
        while await total(running.url, key) != value:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("command", ["up", "ingest"])
async def test_lines_of_statsd_are_counted_also_those_that_came_just_before_the_end(
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
        while in_the_file(tmp_path / "data") != (7, 0):
            await asyncio.sleep(0.01)


async def test_the_first_worker_reads_lines_and_the_kernel_keeps_some_until_it_is_back(started: Processes) -> None:
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
def test_with_keys_statsd_needs_a_good_one(tmp_path: Path, command: str, settings: dict[str, str], says: str) -> None:
    file, _ = keys_file(tmp_path, all={})
    settings = {"COUNTERSINK_KEYS_FILE": str(file)} | settings
    assert says in run(command, "--port", "0", "--statsd", "0", cwd=tmp_path, **settings).refusal


def test_without_keys_no_lines_come_from_other_machines(tmp_path: Path) -> None:
    arguments = ("up", "--port", "0", "--statsd", "0", "--statsd-host", EVERYWHERE)
    said = run(*arguments, cwd=tmp_path).refusal
    assert f"--statsd-host {EVERYWHERE}: anyone who can connect could add to all counters" in said


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_a_port_of_statsd_that_is_taken_is_named(tmp_path: Path, kind: socket.SocketKind) -> None:
    port = free_port()
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.bind(("127.0.0.1", port))
        if kind == socket.SOCK_STREAM:
            sock.listen()
        said = run("up", "--port", "0", "--statsd", str(port), cwd=tmp_path).refusal
    assert f"port {port} of 127.0.0.1" in said
    assert said.endswith("choose another with --statsd")
