"""Accepts the TCP connections on which StatsD lines come: so many at most, and with lines of a limited length."""

import asyncio
import re
import socket
from typing import Final

from ingest.statsd.intake import Intake
from ingest.statsd.turns import PIECE, Turns
from shared.runtime import metrics

MOST_STREAMS: Final = 100
"""Connections at once. One more closes the one that has been silent for longest."""
LONGEST_LINE: Final = 8_192
"""Bytes of a line. A longer one ends its connection, since nobody knows where the next one begins."""
_HTTP: Final = re.compile(rb"[!-~]+ \S.* HTTP/[0-9.]+\s*")
"""The first line of an HTTP request. A page of any site can make a browser send one, with StatsD lines in its body."""


class Streams:
    """Reads lines from connections. It never answers."""

    def __init__(self, intake: Intake, turns: Turns) -> None:
        self.intake = intake
        self.turns = turns
        self._server: asyncio.Server | None = None
        self._open: dict[_Stream, None] = {}
        """Those that have been silent for longest come first."""

    async def start(self, sock: socket.socket) -> None:
        self._server = await asyncio.get_running_loop().create_server(lambda: _Stream(self), sock=sock)

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for stream in [*self._open]:
            stream.close()

    def spoke(self, stream: "_Stream") -> None:
        """Called when a connection was made, or has sent something."""
        self._open.pop(stream, None)
        self._open[stream] = None
        if len(self._open) > MOST_STREAMS:
            next(iter(self._open)).close()
            metrics.CLOSED.labels("crowded").inc()

    def ended(self, stream: "_Stream") -> None:
        self._open.pop(stream, None)


class _Stream(asyncio.BufferedProtocol):
    """One connection."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray(PIECE)
        self._read = 0
        """Bytes in the buffer that have to be taken before more are read."""
        self._line = b""
        """The line that has begun."""
        self._spoke = False
        """Whether a line has been taken."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment] # of TCP
        self._streams.spoke(self)

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 (asyncio's)
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._transport is None:
            return
        self._streams.spoke(self)
        self._read = nbytes
        self._transport.pause_reading()
        self._streams.turns.wait(self)

    def take(self) -> int:
        """Take what has been read, and read on."""
        size, self._read = self._read, 0
        if not size or self._transport is None:
            return 0
        lines, end, self._line = (self._line + self._buffer[:size]).rpartition(b"\n")
        if end and not self._take(lines):
            self._give_up()
        elif len(self._line) > LONGEST_LINE:
            self._streams.intake.refuse()
            self._give_up()
        elif not self._transport.is_closing():
            self._transport.resume_reading()
        return size

    def _take(self, lines: bytes) -> bool:
        """Count lines up to the first one that is none of StatsD. Returns whether all of them are."""
        lines = lines.lstrip()
        if lines and not self._spoke:
            self._spoke = True
            if _HTTP.fullmatch(lines.partition(b"\n")[0]):
                self._streams.intake.refuse()
                return False
        return self._streams.intake.take(lines, strictly=True)

    def _give_up(self) -> None:
        """Hang up: nothing that follows is what its sender means."""
        self._line = b""
        self.close()

    def eof_received(self) -> None:
        """Close, which asyncio does. The last line may have no end."""

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's)
        self.close()

    def close(self) -> None:
        """Count what has been read, and the line that has begun, and hang up."""
        if self._read:
            self.take()
        transport, self._transport = self._transport, None
        if transport is not None:
            self._streams.ended(self)
            self._take(self._line)
            transport.close()
