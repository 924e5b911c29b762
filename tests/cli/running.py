"""Commands that end by themselves: what they said, and their exit code."""

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple

from tests.processes.fork_server import can_fork, fork

COUNTERSINK = (sys.executable, "-m", "countersink")
LONGEST = 120.0
_PATIENCE = re.compile(rb"(?m)^countersink: (waiting for an answer from .*|.* \(trying again.*\)|it answers again)\n")
"""What a command that asks a service says after a second, if the machine paused."""


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    lines: list[str]
    """On standard error, except those that depend on how fast the machine is."""


def environment(**settings: str) -> dict[str, str]:
    """Without the settings of whoever runs the tests, or of `make`; the checkout is found from any folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("COUNTERSINK_", "MAKELEVEL"))}
    kept["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), kept.get("PYTHONPATH", "")])
    return kept | settings


def run(*arguments: str | bytes, cwd: Path | None, **settings: str) -> Done:
    env = environment(**settings)
    if not can_fork(env):
        command = [*COUNTERSINK, *arguments]
        done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, timeout=LONGEST, check=False)
        return _done(done.returncode, done.stdout, done.stderr)
    with TemporaryFile() as out, TemporaryFile() as errors:
        code = fork(arguments, env, stdout=out.fileno(), stderr=errors.fileno(), cwd=cwd).end_within(LONGEST)
        out.seek(0)
        errors.seek(0)
        return _done(code, out.read(), errors.read())


def _done(code: int, out: bytes, errors: bytes) -> Done:
    return Done(code, out.decode(), _PATIENCE.sub(b"", errors).decode().splitlines())


def make_file(folder: Path) -> None:
    """An empty one, in its usual place."""
    assert run("provision", cwd=folder, COUNTERSINK_EXISTING="yes").code == 0
