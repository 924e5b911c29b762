"""What a test needs besides Python. Without it the test is skipped, or fails where nothing may be missing."""

import os
import shutil
import sys
from pathlib import Path
from typing import Final, NoReturn

import pytest

_TABLE: Final = Path(__file__).parents[1] / "requirements" / "debian.txt"


def missing(what: str) -> NoReturn:
    """Skip this test and say why. With COUNTERSINK_REQUIRE_ALL=1, as in CI and in `make test`, it fails instead."""
    if os.environ.get("COUNTERSINK_REQUIRE_ALL") == "1":
        pytest.fail(what, pytrace=False)
    pytest.skip(what)


def program(*names: str) -> str:
    """The path of the first of these programs that is there: beside this Python, or on the system."""
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin"])
    for name in names:
        if found := shutil.which(name, path=folders):
            return found
    missing(f"{names[0]} is missing; {_how_to_get(names[0])}")


def _how_to_get(name: str) -> str:
    if name in {"gcloud", "java"}:
        return "Google's emulators need the Google Cloud CLI and Java"
    lines = [line.split() for line in _TABLE.read_text().splitlines() if not line.startswith("#")]
    packages = dict(lines)
    return f"on Debian: apt-get install {packages[name]}" if name in packages else "see `make dev`"
