"""The version before this one: its files in a folder, so that its processes can run beside those of this version."""

import io
import subprocess
import tarfile
from pathlib import Path
from typing import Final

from tests.meta.checkout import ROOT
from tests.needs import missing

COMMIT: Final = "5d33cdfb564e"
"""Of the last version that others may run. Change it with each release, and whenever formats may no longer be mixed."""
FILES: Final = "e532faee523f"
"""The same, for processes on a SQLite file: the first version with this schema."""


def unpack(folder: Path, commit: str) -> Path:
    packages = ("countersink", "countersink_server", "ingest", "flusher", "shared")
    command = ["git", "archive", "--format=tar", commit, *packages]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        missing(f"git does not have the version before ({commit}): {done.stderr.decode()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder
