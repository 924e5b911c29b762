"""Takes StatsD lines from their sockets, in turns that hold up no request, sends their sums to the broker, and counts
packets that the kernel dropped.
"""

import asyncio
import logging
import os
import re
import shlex
import socket
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from ingest.accept.drafts import MAX_ENTRIES, Batch
from ingest.accept.new_names import NewNames
from ingest.accept.publishing import Publishing
from ingest.access.callers import NONE, Caller
from ingest.access.door import Door
from ingest.access.keys import Key
from ingest.api.routes import find
from ingest.http.problems import Problem
from ingest.statsd.tally import PREFIX, Intake, StatsdTally
from shared.config.lists import name_template
from shared.config.settings import Settings
from shared.model.errors import CountersinkError, OverloadedError, SettingsError
from shared.runtime import metrics
from shared.runtime.ids import mint
from shared.runtime.retry import forever

# Limits how much of StatsD is read in one turn of the event loop: a flood of lines must not hold up requests.


PIECE: Final = 8_192
"""Bytes that a sender gets taken before others have their turn."""
MOST_IN_A_TURN: Final = 16_384
"""This many bytes of all senders, as pieces, are taken before other work of the process gets a turn: a few
milliseconds, if the lines are short.
"""


class Turns:
    """Those who have bytes to take. They take turns, a piece each. There are no shares, as no bytes are refused."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], int]] = deque()

    def wait(self, take: Callable[[], int]) -> None:
        """Call `take` soon, and again until it returns 0: it takes a piece, and returns how large that was."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._turn)
        if take not in self._waiting:
            self._waiting.append(take)

    def _turn(self) -> None:
        left = MOST_IN_A_TURN
        try:
            while self._waiting and left > 0:
                take = self._waiting.popleft()
                if size := take():
                    self._waiting.append(take)
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
        self._streams.turns.wait(self.take)

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


# Finds out how many packets the kernel has dropped, since the buffer of a UDP socket was full.


_TABLES: Final = {socket.AF_INET: Path("/proc/net/udp"), socket.AF_INET6: Path("/proc/net/udp6")}
_INODE: Final = 9


def kernel_drops(sock: socket.socket) -> int:
    """How many since the socket was made; 0 where there is no Linux to ask."""
    try:
        with _TABLES[sock.family].open() as table:
            return drops_in(table, os.fstat(sock.fileno()).st_ino)
    except (OSError, KeyError):
        return 0


def drops_in(table: Iterable[str], inode: int) -> int:
    for row in table:
        columns = row.split()
        if len(columns) > _INODE and columns[_INODE] == str(inode):
            return int(columns[-1])
    return 0


# Sends what is in the tally to the broker, through the door and with the limits of any batch.


_log = logging.getLogger(__name__)

PAUSE: Final = 0.1
"""Seconds between two looks at the tally."""
LONGEST_PAUSE: Final = 5.0
"""Seconds until a batch that was refused is tried again, at most."""
MOST_LINES: Final = 10_000
"""Lines in one batch, so that a backlog is no larger a batch than what others send."""
NEW_NAME: Final = "new-name"
KEY: Final = "key"


class StatsdSender:
    """Sends one batch after the other. A batch has an id, so that it counts once, however often it has to be sent."""

    def __init__(
        self,
        tally: StatsdTally,
        publishing: Publishing,
        new_names: NewNames,
        enter: Callable[[], Caller],
        may_use: Callable[[str], bool],
    ) -> None:
        """`enter` asks the door for the caller, and raises its errors. `may_use`: whether the caller may count this."""
        self._tally = tally
        self._publishing = publishing
        self._new_names = new_names
        self._enter = enter
        self._may_use = may_use
        self._sending = asyncio.Lock()
        self._under_way = 0
        self._told = ""

    @property
    def lines(self) -> int:
        """How many lines are not accepted yet, and not lost."""
        return self._tally.lines + self._under_way

    async def send_all(self) -> None:
        """Return when everything that was in the tally has been accepted, or was refused for good."""
        async with self._sending:
            while self._tally.lines:
                batch = self._tally.take(MAX_ENTRIES, MOST_LINES)
                self._under_way = batch.increments
                await self._send(batch)
                self._under_way = 0

    async def _send(self, batch: Batch) -> None:
        id_ = mint()
        admitted = False
        while batch.increments:
            try:
                caller = self._enter()
                if not admitted:
                    await self._admit(batch, caller)
                    admitted = True
                if batch.increments:
                    await self._publish(batch, caller, id_)
                self._told = ""
                break
            except Problem as problem:
                self._tell(f"StatsD lines are not counted: {problem.detail}")
                self._lose(KEY, batch.increments)
                break
            except CountersinkError as error:
                self._tell(f"StatsD lines can't be published now, and will be tried again: {error}")
                pause = error.retry_after if isinstance(error, OverloadedError) else 1.0
                await asyncio.sleep(min(max(pause, PAUSE), LONGEST_PAUSE))

    async def _admit(self, batch: Batch, caller: Caller) -> None:
        """Take out the counters that are not the key's, and new ones for which there is no room; and count the rest
        against the key's rate.
        """
        foreign = {name for name in batch.sums if not self._may_use(name)}
        self._lose(PREFIX, sum(batch.drop(plain=foreign).values()))
        with self._new_names.trial(caller.new) as trial:
            refused = await self._new_names.admit(batch.changed(), trial)
            self._lose(NEW_NAME, sum(batch.drop(plain=refused).values()))
            caller.spend(batch.increments)

    async def _publish(self, batch: Batch, caller: Caller, id_: str) -> None:
        drafts = self._publishing.add_batch(batch, caller.tenant, 0, caller.batch_id(id_, batch.content))
        await self._publishing.durable(drafts[0])

    def _lose(self, why: str, lines: int) -> None:
        metrics.STATSD_UNCOUNTED.labels(why).inc(lines)

    def _tell(self, text: str) -> None:
        if text != self._told:
            self._told = text
            _log.warning("%s", text)


