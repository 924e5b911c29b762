"""A generator that sends at a steady rate, whatever the answers do: an open loop. A latency is counted from when the
request was due. Arguments: HOST PORT RATE SECONDS, then those of a shape. Prints JSON.
"""

import asyncio
import sys
import time
from collections import deque
from math import ceil
from typing import Final, cast

import uvloop

from bench.plain import LONGEST_ANSWER, Answers, maker, report

MOST_CONNECTIONS: Final = 1_000
IDLE: Final = 10.0
"""Seconds in which each connection is used, at least: a service closes those that it has not heard of for long."""
TICK: Final = 0.001


class Pace:
    """What is due, which connections are free, and what all of them have seen."""

    def __init__(self, rate: float, seconds: float, *shape: str) -> None:
        self._make = maker(*shape)
        self._rate = rate
        self._most = round(rate * seconds)
        self._due: deque[float] = deque()
        self._idle: deque[Connection] = deque()
        self._made = self._sent = self._answered = self._refused = self._broken = 0
        self._latencies: list[float] = []

    async def run(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(min(MOST_CONNECTIONS, ceil(self._rate * IDLE))):
            await loop.create_connection(lambda: Connection(self), host, port)
        self._begun = begun = time.perf_counter()
        while self._made < self._most:
            count = min(int((time.perf_counter() - begun) * self._rate) + 1, self._most)
            self._due.extend(begun + number / self._rate for number in range(self._made, count))
            self._made = count
            self._send()
            await asyncio.sleep(TICK)
        until = time.perf_counter() + LONGEST_ANSWER
        while self._answered + self._broken < self._made and time.perf_counter() < until:  # noqa: ASYNC110 (no event is worth it)
            await asyncio.sleep(TICK)

    def free(self, connection: "Connection") -> None:
        self._idle.append(connection)
        self._send()

    def answered(self, due: float, *, good: bool) -> None:
        self._answered += 1
        self._refused += not good
        self._latencies.append(time.perf_counter() - due)

    def lost(self, connection: "Connection", *, asked: bool) -> None:
        self._broken += asked
        if not asked:
            self._idle.remove(connection)

    def _send(self) -> None:
        while self._due and self._idle:
            self._sent += 1
            self._idle.popleft().send(self._make(self._sent), self._due.popleft())

    def report(self) -> str:
        seconds = time.perf_counter() - self._begun
        return report(seconds, self._latencies, sent=self._made, answered=self._answered, refused=self._refused)


class Connection(Answers):
    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._asked: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance
        self._pace.free(self)

    def send(self, request: bytes, due: float) -> None:
        self._asked = due
        self._transport.write(request)

    def answered(self, *, good: bool) -> None:
        if self._asked is not None:
            due, self._asked = self._asked, None
            self._pace.answered(due, good=good)
            self._pace.free(self)

    def connection_lost(self, _: Exception | None) -> None:
        self._pace.lost(self, asked=self._asked is not None)


async def main(host: str, port: str, rate: str, seconds: str, *shape: str) -> None:
    pace = Pace(float(rate), float(seconds), *shape)
    await pace.run(host, int(port))
    print(pace.report())


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
