"""Runs a generator on its own processor and reads what it says."""

import contextlib
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bench import machine
from bench.servers import Server
from bench.shapes import Shape

CONNECTIONS: Final = 64
_SCRIPT: Final = Path(__file__).with_name("load.lua")


@dataclass(frozen=True, slots=True)
class Load:
    """What the clients saw."""

    seconds: float
    answered: int
    refused: int
    """Of those answered, not 2xx."""
    broken: int
    p50: float
    p99: float
    """Milliseconds."""
    cpu: float = 0.0
    """Seconds of processor time that the server used, if one process was it."""

    @property
    def good(self) -> int:
        return self.answered - self.refused

    @property
    def rate(self) -> float:
        """2xx per second."""
        return self.good / self.seconds

    @property
    def cost(self) -> float:
        """Seconds of the server's processor time for each answer."""
        return self.cpu / self.answered


def generator() -> str:
    return "wrk -t1" if shutil.which("wrk") else "bundled (python -m bench.plain)"


def run(
    server: Server,
    shape: Shape,
    seconds: float,
    connections: int = CONNECTIONS,
    *,
    where: int | None = machine.GENERATOR,
) -> Load:
    """By wrk where there is one. It leaves what is under way at its end unanswered."""
    wrk = shutil.which("wrk")
    if wrk is None:
        return run_plain(server, shape, seconds, connections, where=where)
    options = [
        "-t1",
        f"-c{connections}",
        f"-d{max(1, round(seconds))}s",
        "--timeout",
        "30s",
        "-s",
        str(_SCRIPT),
    ]
    return _read([wrk, *options, server.url, "--", *shape.arguments()], where, server.pid)


def run_all(servers: Sequence[Server], shape: Shape, seconds: float, connections: int) -> Load:
    """At the same time, each by a generator of its own, which share the connections."""
    with ThreadPoolExecutor(len(servers)) as pool:
        share = connections // len(servers)
        loads = list(pool.map(lambda server: run(server, shape, seconds, share, where=None), servers))
    return Load(
        seconds=max(one.seconds for one in loads),
        answered=sum(one.answered for one in loads),
        refused=sum(one.refused for one in loads),
        broken=0,
        p50=statistics.mean(one.p50 for one in loads),
        p99=max(one.p99 for one in loads),
    )


def run_plain(
    server: Server,
    shape: Shape,
    seconds: float,
    connections: int = CONNECTIONS,
    *,
    where: int | None = machine.GENERATOR,
) -> Load:
    """Ours: every request that was sent has its answer at the end, or is broken."""
    what = [server.host, str(server.port), str(connections), str(seconds)]
    return _read([sys.executable, "-m", "bench.plain", *what, *shape.arguments()], where, server.pid)


@contextlib.contextmanager
def paced(server: Server, shape: Shape, rate: float, seconds: float) -> Iterator[Callable[[], Load]]:
    """Runs beside the block, at a steady rate whatever the answers do; what is yielded waits for its end."""
    where = [server.host, str(server.port), str(rate), str(seconds)]
    command = [sys.executable, "-m", "bench.paced", *where, *shape.arguments()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield lambda: _seen(process.communicate()[0], "")
        finally:
            process.terminate()


def _read(command: list[str], where: int | None, pid: int) -> Load:
    before = machine.cpu(pid)
    with machine.on(where):
        ended = subprocess.run(command, check=False, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"the generator failed: {ended.stdout}{ended.stderr}")
    return replace(_seen(ended.stdout, ended.stderr), cpu=machine.cpu(pid) - before)


def _seen(said: str, complaints: str) -> Load:
    last = said.strip().rpartition("\n")[2].removeprefix("RESULT ")
    if not last.startswith("{"):
        raise RuntimeError(f"the generator failed: {said}{complaints}")
    load = Load(**json.loads(last))
    if load.broken or not load.answered:
        raise RuntimeError(f"{load.broken} connections or answers of {load.answered} were lost: {said}{complaints}")
    return load
