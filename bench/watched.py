"""A generator that counts at a steady rate, and watches: so many streams of one counter, and as many of different ones.

Arguments: HOST PORT RATE SECONDS STREAMS. Prints JSON: how long after its 202 an increment was in an event.
"""

import asyncio
import json
import re
import sys
import time
from functools import partial
from typing import Final, cast

import uvloop

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


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