PACKET: Final = 65_536
MOST_READS: Final = 32_768
"""At most this many packets are read at the end, even if more keep coming."""
LOOK: Final = 1.0
"""Seconds between two looks at what the kernel dropped."""


class StatsdSockets(NamedTuple):
    udp: socket.socket
    tcp: socket.socket


class Statsd:
    """Reads lines from UDP packets and TCP connections. Until it is started it does nothing."""

    def __init__(self, door: Door, publishing: Publishing, new_names: NewNames, settings: Settings) -> None:
        self._door = door
        self._key = settings.statsd_key
        self._template = settings.statsd_name
        self.tally = StatsdTally()
        self._caller: Caller | None = None
        self._told_of: Key | None = None
        self.sender = StatsdSender(self.tally, publishing, new_names, self._enter, self._may_use)
        self._intake = Intake(name_template(self._template), self.tally, self._may_use)
        self._turns = Turns()
        self.streams = Streams(self._intake, self._turns)
        self._udp: socket.socket | None = None
        self._started = asyncio.Event()
        self._rest = b""
        """The lines of a packet that was read and that are not taken yet."""
        self._drops = 0

    async def start(self, sockets: StatsdSockets) -> None:
        """Raises `SettingsError` if the door does not let the key in, or if no line can be the key's."""
        try:
            key = self._enter().key
            if key is not None and not key.has_all(""):
                self._check_prefixes(key)
        except Problem as problem:
            raise SettingsError(f"COUNTERSINK_STATSD_KEY: {problem.detail}") from None
        except OverloadedError:  # the rate of the key is used up for now
            pass
        metrics.STATSD_WAITING.set_function(lambda: self.sender.lines)
        self._udp = sockets.udp
        self._udp.setblocking(False)
        asyncio.get_running_loop().add_reader(self._udp, self._turns.wait, self.take)
        await self.streams.start(sockets.tcp)
        self._started.set()

    async def tend(self) -> None:
        """Send what has come, until cancelled."""
        await self._started.wait()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(forever(self.sender.send_all, PAUSE), name="send StatsD lines")
            tasks.create_task(forever(self._look, LOOK), name="look for dropped packets")

    async def stop(self) -> None:
        """Stop reading, and send what has come. Packets that the kernel still holds are read first."""
        if self._udp is None:
            return
        asyncio.get_running_loop().remove_reader(self._udp)
        self.streams.stop()
        for number in range(MOST_READS):
            if not self.take():
                break
            if number % 64 == 0:
                await asyncio.sleep(0)
        await self._look()
        self._udp = None
        try:
            await self.sender.send_all()
        finally:
            if lines := self.sender.lines:
                metrics.STATSD_UNCOUNTED.labels("stop").inc(lines)
                _log.error("%d StatsD lines are LOST: they could not be published before the end", lines)

    async def _look(self) -> None:
        if self._udp is not None:
            drops = kernel_drops(self._udp)
            metrics.STATSD_DROPPED.inc(max(drops - self._drops, 0))
            self._drops = drops

    def take(self) -> int:
        """Take a packet, or a piece of a large one. Returns its size, which is never 0 of a packet."""
        if self._udp is None:
            return 0
        if not self._rest:
            try:
                packet = self._udp.recv(PACKET)
            except BlockingIOError:
                return 0
            if b"\0" in packet:  # STUN, with which any web page can make a browser send text over UDP
                self._intake.refuse()
                return len(packet)
            self._rest = packet + b"\n"
        size = self._rest.find(b"\n", min(PIECE, len(self._rest)) - 1) + 1
        piece, self._rest = self._rest[:size], self._rest[size:]
        self._intake.take(piece)
        return size

    def _enter(self) -> Caller:
        """Pass the door, as a request that counts."""
        said = NONE._replace(authorization=(f"Bearer {self._key}",)) if self._key else NONE
        self._caller = self._door.enter(find("POST", "/v1/increments"), said, "")
        return self._caller

    def _check_prefixes(self, key: Key) -> None:
        template = name_template(self._template)
        if not any(map(template.may_begin_with, key.prefixes)):
            prefixes = " or ".join(map(repr, key.prefixes))
            raise SettingsError(
                f"COUNTERSINK_STATSD_KEY: no StatsD line can count, since the key {key.id} may only use counters whose"
                f" names begin with {prefixes}, and COUNTERSINK_STATSD_NAME={self._template} makes no such name (the"
                f" name in a line ends at its first ':'). {self._remedy(key)}"
            )

    def _may_use(self, name: str) -> bool:
        """Whether the counter is the key's. If not, it says so once, since all lines of a sender may be lost."""
        if self._caller is None or self._caller.has(name):
            return True
        key = self._caller.key
        if key is not None and key != self._told_of:
            self._told_of = key
            _log.warning(
                "a StatsD line was not counted: the key %s may not use the counter %r. %s. More such lines are only"
                " counted, in countersink_statsd_uncounted_lines_total",
                *(key.id, name[:100], self._remedy(key)),
            )
        return False

    def _remedy(self, key: Key) -> str:
        setting = f"COUNTERSINK_STATSD_NAME={shlex.quote(key.prefixes[0] + self._template)}"
        return f"Put a prefix of the key before the names, with {setting}, or give the key another prefix"
