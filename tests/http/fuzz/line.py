"""A connection without a socket: what the client sends goes straight to the server's protocol."""

import asyncio
import socket
from typing import Any, Final

_TAKES: Final = 0.01
"""Virtual seconds after which a slow client has read what was written."""


class _Socket:
    """What the server asks of the socket below a transport."""

    family = socket.AF_INET

    def setsockopt(self, *_: object) -> None:
        """It has no options."""

    def getsockopt(self, *_: object) -> int:
        return 0


class Line(asyncio.Transport):
    """The server's end, and how the client uses the other one. Each piece arrives as it was sent, unless the server did
    not read meanwhile: then all pieces that came arrive together, as from a kernel.
    """

    def __init__(self, protocol: asyncio.Protocol, loop: asyncio.AbstractEventLoop, *, slow: bool = False) -> None:
        """A `slow` client reads each answer a moment after it was written."""
        super().__init__({"peername": ("127.0.0.1", 50_000), "socket": _Socket()})
        self._protocol = protocol
        self._loop = loop
        self._slow = slow
        self._unread = 0
        self._coming = b""
        self._paused = False
        self._closing = False
        self._lost = False
        self.seen = b""
        """All that the server has written."""
        protocol.connection_made(self)

    def send(self, data: bytes) -> None:
        self._coming += data
        self._deliver()

    def half_close(self) -> None:
        """The client sends no more."""
        if not self._closing and not self._protocol.eof_received():
            self.close()

    def hang_up(self) -> None:
        self._closing = True
        self._lose()

    def _deliver(self) -> None:
        if self._coming and not self._paused and not self._closing:
            data, self._coming = self._coming, b""
            self._protocol.data_received(data)

    def _lose(self) -> None:
        if not self._lost:
            self._lost = True
            self._protocol.connection_lost(None)

    def _has_read(self) -> None:
        self._unread = 0
        if not self._lost:
            self._protocol.resume_writing()
            if self._closing:
                self._lose()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._lost or (self._closing and not self._unread):
            return
        self.seen += data
        if self._slow and data:
            if not self._unread:
                self._loop.call_later(_TAKES, self._has_read)
                self._protocol.pause_writing()
            self._unread += len(data)

    def get_write_buffer_size(self) -> int:
        return self._unread

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """They are 0."""

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if not self._unread:
                self._loop.call_soon(self._lose)

    def abort(self) -> None:
        self._closing = True
        self._loop.call_soon(self._lose)

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return not self._paused and not self._closing

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self._loop.call_soon(self._deliver)

    def get_protocol(self) -> Any:
        return self._protocol

    def can_write_eof(self) -> bool:
        return False
