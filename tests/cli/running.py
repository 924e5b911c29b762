"""Commands that end by themselves: what they said, and their exit code."""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple

from tests.processes.fork_server import can_fork, fork

COUNTERSINK = (sys.executable, "-m", "countersink")
LONGEST = 120.0


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    lines: list[str]
    """On standard error."""


def environment(**settings: str) -> dict[str, str]:
    """Without the settings of whoever runs the tests; the checkout is found from any folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COUNTERSINK_")}
    kept["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), kept.get("PYTHONPATH", "")])
    return kept | settings


def run(*arguments: str | bytes, cwd: Path | None, **settings: str) -> Done:
    env = environment(**settings)
    if not can_fork(env):
        command = [*COUNTERSINK, *arguments]
        done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, timeout=LONGEST, check=False)
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode().splitlines())
    with TemporaryFile() as out, TemporaryFile() as errors:
        code = fork(arguments, env, stdout=out.fileno(), stderr=errors.fileno(), cwd=cwd).end_within(LONGEST)
        out.seek(0)
        errors.seek(0)
        return Done(code, out.read().decode(), errors.read().decode().splitlines())


def make_file(folder: Path) -> None:
    """An empty one, in its usual place."""
    assert run("provision", cwd=folder, COUNTERSINK_EXISTING="yes").code == 0
