"""Takes StatsD lines from their sockets, and their sums to the broker."""

import asyncio
import logging
import socket
from typing import Final, NamedTuple

from ingest.access.caller import Caller
from ingest.access.credentials import NONE
from ingest.access.door import Door
from ingest.http.problems import Problem
from ingest.publishing.new_names import NewNames
from ingest.publishing.publishing import Publishing
from ingest.statsd.intake import Intake
from ingest.statsd.kernel_drops import kernel_drops
from ingest.statsd.sender import PAUSE, StatsdSender
from ingest.statsd.streams import Streams
from ingest.statsd.tally import StatsdTally
from ingest.statsd.turns import PIECE, Turns
from shared.config.name_template import name_template
from shared.config.settings import Settings
from shared.model.errors import OverloadedError, SettingsError
from shared.runtime import metrics
from shared.runtime.supervise import forever

_log = logging.getLogger(__name__)

PACKET: Final = 65_536
"""Bytes of the largest packet."""
MOST_READS: Final = 32_768
"""So many packets are read at the end, even if they go on to come."""
LOOK: Final = 1.0
"""Seconds between two looks at what the kernel dropped."""


class StatsdSockets(NamedTuple):
    """What it listens on, both bound to one port."""

    udp: socket.socket
    tcp: socket.socket


class Statsd:
    """Reads lines from UDP packets and TCP connections. Until it is started it does nothing."""

    def __init__(self, door: Door, publishing: Publishing, new_names: NewNames | None, settings: Settings) -> None:
        self._door = door
        self._key = settings.statsd_key
        self.tally = StatsdTally()
        self._caller: Caller | None = None
        self.sender = StatsdSender(self.tally, publishing, new_names, self._enter)
        self._intake = Intake(name_template(settings.statsd_name), self.tally, self._may_use)
        self._turns = Turns()
        self.streams = Streams(self._intake, self._turns)
        self._udp: socket.socket | None = None
        self._rest = b""
        """The lines of a packet that was read and that are not taken yet."""
        self._drops = 0

    async def start(self, sockets: StatsdSockets) -> None:
        """Raises `SettingsError` if the door does not let the key in."""
        try:
            self._enter()
        except Problem as problem:
            raise SettingsError(f"COUNTERSINK_STATSD_KEY: {problem.detail}") from None
        except OverloadedError:  # the rate of the key is used up for now
            pass
        metrics.STATSD_WAITING.set_function(lambda: self.sender.lines)
        self._udp = sockets.udp
        self._udp.setblocking(False)
        asyncio.get_running_loop().add_reader(self._udp, self._readable)
        await self.streams.start(sockets.tcp)

    async def tend(self) -> None:
        """Send what has come, until cancelled."""
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

    def _readable(self) -> None:
        self._turns.wait(self)

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
        self._caller = self._door.enter("POST", "/v1/increments", "", said, "")
        return self._caller

    def _may_use(self, name: str) -> bool:
        return self._caller is None or self._caller.may_use(name)
