"""The version before this one: its files in a folder, so that its processes can run beside those of this version."""

import io
import subprocess
import tarfile
from pathlib import Path
from typing import Final

from tests.meta.checkout import ROOT
from tests.needs import missing

COMMIT: Final = "HEAD"
"""Of the release before this one. There is none before 0.1.0, so until then this version stands in for it. Change it
with each release.
"""


def unpack(folder: Path) -> Path:
    packages = ("countersink", "countersink_server", "ingest", "flusher", "shared")
    command = ["git", "archive", "--format=tar", COMMIT, *packages]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        missing(f"git does not have the version before ({COMMIT}): {done.stderr.decode()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder
