"""The release before this version: its files in a folder, so that its processes can run beside this version's."""

import io
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Final

import pytest

from tests.meta.checkout import PACKAGES, ROOT

RELEASE: Final = "0.1.0"
COMMIT: Final = "776f4114a40fcf65b0c13095dc762fc72e5f553f"
"""Of this release: a clone may lack its tag. Change both with each release."""
_GIT: Final = ("git", "-c", "safe.directory=*")


def unpack(folder: Path) -> Path:
    archive = (*_GIT, "archive", "--format=tar", COMMIT, *PACKAGES)
    fetch = (*_GIT, "fetch", "--quiet", "--depth=1", "origin", COMMIT)
    if (done := _run(archive)).returncode:  # a shallow clone
        _run(fetch)
        done = _run(archive)
    if done.returncode:
        pytest.skip(f"NO UPGRADE WAS TRIED: git has no commit of {RELEASE}, and can't fetch it: {done.stderr.decode()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


def _run(command: tuple[str, ...]) -> "subprocess.CompletedProcess[bytes]":
    environment = {"GIT_TERMINAL_PROMPT": "0"}
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, capture_output=True, check=False, timeout=120
    )
