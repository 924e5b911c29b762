"""The row of StatsD lines over UDP: Countersink and StatsD on Node, each sent as many packets as a processor sends.

Nobody answers a packet, so there are no latencies: what counts is how many arrive, and how many are lost.
"""

import contextlib
import json
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from bench import machine, servers
from bench.emulators import MissingError
from bench.figures import Figure, Plan, Row, compare
from bench.peers.peer import listens, started, tool
from deploy.processes import free_port

NAME: Final = "views"
_PACKAGES: Final = Path(__file__).with_name("statsd")
_NEVER: Final = 86_400_000
"""Milliseconds between flushes of StatsD on Node, which forgets its sums then."""
_QUIET: Final = 0.5
"""Seconds without a new line, after which all that came is counted."""


@contextlib.contextmanager
def _theirs(folder: Path) -> Iterator[tuple[int, Callable[[], int]]]:
    """The port, and what asks for the total."""
    node, npm = tool("node"), tool("npm")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(_PACKAGES / name, folder)
    install = (npm, "ci", "--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund")
    installed = subprocess.run(install, cwd=folder, capture_output=True, text=True, check=False)
    if installed.returncode:
        raise MissingError(f"npm can't install StatsD: {installed.stderr[-300:]}")
    port, admin = free_port(), free_port()
    settings = {
        "port": port, "mgmt_port": admin, "address": "127.0.0.1", "mgmt_address": "127.0.0.1", "backends": [],
        "flushInterval": _NEVER,
    }  # fmt: skip
    (folder / "settings.js").write_text(json.dumps(settings))

    def total() -> int:
        with socket.create_connection(("127.0.0.1", admin), timeout=10) as asked:
            asked.sendall(b"counters\n")
            said = b""
            while b"END" not in said:
                said += asked.recv(65_536)
        found = re.search(rf"\b{NAME}: (\d+)".encode(), said)
        return int(found[1]) if found else 0

    command = (node, str(folder / "node_modules/statsd/stats.js"), str(folder / "settings.js"))
    with started(command, folder / "statsd.log", lambda: listens(admin)):
        yield port, total


@contextlib.contextmanager
def _ours(folder: Path) -> Iterator[tuple[int, Callable[[], int]]]:
    port = free_port()
    command = (*servers.COUNTERSINK, "up", "--port", "0", "--statsd", str(port), "--data", str(folder / "ours"))
    with servers.running(command) as server:
        yield port, server.settled


def row(plan: Plan) -> Row:
    """Rates are of lines that were counted."""
    found = Row("peers-statsd", "StatsD lines over UDP: StatsD on Node", "increments/s")
    lost: dict[str, list[float]] = {"ours": [], "theirs": []}

    def measure(who: str, port: int, total: Callable[[], int]) -> Callable[[], float]:
        def run() -> float:
            before = total()
            sent = _send(port, plan.seconds)
            counted = _settled(total) - before
            if not 0 < counted <= sent:
                raise RuntimeError(f"{sent} lines were sent, {counted} were counted")
            lost[who].append(1 - counted / sent)
            return counted / plan.seconds

        return run

    folder = plan.folder / found.name
    folder.mkdir()
    with _theirs(folder) as theirs, _ours(folder) as ours:
        found.ours, found.reference, found.ratio = compare(
            min(3, plan.rounds), measure("ours", *ours), measure("theirs", *theirs)
        )
    found.more |= {
        "lost": Figure.of(lost["ours"]),
        "reference_lost": Figure.of(lost["theirs"]),
        "peer": "statsd",
        "peer_is": "StatsD on Node, over UDP",
        "safe": "nothing: nobody answers, and sums are in memory",
    }
    found.notes.append(
        f"as many packets as one processor sends: {Figure.of(lost['ours']).median:.0%} were lost by Countersink,"
        f" {Figure.of(lost['theirs']).median:.0%} by the other"
    )
    return found


def _send(port: int, seconds: float) -> int:
    command = (sys.executable, "-m", "bench.peers.statsd", str(port), str(seconds), f"{NAME}:1|c")
    with machine.on(machine.GENERATOR):
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def pour(port: str, seconds: str, line: str) -> None:
    """Send lines, one in each packet, as fast as it can, and print how many. In a process of its own."""
    packet, sent = line.encode(), 0
    until = time.monotonic() + float(seconds)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("127.0.0.1", int(port)))
        send = sender.send
        while time.monotonic() < until:
            for _ in range(100):
                with contextlib.suppress(ConnectionRefusedError):
                    send(packet)
            sent += 100
    print(sent)


def _settled(total: Callable[[], int]) -> int:
    """The total, once it no longer changes."""
    last, now = -1, total()
    while now != last:
        time.sleep(_QUIET)
        last, now = now, total()
    return now


if __name__ == "__main__":
    pour(*sys.argv[1:])
