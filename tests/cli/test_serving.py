"""up, ingest and flusher: start-up lines, errors of one line, exit codes, drain."""

import asyncio
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from tests.processes.harness import processes


def failing(*arguments: str, cwd: Path, **environment: str) -> tuple[int, list[str]]:
    """Exit code and what was said."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("COUNTERSINK_")}
    clean["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), clean.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "countersink", *arguments],
        cwd=cwd,
        env=clean | environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return done.returncode, done.stderr.splitlines()


async def test_up_says_where_it_is_and_where_its_data_is(tmp_path: Path) -> None:
    async with processes(tmp_path) as started:
        up = await started.start("up", "--port", "0")
        assert f"countersink is up on {up.url}" in up.line
        assert str(tmp_path) in up.line


async def test_data_says_which_folder(tmp_path: Path) -> None:
    async with processes(tmp_path) as started:
        del started.environment["COUNTERSINK_BROKER"]
        up = await started.start("up", "--port", "0", "--data", str(tmp_path / "there"))
        async with aiohttp.ClientSession() as session, session.post(f"{up.url}/v1/counters/a") as response:
            assert response.status == 202
        assert (tmp_path / "there" / "countersink.db").is_file()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_and_exits_0(tmp_path: Path, number: int) -> None:
    """What was accepted a moment ago is applied, though its window was not due for long."""
    async with processes(tmp_path, COUNTERSINK_FLUSH_INTERVAL="60") as started:
        up = await started.start("up", "--port", "0")
        async with aiohttp.ClientSession() as session:
            for _ in range(10):
                async with session.post(f"{up.url}/v1/counters/a") as response:
                    assert response.status == 202
            async with session.post(f"{up.url}/v1/counters/a?ack=none") as response:
                assert response.status == 202
        assert await up.end(number) == 0
    database = sqlite3.connect(tmp_path / "countersink.db")
    assert database.execute("SELECT sum(count) FROM shards").fetchone() == (11,)
    database.close()


async def test_workers_drain_with_their_parent(tmp_path: Path) -> None:
    async with processes(tmp_path) as started:
        ingest = await started.start("ingest", "--port", "0", "--workers", "2")
        async with asyncio.timeout(10):
            while len(ingest.children()) < 2:
                await asyncio.sleep(0.01)
        assert await ingest.end(signal.SIGTERM) == 0


async def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    """Their port is free then: the next one can start on it."""
    async with processes(tmp_path) as started:
        ingest = await started.start("ingest", "--port", "0", "--workers", "2")
        await ingest.end(signal.SIGKILL)
        again = await started.start("ingest", "--port", str(ingest.port))
        assert again.port == ingest.port


def test_a_taken_port_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, said = failing("up", "--port", port, cwd=tmp_path)
    assert code == 1
    assert said == [f"countersink: port {port} of 127.0.0.1 is taken: choose another with --port"]


@pytest.mark.parametrize(
    ("variable", "value", "part"),
    [
        ("COUNTERSINK_LINGER_MS", "soon", "must be a whole number"),
        ("COUNTERSINK_CACHE_TTL", "nan", "must be from 0 to 60"),
        ("COUNTERSINK_SHARDS", "0", "must be from 1 to"),
        ("COUNTERSINK_BROKER", "postgres://x", "must be sqlite:///FILE"),
        ("COUNTERSINK_STORE", "sqlite://", "must be sqlite:///FILE"),
        ("COUNTERSINK_OVERLAY", "redis://x", "must be memory://"),
        ("COUNTERSINK_LINGER", "1", "is not a setting"),
    ],
)
def test_a_wrong_setting_stops_the_start_with_a_line_that_names_it(
    tmp_path: Path, variable: str, value: str, part: str
) -> None:
    code, (line,) = failing("up", "--port", "0", cwd=tmp_path, **{variable: value})
    assert code == 1
    assert variable in line
    assert part in line


def test_saying_twice_where_the_data_is_is_an_error(tmp_path: Path) -> None:
    code, (*_, line) = failing("up", "--data", "x", cwd=tmp_path, COUNTERSINK_BROKER="sqlite:///y.db")
    assert code == 2
    assert "say one of them" in line


@pytest.mark.parametrize("arguments", [(), ("fly",), ("up", "--port", "70000"), ("ingest", "--workers", "0")])
def test_wrong_usage_exits_2(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    code, said = failing(*arguments, cwd=tmp_path)
    assert code == 2
    assert said[0].startswith("usage: countersink")
