"""up and the others that go on: what they say at their start, how they drain, and how workers are kept."""

import asyncio
import os
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

import aiohttp
import pytest

from countersink import __version__
from countersink_server.serve import workers
from deploy.processes import free_port
from shared.model.errors import CountersinkError
from shared.runtime import instruments
from shared.runtime.retry import Stop
from tests.cli.running import COUNTERSINK, count, environment, in_the_file, total
from tests.http.keys import keys_file
from tests.processes.harness import Processes, Running, processes


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Processes]:
    """Nothing is flushed before the drain."""
    async with processes(tmp_path, COUNTERSINK_FLUSH_INTERVAL="60") as it:
        yield it


async def test_up_says_where_it_is_and_where_its_data_is(started: Processes, tmp_path: Path) -> None:
    up = await started.start("up", "--port", "0")
    assert (
        up.line == f"countersink is up on {up.url}, its data in {tmp_path / 'countersink.db'} (version {__version__})\n"
    )
    async with aiohttp.ClientSession() as session, session.get(f"{up.url}/healthz") as response:
        assert response.status == 200


async def test_up_flushes_at_once_what_a_request_waits_for(started: Processes) -> None:
    """All others wait for the interval."""
    up = await started.start("up", "--port", "0", COUNTERSINK_FLUSH_INTERVAL="60")
    async with aiohttp.ClientSession() as session:
        for value in range(1, 4):
            async with asyncio.timeout(60), session.post(f"{up.url}/v1/counters/a?wait=applied") as response:
                assert (response.status, (await response.json())["value"]) == (200, value)
        async with session.post(f"{up.url}/v1/counters/a?wait=applied&timeout=0") as response:
            assert response.status == 202


@pytest.mark.parametrize("name", ["there", "a b?c#d%20", "ü/..."])
async def test_data_says_which_folder_whatever_its_name(started: Processes, tmp_path: Path, name: str) -> None:
    del started.environment["COUNTERSINK_BROKER"]
    up = await started.start("up", "--port", "0", "--data", str(tmp_path / name))
    assert f"its data in {tmp_path / name / 'countersink.db'}" in up.line
    assert (tmp_path / name / "countersink.db").is_file()


async def test_ipv6_has_brackets_in_its_url(started: Processes) -> None:
    up = await started.start("up", "--port", "0", "--host", "::1")
    url = up.line.split()[4].rstrip(",")
    assert url.startswith("http://[::1]:")
    async with aiohttp.ClientSession() as session, session.get(f"{url}/healthz") as response:
        assert response.status == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_and_exits_0(started: Processes, tmp_path: Path, number: int) -> None:
    """What was accepted a moment ago is applied, though its window was not due for long."""
    up = await started.start("up", "--port", "0")
    await count(up.url, 10)
    await count(up.url, query="?ack=none")
    assert await up.end(number) == 0
    assert in_the_file(tmp_path) == (11, 0)


async def test_the_end_of_its_terminal_drains_a_service(tmp_path: Path) -> None:
    script = f"""
import signal, sys
from countersink_server.__main__ import main

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored
sys.argv = ["countersink", "up", "--port", "0", "--data", {str(tmp_path)!r}]
main()
"""
    up = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    assert up.stdout is not None
    await count((await up.stdout.readline()).decode().split()[4].rstrip(","), 10)
    up.send_signal(signal.SIGHUP)
    assert await up.wait() == 0
    assert in_the_file(tmp_path) == (10, 0)


