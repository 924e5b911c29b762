"""A service for tests of commands, and its data."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.cli.running import COUNTERSINK, environment


class Service(NamedTuple):
    """One that runs."""

    url: str
    data: Path
    process: "subprocess.Popen[str]"


@contextlib.contextmanager
def service(data: Path, port: str = "0", **settings: str) -> Iterator[Service]:
    process = subprocess.Popen(
        [*COUNTERSINK, "up", "--port", port, "--data", str(data)],
        env=environment(COUNTERSINK_FLUSH_INTERVAL="0", **settings),
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            yield Service(process.stdout.readline().split()[4].rstrip(","), data, process)
        finally:
            process.terminate()
