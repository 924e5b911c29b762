"""Runs the programs that check `deploy`, and downloads what they install."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from deploy.sbom import LOCKS
from tests.meta.checkout import ROOT
from tests.needs import program
from tests.once import once

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


def refuses(*command: str | Path) -> bool:
    """Whether the command fails."""
    return subprocess.run(command, capture_output=True, check=False).returncode != 0


def npm_ci(project: Path, folder: Path) -> None:
    """Install into the folder what the project's lock has."""
    for name in ("package.json", "package-lock.json"):
        shutil.copy(project / name, folder)
    run(program("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", cwd=folder)


def downloaded(factory: pytest.TempPathFactory, version: str) -> Path:
    """A folder with the wheels of the image's locks for this version of Python."""
    return once(factory, f"wheels-{version}", partial(_download, version))


def _download(version: str, folder: Path) -> None:
    """Of any system, since the locks name some that not each one needs. The cache of pip may have them."""
    lock = folder.with_suffix(f"{folder.suffix}.txt")
    locks = "".join((ROOT / name).read_text() for name in LOCKS)
    lock.write_text(re.sub(r" ; [^\\\n]*", "", locks))
    download = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:")
    run(*download, "--python-version", version, "--require-hashes", "--dest", folder, "--requirement", lock)
