"""Owns the TCP connections on which StatsD lines come: how many there are, and how long a line may be."""

import asyncio
import socket
from typing import Final

from ingest.statsd.intake import Intake
from ingest.statsd.lines import MALFORMED
from shared.runtime import metrics

MOST_STREAMS: Final = 100
"""Connections at once. One more closes the one that has been silent for longest."""
LONGEST_LINE: Final = 8_192
"""Bytes of a line. A longer one ends its connection, since nobody knows where the next one begins."""
_PIECE: Final = 8_192
"""Bytes that are read at once. What comes in one piece is counted before other work gets a turn."""


class Streams:
    """Reads lines from connections. It never answers."""

    def __init__(self, intake: Intake) -> None:
        self.intake = intake
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
        self._buffer = bytearray(_PIECE)
        self._line = b""
        """The line that has begun."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment] # of TCP
        self._streams.spoke(self)

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 (asyncio's)
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._transport is None:
            return
        self._streams.spoke(self)
        lines, end, self._line = (self._line + self._buffer[:nbytes]).rpartition(b"\n")
        if end:
            self._streams.intake.take(lines)
        if len(self._line) > LONGEST_LINE:
            self._line = b""
            metrics.STATSD_LINES.inc()
            metrics.STATSD_UNCOUNTED.labels(MALFORMED).inc()
            self.close()

    def eof_received(self) -> None:
        """Close, which asyncio does. The last line may have no end."""

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's)
        self.close()

    def close(self) -> None:
        """Count the line that has begun, and hang up."""
        transport, self._transport = self._transport, None
        if transport is not None:
            self._streams.ended(self)
            self._streams.intake.take(self._line)
            transport.close()
