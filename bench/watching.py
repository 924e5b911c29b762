"""The row of streams: what 2,000 of them cost while counters change, and how late their events are."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from bench import machine, servers
from bench.figures import Figure, Plan, Row

STREAMS: Final = 1_000
"""Of one counter, and as many of different ones."""
RATE: Final = 5_000
ROUNDS: Final = 2
MOST_DELAY: Final = 1.5
"""Flush intervals from a 202 to the event, for 99 of 100 increments."""


def watch(plan: Plan) -> Row:
    row = Row(
        "watch",
        f"events of {STREAMS:,} streams of one counter and {STREAMS:,} of different ones, after the 202, p99",
        "s",
        target=MOST_DELAY,
    )
    seconds = 3.0 if plan.seconds == 1 else 6.0
    rounds = [
        (_round(plan, row, number, seconds, STREAMS), _round(plan, row, number, seconds, 0))
        for number in range(min(ROUNDS, plan.rounds))
    ]
    row.ours = Figure.of([with_streams["p99"] for with_streams, _ in rounds])
    row.ratio = Figure.of([with_streams["cpu"] / without["cpu"] for with_streams, without in rounds])
    row.met = row.ours.median <= MOST_DELAY
    memory = [max(one[number]["memory"] for one in rounds) / 2**20 for number in (0, 1)]
    median = Figure.of([with_streams["p50"] for with_streams, _ in rounds]).median
    row.more |= {"memory_mib": memory[0], "memory_mib_without": memory[1], "p50": median}
    row.notes.append(
        f"{RATE:,} increments/s; the median is {median:.2f} s; the ratio is of the server's CPU time to that without"
        f" streams; its memory is {memory[0]:.0f} MiB, {memory[1]:.0f} without"
    )
    return row


def _round(plan: Plan, row: Row, number: int, seconds: float, streams: int) -> Any:
    with servers.up(plan.folder / f"{row.name}{number}-{streams}") as server:
        server.settled()
        before = machine.cpu(server.pid)
        command = [
            sys.executable,
            "-m",
            "bench.watched",
            server.host,
            str(server.port),
            str(RATE),
            str(seconds),
            str(streams),
        ]
        with machine.on(machine.GENERATOR):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return json.loads(done.stdout) | {"cpu": machine.cpu(server.pid) - before, "memory": _memory(server.pid)}


def _memory(pid: int) -> int:
    """The most bytes of memory that it has had."""
    (line,) = [one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmHWM")]
    return int(line.split()[1]) * 1_024
