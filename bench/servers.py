"""Starts and stops what is measured: Countersink by its command line, and the references.

`python -m bench.servers up …` is `countersink up …`, but aiohttp gets every request: what the fast path is
measured against.
"""

import contextlib
import http.client
import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch
from urllib.parse import urlsplit

from bench import machine

COUNTERSINK: Final = (sys.executable, "-m", "countersink")
WITHOUT_FAST_PATH: Final = (sys.executable, "-m", "bench.servers")
EMPTY: Final = (sys.executable, "-m", "bench.empty")
_URL: Final = re.compile(rb"http://[\w.\[\]:]+:\d+")
_START: Final = 20.0
_DRAIN: Final = 120.0


class Server:
    """A process that answers HTTP."""

    def __init__(self, process: "subprocess.Popen[bytes]", url: str) -> None:
        self.pid = process.pid
        self.url = url
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or 80

    def ask(self, path: str, method: str = "GET", body: bytes | None = None) -> tuple[int, Mapping[str, str], bytes]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def totals(self) -> dict[str, dict[str, Any]]:
        """Every counter, read afresh."""
        found: dict[str, dict[str, Any]] = {}
        token = ""
        while True:
            status, _, body = self.ask(f"/v1/counters?limit=1000&max_age=0&page_token={token}")
            if status != 200:
                raise RuntimeError(f"listing the counters failed: {status} {body!r}")
            page = json.loads(body)
            found |= {item["name"]: item for item in page["counters"]}
            token = page["next_page_token"] or ""
            if not token:
                return found

    def settled(self) -> int:
        """The sum of all counters, once the flusher has applied all that is pending."""
        until = time.monotonic() + _DRAIN
        while True:
            totals = self.totals().values()
            if not any(item["pending"] for item in totals):
                return sum(item["value"] for item in totals)
            if time.monotonic() > until:
                raise RuntimeError(f"the flusher is not done after {_DRAIN:g} seconds")
            time.sleep(0.1)

    def at_rest(self) -> int:
        """`settled`, when the server has also seen the last of what was sent: all it accepted is counted."""
        until = time.monotonic() + _DRAIN
        while (settled := self.settled()) != self.accepted():
            if time.monotonic() > until:
                raise RuntimeError(f"{self.accepted()} were accepted, {settled} were counted")
            time.sleep(0.1)
        return settled

    def accepted(self) -> int:
        """Increments answered 2xx, as the server counts them."""
        _, _, body = self.ask("/metrics")
        found = re.search(rb"^countersink_accepted_increments_total (\S+)$", body, re.MULTILINE)
        return int(float(found[1])) if found else 0


@contextlib.contextmanager
def running(command: tuple[str, ...], where: int | None = machine.SERVER, /, **settings: str) -> Iterator[Server]:
    """On the servers' processor if none other is said, until the end of the block."""
    with process(command, settings, where) as started:
        yield Server(started, _url(started))


@contextlib.contextmanager
def process(
    command: tuple[str, ...], settings: Mapping[str, str], where: int | None = machine.SERVER
) -> Iterator["subprocess.Popen[bytes]"]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COUNTERSINK_")}
    with machine.on(where):
        started = subprocess.Popen(
            command, stdout=subprocess.PIPE, env=kept | {"PYTHONUNBUFFERED": "1"} | dict(settings)
        )
    try:
        yield started
    finally:
        started.terminate()
        try:
            started.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            started.kill()
            started.communicate()


@contextlib.contextmanager
def up(data: Path, countersink: tuple[str, ...] = COUNTERSINK) -> Iterator[Server]:
    """Ingest with a flusher beside it in one process."""
    with running((*countersink, "up", "--port", "0", "--data", str(data))) as server:
        yield server


@contextlib.contextmanager
def apart(data: Path) -> Iterator[Server]:
    """Ingest alone in its process, with a flusher beside it in another, beside the load."""
    settings = {"COUNTERSINK_BROKER": f"sqlite:///{data}/countersink.db"}
    ingest, flusher = (*COUNTERSINK, "ingest", "--port", "0"), (*COUNTERSINK, "flusher")
    with running(ingest, **settings) as server, process(flusher, settings, machine.GENERATOR):
        yield server


@contextlib.contextmanager
def empty() -> Iterator[Server]:
    with running(EMPTY) as server:
        yield server


def _url(started: "subprocess.Popen[bytes]") -> str:
    """The first URL in what it prints."""
    assert started.stdout is not None
    said = b""
    until = time.monotonic() + _START
    while time.monotonic() < until:
        if select.select([started.stdout], [], [], 0.2)[0]:
            more = os.read(started.stdout.fileno(), 65_536)
            if not more:
                break
            said += more
            if found := _URL.search(said):
                return found[0].decode()
    raise RuntimeError(f"the server did not say where it listens: {said.decode(errors='replace')}")


def without_fast_path(arguments: list[str]) -> None:
    from countersink_server.cli.main import main  # noqa: PLC0415 (this and the service: only in the process that serves)
    from ingest.service import Ingest  # noqa: PLC0415

    with patch("countersink_server.serve.run.Ingest", partial(Ingest, short=False)):
        main(arguments)


if __name__ == "__main__":
    without_fast_path(sys.argv[1:])
