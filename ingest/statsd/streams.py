"""Accepts TCP connections on which StatsD lines come, and limits how much of them is read in one turn of the event
loop.
"""

import asyncio
import re
import socket
from collections import Counter, deque
from collections.abc import Callable
from typing import Final, Protocol

from ingest.statsd.tally import LARGE, MALFORMED, LineError, StatsdTally, read
from shared.config.lists import NameTemplate
from shared.model.words import flaw_of_name
from shared.runtime import metrics

# Takes lines from packets and streams into the tally, and counts those that do not get there.


NAME: Final = "name"
PREFIX: Final = "prefix"
ROOM: Final = "room"


class Intake:
    """Reads each line once, as it comes. Nothing is kept of it but its part of a sum."""

    def __init__(self, template: NameTemplate, tally: StatsdTally, may_use: Callable[[str], bool]) -> None:
        """`may_use` says whether a counter is within the prefixes of the key."""
        self._template = template
        self._tally = tally
        self._may_use = may_use

    def take(self, data: bytes, *, strictly: bool = False) -> bool:
        """Take the lines of a packet, or of a piece of a stream. Empty ones are ignored. If `strictly`, stop behind the
        first malformed one, and return False if there is one.
        """
        lines = [line for line in data.split(b"\n") if line and not line.isspace()]
        lost: Counter[str] = Counter()
        ends = False
        for number, line in enumerate(lines, 1):
            why = self._flaw_of(line)
            if why is not None:
                lost[why] += 1
                if strictly and why == MALFORMED:
                    lines, ends = lines[:number], True
                    break
        metrics.STATSD_LINES.inc(len(lines))
        for why, number in lost.items():
            metrics.STATSD_UNCOUNTED.labels(why).inc(number)
        return not ends

    def refuse(self) -> None:
        metrics.STATSD_LINES.inc()
        metrics.STATSD_UNCOUNTED.labels(MALFORMED).inc()

    def _flaw_of(self, line: bytes) -> str | None:
        """Why the line does not count. None if it is in the tally now."""
        if b"\0" in line:
            return MALFORMED
        try:
            name, delta = read(line.decode().strip(), self._template)
        except UnicodeDecodeError:
            return MALFORMED
        except LineError as error:
            return error.why
        tally = self._tally
        if name not in tally:
            if flaw_of_name(name) is not None:
                return NAME
            if not self._may_use(name):
                return PREFIX
            if tally.is_full():
                return ROOM
        return None if tally.add(name, delta) else LARGE


# Limits how much of StatsD is read in one turn of the event loop: a flood of lines must not hold up requests.


PIECE: Final = 8_192
"""Bytes that a sender gets taken before others have their turn."""
MOST_IN_A_TURN: Final = 16_384
"""This many bytes of all senders, as pieces, are taken before other work of the process gets a turn: a few
milliseconds, if the lines are short.
"""


class Sender(Protocol):
    """Has bytes that wait to be taken."""

    def take(self) -> int:
        """Take a piece. Returns its size, or 0 if there is nothing more: then it waits no longer."""


class Turns:
    """Senders with bytes to take. They take turns, a piece each. There are no shares, as no bytes are refused."""

    def __init__(self) -> None:
        self._waiting: deque[Sender] = deque()

    def wait(self, sender: Sender) -> None:
        """Let the sender take its pieces, soon."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._turn)
        if sender not in self._waiting:
            self._waiting.append(sender)

    def _turn(self) -> None:
        left = MOST_IN_A_TURN
        try:
            while self._waiting and left > 0:
                sender = self._waiting.popleft()
                if size := sender.take():
                    self._waiting.append(sender)
                left -= size
        finally:
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._turn)


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
        """The connections that have been silent for longest come first."""

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
    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray(PIECE)
        self._read = 0
        """Bytes in the buffer that have to be taken before more are read."""
        self._line = b""
        """The line that has begun."""
        self._spoke = False

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