@pytest.mark.parametrize(
    ("command", "module", "number"),
    [
        ("up", "countersink_server.cli.serve", signal.SIGTERM),
        ("up", "countersink_server.serve.run", signal.SIGINT),
        ("ingest", "countersink_server.cli.serve", signal.SIGINT),
        ("ingest", "countersink_server.serve.run", signal.SIGTERM),
        ("flusher", "countersink_server.cli.serve", signal.SIGTERM),
        ("flusher", "countersink_server.serve.run", signal.SIGINT),
    ],
)
def test_a_signal_exits_0_while_a_command_imports_what_it_needs(
    tmp_path: Path, command: str, module: str, number: int
) -> None:
    """It takes a second on a busy machine."""
    script = f"""
import os, sys
from countersink_server.__main__ import main

class Told:
    def find_spec(self, name, *_):
        if name == "{module}":
            os.kill(os.getpid(), {int(number)})

sys.meta_path.insert(0, Told())
sys.argv = ["countersink", "{command}", "--port", "0"]
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment(COUNTERSINK_BROKER=f"sqlite:///{tmp_path}/countersink.db"),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


async def test_what_is_accepted_while_it_drains_is_applied(started: Processes, tmp_path: Path) -> None:
    """Clients that go on until they are refused: each 202 is in the file, and applied."""
    up = await started.start("up", "--port", "0")
    accepted = sent = 0

    async def client(session: aiohttp.ClientSession) -> None:
        nonlocal accepted, sent
        while True:
            sent += 1
            try:
                async with session.post(f"{up.url}/v1/counters/a") as response:
                    accepted += response.status == 202
            except (aiohttp.ClientError, ConnectionError):
                return

    async with aiohttp.ClientSession() as session, asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        clients = [tasks.create_task(client(session)) for _ in range(20)]
        while accepted < 1_000:
            await asyncio.sleep(0.01)
        assert await up.end(signal.SIGTERM) == 0
    assert all(task.done() for task in clients)
    total, waiting = in_the_file(tmp_path)
    assert accepted <= total <= sent
    assert waiting == 0


async def test_an_ingest_and_a_flusher_say_where_their_data_is(started: Processes, tmp_path: Path) -> None:
    ingest = await started.start("ingest", "--port", "0")
    flusher = await started.start("flusher")
    place = tmp_path / "countersink.db"
    assert ingest.line == f"countersink ingest is up on {ingest.url}, its data in {place} (version {__version__})\n"
    assert flusher.line == f"countersink flusher is up, its data in {place} (version {__version__})\n"
    assert await ingest.end(signal.SIGTERM) == 0
    assert await flusher.end(signal.SIGINT) == 0


async def test_a_flusher_shows_its_metrics_and_applies_what_it_has_pulled_before_it_ends(
    started: Processes, tmp_path: Path
) -> None:
    ingest = await started.start("ingest", "--port", "0")
    flusher = await started.start("flusher", "--port", "0")
    await count(ingest.url)
    async with aiohttp.ClientSession() as session:
        lines: list[str] = []
        async with asyncio.timeout(60):
            while "countersink_pulled_messages_total 1.0" not in lines:
                async with session.get(f"{flusher.url}/metrics") as response:
                    lines = (await response.text()).splitlines()
        for method, path, status in (("GET", "/healthz", 200), ("GET", "/", 404), ("POST", "/metrics", 405)):
            async with session.request(method, flusher.url + path) as response:
                assert response.status == status
    assert in_the_file(tmp_path) == (0, 1)
    assert await ingest.end(signal.SIGTERM) == 0
    assert await flusher.end(signal.SIGINT) == 0
    assert in_the_file(tmp_path) == (1, 0)


async def test_the_metrics_of_a_flusher_need_a_key_too(started: Processes, tmp_path: Path) -> None:
    _, keys = keys_file(tmp_path, prometheus={"scopes": ["read"]}, site={"scopes": ["write"]})
    flusher = await started.start("flusher", "--port", "0", COUNTERSINK_KEYS_FILE=str(tmp_path / "keys.json"))
    async with aiohttp.ClientSession() as session:
        for key, path, status in (
            ("", "/metrics", 401),
            (keys["site"], "/metrics", 403),
            (keys["prometheus"], "/metrics", 200),
            ("", "/healthz", 200),
        ):
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            async with session.get(flusher.url + path, headers=headers) as response:
                assert response.status == status


async def test_the_metrics_of_a_flusher_are_not_for_web_pages(started: Processes) -> None:
    flusher = await started.start("flusher", "--port", "0")
    async with aiohttp.ClientSession() as session:
        for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
            async with session.get(f"{flusher.url}/metrics", headers=headers) as response:
                assert response.status == 403


@asynccontextmanager
async def ending_well(folder: Path, *command: str, stdout: int | None = None) -> AsyncIterator[None]:
    """A process that is told to end, and ends without a word on standard error."""
    settings = {"COUNTERSINK_BROKER": f"sqlite:///{folder}/countersink.db", "COUNTERSINK_FLUSH_INTERVAL": "60"}
    process = await asyncio.create_subprocess_exec(
        *command, *COUNTERSINK, "up", "--port", "0", env=environment(**settings), stdout=stdout, stderr=PIPE
    )
    try:
        yield
        process.terminate()
        _, said = await asyncio.wait_for(process.communicate(), 60)
    finally:
        if process.returncode is None:
            process.kill()
    assert (process.returncode, said) == (0, b"")


async def test_up_outlives_whoever_read_its_start_up_line(tmp_path: Path) -> None:
    """As in `countersink up | head -1`: it drains although nobody hears of it."""
    reading, writing = os.pipe()
    async with ending_well(tmp_path, stdout=writing):
        os.close(writing)
        with os.fdopen(reading, "rb") as lines:
            url = lines.readline().split()[4].rstrip(b",").decode()
        await count(url)
    assert in_the_file(tmp_path) == (1, 0)


async def test_up_starts_with_no_standard_output_at_all(tmp_path: Path) -> None:
    async with ending_well(tmp_path, "sh", "-c", 'exec "$@" >&-', "sh"), asyncio.timeout(60):
        while not (tmp_path / "countersink.db-wal").exists():
            await asyncio.sleep(0.01)


async def test_workers_start_with_nothing_open_at_all(tmp_path: Path) -> None:
    """Otherwise a socket would take the place of an error output, and libuv end the process."""
    script = 'exec "$@" <&- >&- 2>&-'
    command = [*COUNTERSINK, "ingest", "--port", str(port := free_port()), "--workers", "2"]
    settings = environment(COUNTERSINK_BROKER=f"sqlite:///{tmp_path}/countersink.db")
    ingest = await asyncio.create_subprocess_exec("sh", "-c", script, "sh", *command, env=settings)
    async with asyncio.timeout(60):
        while True:
            try:
                await count(f"http://127.0.0.1:{port}")
            except aiohttp.ClientConnectionError:
                assert ingest.returncode is None
                await asyncio.sleep(0.02)
            else:
                break
    ingest.send_signal(signal.SIGTERM)
    assert await ingest.wait() == 0


@asynccontextmanager
async def two_workers(started: Processes) -> AsyncIterator[tuple[Running, list[int]]]:
    running = await started.start("ingest", "--port", str(free_port()), "--workers", "2")
    children = running.children()
    assert len(children) == 2  # it says that it is up when they are
    yield running, children


async def gone(pids: list[int]) -> None:
    """A process that nobody has waited for is gone, too."""
    async with asyncio.timeout(60):
        while any(alive(pid) for pid in pids):
            await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_workers_drain_with_their_parent(started: Processes, tmp_path: Path) -> None:
    async with two_workers(started) as (running, children):
        assert running.line == (
            f"countersink ingest is up on {running.url} with 2 workers,"
            f" its data in {tmp_path / 'countersink.db'} (version {__version__})\n"
        )
        await count(running.url, 20)
        assert await running.end(signal.SIGTERM) == 0
        assert not any(map(alive, children))


async def test_a_signal_for_all_workers_as_a_terminal_sends_it_is_no_failure(started: Processes) -> None:
    async with two_workers(started) as (running, children):
        for child in children:
            os.kill(child, signal.SIGINT)
        assert await running.end(signal.SIGINT) == 0
        assert not any(map(alive, children))


async def test_a_worker_that_is_killed_is_replaced_and_the_other_goes_on(started: Processes) -> None:
    async with two_workers(started) as (running, (first, second)):
        os.kill(first, signal.SIGKILL)
        await gone([first])
        await count(running.url, 10)
        async with asyncio.timeout(60):
            while len(running.children()) < 2 or first in running.children():
                await asyncio.sleep(0.01)
        assert second in running.children()
        await count(running.url, 10)
        assert await total(running.url) == 20
        assert await running.end(signal.SIGTERM) == 0


async def test_workers_drain_and_end_when_their_parent_is_killed(started: Processes, tmp_path: Path) -> None:
    """Their port is free then: the next one can start on it."""
    async with two_workers(started) as (running, children):
        await count(running.url, 5)
        async with aiohttp.ClientSession() as session:
            async with session.post(f"{running.url}/v1/counters/a?ack=none") as response:
                assert response.status == 202
            await running.end(signal.SIGKILL)
        await gone(children)
        again = await started.start("up", "--port", str(running.port))
        assert again.port == running.port
        assert await again.end(signal.SIGTERM) == 0
        assert in_the_file(tmp_path) == (6, 0)


class Keeper(workers._Keeper):
    """Its workers are shell scripts."""

    def __init__(self, script: str, patience: float = 20.0) -> None:
        super().__init__(0, (), patience, check=lambda: None, metrics=[instruments.make_shared()])
        self._script = script
        self.pids: list[int] = []

    async def _start(self) -> Process:
        process = await asyncio.create_subprocess_exec("sh", "-c", self._script, stdout=PIPE)
        self.pids.append(process.pid)
        return process


async def test_a_worker_that_never_gets_ready_ends_the_start() -> None:
    with pytest.raises(CountersinkError, match="a worker ended with exit code 3 before it was ready"):
        await asyncio.wait_for(Keeper("exit 3").run(Stop()), 60)


async def test_a_worker_that_dies_again_and_again_is_started_again_until_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    keeper, stop = Keeper("echo up; kill -9 $$"), Stop()
    task = asyncio.create_task(keeper.run(stop))
    async with asyncio.timeout(60):
        while len(keeper.pids) < 3:
            await asyncio.sleep(0.01)
    stop.set()
    await asyncio.wait_for(task, 60)
    assert f"worker 0 (process {keeper.pids[0]}) was killed by SIGKILL and is started again" in caplog.messages


async def test_a_worker_that_does_not_drain_is_killed_and_that_is_a_failure() -> None:
    keeper, stop = Keeper("trap '' TERM; echo up; while :; do sleep 0.1; done", patience=0.2), Stop()
    task = asyncio.create_task(keeper.run(stop))
    await asyncio.wait_for(keeper.ready.wait(), 60)
    stop.set()
    with pytest.raises(CountersinkError, match=r"did not finish within 0\.2 seconds and was killed"):
        await asyncio.wait_for(task, 60)
    assert not any(map(alive, keeper.pids))


def test_a_worker_is_started_as_its_parent_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by -m where the parent was not: that would look for our names in the folder first."""
    monkeypatch.setattr(sys, "argv", ["bin/countersink", "ingest"])
    script, module = ModuleType("__main__"), ModuleType("__main__")
    module.__spec__ = pytest.__spec__
    assert workers.command(script) == (sys.executable, "bin/countersink")
    assert workers.command(module) == (sys.executable, "-m", "countersink")
