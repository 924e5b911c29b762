"""The checkout as the guards see it: its root, its files, its metadata."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("countersink", "countersink_server", "flusher", "ingest", "shared")
"""The first is the client, the others are the server."""


def tracked() -> list[Path]:
    """Files that are, or are about to be, in git."""
    command = [
        "git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard",
    ]  # fmt: skip
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    paths = {ROOT / name for name in listed.split("\0") if name}
    return sorted(path for path in paths if path.is_file())


def product() -> list[Path]:
    """The folders of both distributions."""
    folders = {ROOT / name for name in PACKAGES}
    return [path for path in tracked() if folders & set(path.parents)]


def releases() -> list[str]:
    """The newest first."""
    return re.findall(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def pyproject(folder: Path = ROOT) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text())


def build_packages(folder: Path) -> None:
    """Build wheels and sources of client and server into the folder, as `make dist` does."""
    for project in (ROOT / "countersink", ROOT):
        command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
        subprocess.run(command, cwd=project, check=True, capture_output=True)
