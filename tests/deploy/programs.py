"""Finds the programs that check `deploy`, and runs them."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

MOST_SECONDS = 300


def missing(said: str) -> None:
    """Skip the test; fail where none may be skipped."""
    if os.environ.get("COUNTERSINK_REQUIRE_ALL") == "1":
        pytest.fail(said)
    pytest.skip(said)


def program(name: str) -> str:
    """The path of a program that a package for Python, or the system, brings."""
    folders = [str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin"]
    found = shutil.which(name, path=os.pathsep.join(folders))
    if found is None:
        missing(f"{name} is missing")
    return str(found)


def run(*command: str | Path, cwd: Path | None = None, more: Mapping[str, str] | None = None, told: str = "") -> str:
    """What the command said on standard output; fails with all that it said if it failed."""
    words = [str(word) for word in command]
    environment = {**os.environ, **(more or {})}
    done = subprocess.run(
        words, cwd=cwd, env=environment, input=told, capture_output=True, text=True, timeout=MOST_SECONDS, check=False
    )
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-4_000:]}\n{done.stderr[-4_000:]}"
    return done.stdout
