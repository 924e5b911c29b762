"""Runs the programs that check `deploy`."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.needs import program

MOST_SECONDS = 300


def run(*command: str | Path, cwd: Path | None = None, more: Mapping[str, str] | None = None, told: str = "") -> str:
    """What the command said on standard output; fails with all that it said if it failed."""
    words = [str(word) for word in command]
    environment = {**os.environ, **(more or {})}
    done = subprocess.run(
        words, cwd=cwd, env=environment, input=told, capture_output=True, text=True, timeout=MOST_SECONDS, check=False
    )
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-4_000:]}\n{done.stderr[-4_000:]}"
    return done.stdout


def npm_ci(project: Path, folder: Path) -> None:
    """Install into the folder what the project's lock has."""
    for name in ("package.json", "package-lock.json"):
        shutil.copy(project / name, folder)
    run(program("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", cwd=folder)
