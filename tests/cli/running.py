"""Commands that end by themselves: what they said, and their exit code."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

COUNTERSINK = (sys.executable, "-m", "countersink")
LONGEST = 30.0


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    lines: list[str]
    """On standard error."""


def environment(**settings: str) -> dict[str, str]:
    """Without the settings of whoever runs the tests; the checkout is found from any folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COUNTERSINK_")}
    kept.pop("PYTHONUNBUFFERED", None)  # what is left in the buffer at the end is a case of its own
    kept["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), kept.get("PYTHONPATH", "")])
    return kept | settings


def run(*arguments: str | bytes, cwd: Path | None, **settings: str) -> Done:
    done = subprocess.run(
        [*COUNTERSINK, *arguments],
        cwd=cwd,
        env=environment(**settings),
        capture_output=True,
        timeout=LONGEST,
        check=False,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode().splitlines())


def make_file(folder: Path) -> None:
    """An empty one, in its usual place."""
    assert run("provision", cwd=folder, COUNTERSINK_EXISTING="yes").code == 0
