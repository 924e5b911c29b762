"""A service for tests of commands, and its data."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.cli.running import LONGEST, environment
from tests.processes.fork_server import Forked, fork


class Service(NamedTuple):
    """One that runs."""

    url: str
    data: Path
    process: Forked


@contextlib.contextmanager
def service(data: Path, port: str = "0", **settings: str) -> Iterator[Service]:
    env = environment(COUNTERSINK_FLUSH_INTERVAL="0", **settings)
    reading, writing = os.pipe()
    process = fork(["up", "--port", port, "--data", str(data)], env, stdout=writing, stderr=2)
    os.close(writing)
    with os.fdopen(reading) as out:
        try:
            yield Service(out.readline().split()[4].rstrip(","), data, process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            process.end_within(LONGEST)
