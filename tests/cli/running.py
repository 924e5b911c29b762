"""Commands that end by themselves, with what they said and their exit code; and a service, with its data."""

import contextlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple

import aiohttp
import pytest

from countersink_server.cli.main import main
from tests.processes.fork_server import Forked, can_fork, fork

COUNTERSINK = (sys.executable, "-m", "countersink")
LONGEST = 120.0
NOWHERE = "http://127.0.0.1:1"
"""Where no service is."""
_PATIENCE = re.compile(rb"(?m)^countersink: (waiting for an answer from .*|.* \(trying again.*\)|it answers again)\n")
"""What a command that asks a service says after a second, if the machine paused."""


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    lines: list[str]
    """On standard error, except those that depend on how fast the machine is."""

    @property
    def said(self) -> str:
        """What a command printed that did its work, and said nothing else."""
        assert (self.code, self.lines) == (0, []), self
        return self.out

    @property
    def refusal(self) -> str:
        """The one line that a command said which failed, and said nothing else."""
        assert (self.code, self.out, len(self.lines)) == (1, "", 1), self
        return self.lines[0]


def environment(**settings: str) -> dict[str, str]:
    """Without the settings of whoever runs the tests, or of `make`; the checkout is found from any folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("COUNTERSINK_", "MAKELEVEL"))}
    kept["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), kept.get("PYTHONPATH", "")])
    return kept | settings


def run(*arguments: str | bytes, cwd: Path | None, **settings: str) -> Done:
    with TemporaryFile() as out, TemporaryFile() as errors:
        code = run_to(out.fileno(), errors.fileno(), *arguments, cwd=cwd, **settings)
        out.seek(0)
        errors.seek(0)
        return Done(code, out.read().decode(), _PATIENCE.sub(b"", errors.read()).decode().splitlines())


def run_here(*arguments: str | bytes, cwd: Path | None = None, **settings: str) -> Done:
    """The same in this process, which saves the start of another: a command that leaves nothing behind in its process,
    such as handlers of signals.
    """
    out, errors, code = StringIO(), StringIO(), None
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(errors):
        for name in os.environ.keys() - environment().keys():
            patch.delenv(name)
        for name, value in settings.items():
            patch.setenv(name, value)
        if cwd is not None:
            patch.chdir(cwd)
        try:
            main([*map(os.fsdecode, arguments)])
        except SystemExit as ended:
            code = ended.code
    if isinstance(code, str):
        return Done(1, out.getvalue(), code.splitlines())
    return Done(code or 0, out.getvalue(), errors.getvalue().splitlines())


def run_to(out: int, errors: int, *arguments: str | bytes, cwd: Path | None = None, **settings: str) -> int:
    """Run a command that writes to these file descriptors, and return its exit code."""
    env = environment(**settings)
    if can_fork(env):
        return fork(arguments, env, stdout=out, stderr=errors, cwd=cwd).end_within(LONGEST)
    command = [*COUNTERSINK, *arguments]
    return subprocess.run(command, cwd=cwd, env=env, stdout=out, stderr=errors, timeout=LONGEST, check=False).returncode


def make_file(folder: Path) -> None:
    """An empty one, in its usual place."""
    assert run("provision", cwd=folder, COUNTERSINK_EXISTING="yes").code == 0


class Service(NamedTuple):
    """One that runs."""

    url: str
    data: Path
    process: Forked


@contextlib.contextmanager
def service(data: Path, port: str = "0", **settings: str) -> Iterator[Service]:
    env = environment(COUNTERSINK_FLUSH_INTERVAL="0", **settings)
    reading, writing = os.pipe()
    process = fork(["up", "--port", port, "--data", str(data)], env, stdout=writing, stderr=2)
    os.close(writing)
    with os.fdopen(reading) as out:
        try:
            yield Service(out.readline().split()[4].rstrip(","), data, process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            process.end_within(LONGEST)


def apart() -> aiohttp.ClientSession:
    """For requests over connections of their own, so that each worker gets some."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))


async def count(url: str, times: int = 1, query: str = "") -> None:
    """One is added to the counter a, so many times."""
    async with apart() as session:
        for _ in range(times):
            async with session.post(f"{url}/v1/counters/a{query}") as response:
                assert response.status == 202


async def total(url: str, key: str = "") -> int:
    """Of the counter a, now."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with apart() as session, session.get(f"{url}/v1/counters/a?max_age=0", headers=headers) as response:
        found = await response.json()
    assert found["exact"]
    return int(found["value"])


def in_the_file(folder: Path) -> tuple[int, int]:
    """Sum of the shards, and messages that wait."""
    with contextlib.closing(sqlite3.connect(folder / "countersink.db")) as db:
        (total,) = db.execute("SELECT coalesce(sum(count), 0) FROM shards").fetchone()
        (waiting,) = db.execute("SELECT count(*) FROM messages").fetchone()
    return total, waiting
