"""Builds the clients' packages, installs them into empty projects, and starts the drivers of clients/conformance."""

import asyncio
import json
import os
import shutil
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.deploy.programs import run
from tests.meta.checkout import ROOT
from tests.meta.test_installed import install
from tests.needs import program
from tests.once import once

FOLDER: Final = ROOT / "clients" / "conformance"
Built = tuple[list[str], Mapping[str, str]]
"""The command of a driver, and the variables that it needs."""
LONGEST: Final = 120.0
"""Seconds for one step."""


def node(_: Path, folder: Path) -> None:
    """Install the package for Node into an empty project."""
    more = {
        "npm_config_cache": str(folder / "cache"),
        "npm_config_offline": "true",
        "npm_config_update_notifier": "false",
    }
    npm = program("npm")
    (packed,) = json.loads(run(npm, "pack", "--json", ROOT / "clients" / "node", cwd=folder, more=more))
    (folder / "package.json").write_text("{}")
    run(npm, "install", "--no-audit", "--no-fund", f"./{packed['filename']}", cwd=folder, more=more)
    shutil.copy(FOLDER / "driver.mjs", folder)


GO: Final = {"GOFLAGS": "-mod=mod -race", "GOPROXY": "off", "GOTOOLCHAIN": "local", "GOWORK": "off"}
"""Nothing is downloaded, and all is built with the race detector: Go's own packages once, not in two ways."""


def go(_: Path, folder: Path) -> None:
    """Build the driver in an empty module that requires the client's."""
    there = ROOT / "clients" / "go"
    (folder / "go.mod").write_text(
        f"module driver\ngo 1.19\nrequire countersink v0.1.0\nreplace countersink => {there}\n"
    )
    shutil.copy(FOLDER / "driver.go", folder)
    run(program("go"), "build", "-o", "driver", ".", cwd=folder, more=GO)


BUILDS: Final[dict[str, Callable[[Path, Path], None]]] = {
    "python": partial(install, "countersink"),
    "node": node,
    "go": go,
}
"""Each is told where the wheels are, and builds in a folder."""


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, dist: Path) -> Callable[[str], Path]:
    """The folder of a language's client and driver, which are built when the first test asks for them."""
    return lambda language: once(tmp_path_factory, f"client-{language}", partial(BUILDS[language], dist))


def command_in(folder: Path) -> Built:
    """How to start the driver that was built in this folder."""
    language = folder.name.removeprefix("client-")
    if language == "python":
        return [sys.executable, "-S", str(FOLDER / "driver.py")], {"PYTHONPATH": str(folder)}
    return [str(folder / "driver")] if language == "go" else [program("node"), str(folder / "driver.mjs")], {}


class Driver:
    """A driver that runs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._errors = asyncio.create_task(self._read())
        self._text = b""

    @classmethod
    async def start(cls, built: Built, options: Mapping[str, Any]) -> "Driver":
        command, more = built
        environment = os.environ | dict(more)
        return cls(
            await asyncio.create_subprocess_exec(
                *command, json.dumps(options), stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment
            )
        )

    @property
    def runs(self) -> bool:
        return self._process.returncode is None

    async def do(self, step: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The driver's answer to this step."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([step, arguments]).encode() + b"\n")
        await self._process.stdin.drain()
        async with asyncio.timeout(LONGEST):
            line = await self._process.stdout.readline()
        assert line, (step, arguments, self._text.decode())
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def end(self, how: str) -> str:
        """End it in this way. Returns what it said on standard error."""
        assert self._process.stdin
        if how == "return":
            self._process.stdin.close()
        else:
            self._process.send_signal(signal.SIGKILL if how == "kill" else signal.SIGTERM)
        async with asyncio.timeout(LONGEST):
            code = await self._process.wait()
            await self._errors
        said = self._text.decode()
        assert code == (-signal.SIGKILL if how == "kill" else 0), said
        return said

    async def _read(self) -> None:
        """So that its pipe never fills."""
        assert self._process.stderr
        while data := await self._process.stderr.read(65_536):
            self._text += data
