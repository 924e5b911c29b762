"""The row of streams: what 2,000 of them cost while counters change, and how late their events are.

`python -m bench.watching HOST PORT RATE SECONDS STREAMS` is its generator: it counts at a steady rate, and watches so
many streams of one counter, and as many of different ones. It prints as JSON how long after its 202 an increment was in
an event.
"""

import asyncio
import json
import re
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import uvloop

from bench import machine, servers
from bench.figures import Figure, Plan, Row

BATCH: Final = 50
"""Increments in a request: half of them of the one counter, the others of different ones."""
ONE: Final = "one"
NAMES: Final = 1_000
_VALUE: Final = re.compile(rb'"value":(\d+),')


class Counted:
    """What was accepted of the one counter: when, and its total from then on."""

    def __init__(self) -> None:
        self.posts: list[tuple[float, int]] = []
        self.total = 0

    def accepted(self, number: int) -> None:
        self.total += number
        self.posts.append((time.perf_counter(), self.total))


class Stream(asyncio.Protocol):
    """It notes how late each increment was in an event, if it is of the one counter."""

    def __init__(self, path: str, counted: Counted | None, delays: list[float]) -> None:
        self._path = path
        self._counted = counted
        self._delays = delays
        self._next = 0
        self.events = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).write(f"GET {self._path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        values = _VALUE.findall(data)
        self.events += len(values)
        if self._counted is None or not values:
            return
        now, shown, posts = time.perf_counter(), int(values[-1]), self._counted.posts
        while self._next < len(posts) and posts[self._next][1] <= shown:
            self._delays.append(now - posts[self._next][0])
            self._next += 1


async def count(address: tuple[str, int], rate: float, seconds: float, counted: Counted) -> None:
    """Post batches at this rate of increments, one after the other."""
    reader, writer = await asyncio.open_connection(*address)
    begun = time.perf_counter()
    for number in range(round(rate * seconds / BATCH)):
        await asyncio.sleep(begun + number * BATCH / rate - time.perf_counter())
        others = [{"counter": f"w:{(number * BATCH + one) % NAMES}"} for one in range(BATCH // 2)]
        body = json.dumps([{"counter": ONE}] * (BATCH // 2) + others).encode()
        head = f"POST /v1/increments HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 202"):
            raise RuntimeError(answer.decode())
        length = int(answer.lower().partition(b"content-length:")[2].split(b"\r")[0])
        await reader.readexactly(length)
        counted.accepted(BATCH // 2)
    writer.close()


def _itself(stream: Stream) -> Stream:
    return stream


async def main(host: str, port: str, rate: str, seconds: str, streams: str) -> None:
    counted = Counted()
    delays: list[float] = []
    number = int(streams)
    paths = [f"/v1/counters/{ONE}/watch"] * number + [f"/v1/counters/w:{one}/watch" for one in range(number)]
    watching: list[Stream] = []
    for place, path in enumerate(paths):
        stream = Stream(path, counted if place < number else None, delays)
        await asyncio.get_running_loop().create_connection(partial(_itself, stream), host, int(port))
        watching.append(stream)
    until = time.monotonic() + 60
    while any(not stream.events for stream in watching):
        if time.monotonic() > until:
            raise RuntimeError("some streams have not begun")
        await asyncio.sleep(0.05)
    await count((host, int(port)), float(rate), float(seconds), counted)
    await asyncio.sleep(2)
    delays.sort()
    late = {"p50": delays[len(delays) // 2], "p99": delays[len(delays) * 99 // 100]} if delays else {}
    print(json.dumps(late | {"counted": counted.total, "events": sum(stream.events for stream in watching)}))


# The row.


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
            "bench.watching",
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


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
