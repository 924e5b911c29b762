"""A generator in Python, for where wrk is missing and where each answer must be accounted for: it ends by
waiting for the answers to what it has sent. Arguments: HOST PORT CONNECTIONS SECONDS, then those of a shape.
Prints JSON.
"""

import asyncio
import json
import sys
import time
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import cast

from bench.shapes import NAMES

LONGEST_ANSWER = 30.0


def request(method: str, path: str, body: bytes, more: str = "") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{more}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def maker(mode: str, method: str, path: str, file: str, prefix: str) -> Callable[[int], bytes]:
    """The request of each number."""
    body = Path(file).read_bytes() if file else b""
    if mode == "fixed":
        made = request(method, path, body)
        return lambda _: made
    if mode == "ids":
        return lambda number: request(method, path, b'{"id":"%b%d"}' % (prefix.encode(), number))
    if mode == "keys":
        return lambda number: request(method, path, body, f"Idempotency-Key: {prefix}{number}\r\n")
    posts = [request(method, f"{path}{name}", body) for name in range(NAMES)]
    if mode == "names":
        return lambda number: posts[number % NAMES]
    gets = [request("GET", f"{path}{name}", b"") for name in range(NAMES)]
    return lambda number: (gets if number % 2 else posts)[number // 2 % NAMES]


def report(seconds: float, latencies: list[float], *, sent: int, answered: int, refused: int) -> str:
    """The JSON that a generator prints."""
    times = sorted(latencies) or [0.0]
    return json.dumps(
        {
            "seconds": seconds,
            "answered": answered,
            "refused": refused,
            "broken": sent - answered,
            "p50": times[len(times) // 2] * 1000,
            "p99": times[len(times) * 99 // 100] * 1000,
        }
    )


class Answers(asyncio.Protocol):
    """Of a connection with one request at a time."""

    _buffer = b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        if not end:
            return
        at = head.lower().find(b"content-length:")
        length = int(head[at + 15 :].split(b"\r", 1)[0]) if at >= 0 else 0
        if len(rest) >= length:
            self._buffer = b""
            self.answered(good=head.startswith(b"HTTP/1.1 2"))

    @abstractmethod
    def answered(self, *, good: bool) -> None: ...


class Tally:
    """What all connections have seen."""

    def __init__(self, make: Callable[[int], bytes], seconds: float) -> None:
        self.make = make
        self.begun = time.perf_counter()
        self.until = self.begun + seconds
        self.sent = self.answered = self.refused = 0
        self.latencies: list[float] = []

    def report(self) -> str:
        seconds = time.perf_counter() - self.begun
        return report(seconds, self.latencies, sent=self.sent, answered=self.answered, refused=self.refused)


class Connection(Answers):
    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._asked = 0.0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance
        self._send()

    def _send(self) -> None:
        self._asked = time.perf_counter()
        if self._asked >= self._tally.until:
            self._transport.close()
            return
        self._tally.sent += 1
        self._transport.write(self._tally.make(self._tally.sent))

    def answered(self, *, good: bool) -> None:
        self._tally.answered += 1
        self._tally.refused += not good
        self._tally.latencies.append(time.perf_counter() - self._asked)
        self._send()

    def connection_lost(self, _: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


async def main(host: str, port: str, connections: str, seconds: str, *shape: str) -> None:
    loop = asyncio.get_running_loop()
    tally = Tally(maker(*shape), float(seconds))
    made = [await loop.create_connection(lambda: Connection(tally), host, int(port)) for _ in range(int(connections))]
    await asyncio.wait([protocol.ended for _, protocol in made], timeout=float(seconds) + LONGEST_ANSWER)
    print(tally.report())


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:
        asyncio.run(main(*sys.argv[1:]))
    else:
        uvloop.run(main(*sys.argv[1:]))
