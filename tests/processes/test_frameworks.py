"""The applications of docs/client.md, in the servers that people run them in: each request and each task counts once.

Their clients send only when they end: the longest interval shows that no worker ends without sending what it holds.
"""

import asyncio
import contextlib
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from tests.meta.checkout import ROOT
from tests.processes.harness import Running, processes, total

pytestmark = pytest.mark.check  # Celery, Django, FastAPI, Flask, Gunicorn and Uvicorn

BLOCK: Final = re.compile(r"^```py\n(# (\w+\.py)\b.*?)^```$", re.MULTILINE | re.DOTALL)
URL: Final = '"http://127.0.0.1:8080"'
REQUESTS: Final = 40
TASKS: Final = 6
PATIENCE: Final = 120.0

# The process that forks counts, too, and so does each worker when it begins.
GUNICORN: Final = """
from counting import counters

bind = "127.0.0.1:0"
max_requests = 7
control_socket_disable = True

def when_ready(server):
    counters.incr("loaded")

def post_worker_init(worker):
    counters.incr("workers")
"""
CELERY: Final = """
broker_url = "filesystem://"
broker_transport_options = {"data_folder_in": "queue", "data_folder_out": "queue", "polling_interval": 0.05}
worker_max_tasks_per_child = 3
"""
SENDS: Final = f"""
from tasks import send_mail
for number in range({TASKS}):
    for again in range(2):
        send_mail.apply_async(["a@example.org"], task_id=f"task-{{number}}")
"""


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Running]:
    """It serves the applications of the page, which are files in `tmp_path`."""
    async with processes(tmp_path / "data", tmp_path / "log", COUNTERSINK_FLUSH_INTERVAL="0.05") as it:
        running = await it.start("up", "--port", "0")
        for text, name in BLOCK.findall((ROOT / "docs" / "client.md").read_text()):
            (tmp_path / name).write_text(text.replace(URL, f'"{running.url}", interval=3600'))
        yield running


@contextlib.asynccontextmanager
async def program(folder: Path, *arguments: str) -> AsyncIterator[Process]:
    """`python -m ARGUMENTS`. What it writes to standard error can be read."""
    path = os.pathsep.join((str(folder), str(ROOT)))
    environment = os.environ | {"PYTHONPATH": path, "CELERY_CONFIG_MODULE": "celeryconfig"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-X", "faulthandler", "-m", *arguments),
        cwd=folder,
        env=environment,
        stdout=PIPE,
        stderr=PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def until(process: Process, pattern: str, times: int = 1) -> str:
    """The last of the lines that match."""
    assert process.stderr
    said: list[str] = []
    async with asyncio.timeout(PATIENCE):
        while line := (await process.stderr.readline()).decode():
            said.append(line)
            if re.search(pattern, line):
                times -= 1
            if not times:
                return line
    raise AssertionError("".join(said))


async def end(process: Process) -> str:
    """What it said. If it does not end, that has the stacks of all its threads, and of its children's."""
    process.send_signal(signal.SIGTERM)
    saying = asyncio.create_task(process.communicate())
    await asyncio.wait([saying], timeout=PATIENCE)
    if not saying.done():
        os.killpg(process.pid, signal.SIGABRT)
    _, said = await saying
    return said.decode()


async def ask(line: str, name: str) -> None:
    """Requests at once, each on a connection of its own."""
    found = re.search(r"http://127\.0\.0\.1:\d+", line)
    assert found, line
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=4, force_close=True)) as session:

        async def one() -> None:
            async with session.get(f"{found[0]}/pages/{name}") as response:
                assert response.status == 200, await response.text()

        await asyncio.gather(*(one() for _ in range(REQUESTS)))


@pytest.mark.parametrize("module", ["pages", "django_pages"])
async def test_gunicorn_forks_an_application_that_has_a_client(service: Running, tmp_path: Path, module: str) -> None:
    """Workers are replaced meanwhile, each after 7 requests."""
    (tmp_path / "gunicorn.conf.py").write_text(GUNICORN)
    async with program(tmp_path, "gunicorn", "--preload", "--workers", "2", f"{module}:app") as gunicorn:
        await ask(await until(gunicorn, "Listening at"), "home")
        said = await end(gunicorn)
        assert gunicorn.returncode == 0, said
    assert await total(service.url, "page:home") == REQUESTS
    assert await total(service.url, "loaded") == 1
    workers = said.count("Booting worker")
    assert await total(service.url, "workers") == workers > 2


async def test_uvicorn_runs_an_application_with_a_client_in_its_lifespan(service: Running, tmp_path: Path) -> None:
    async with program(tmp_path, "uvicorn", "service:app", "--port", "0") as uvicorn:
        await ask(await until(uvicorn, "Uvicorn running on"), "home")
        assert "Application shutdown complete" in await end(uvicorn)
    assert await total(service.url, "page:home") == REQUESTS


async def test_tasks_of_celery_count_once_though_each_is_delivered_twice(service: Running, tmp_path: Path) -> None:
    """By the processes of its pool, which are replaced after 3 tasks."""
    (tmp_path / "queue").mkdir()
    (tmp_path / "celeryconfig.py").write_text(CELERY)
    (tmp_path / "sends.py").write_text(SENDS)
    worker = ("celery", "--app", "tasks", "worker", "--concurrency", "2", "--loglevel", "INFO", "--without-mingle")
    async with program(tmp_path, "sends") as sender, program(tmp_path, *worker) as it:
        assert await sender.wait() == 0
        await until(it, r"Task .* succeeded", 2 * TASKS)
        said = await end(it)
        assert it.returncode == 0, said
    assert await total(service.url, "mails") == TASKS
