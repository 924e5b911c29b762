"""Owns the open connections of one server: how many there may be, and which are closed to make room for others."""

import asyncio
import resource
from heapq import nsmallest
from typing import Final, Protocol

from ingest.server.held_bytes import HeldBytes
from shared.runtime import metrics

LOOK: Final = 1.0
"""Seconds between two checks of all connections."""
SPARE: Final = 64
"""Connections beyond the limit that are accepted only to be answered 503."""
_RESERVE: Final = 256
"""File descriptors that are kept for the data, the broker and the store."""
_PART: Final = 32
"""1/32 of all connections are closed when one has to be, since finding them costs more than closing them."""


class LimitedConnection(Protocol):
    """What is asked of a connection."""

    def claim(self) -> tuple[int, float] | None:
        """How dispensable it is: the least is closed first. None while the client waits for an answer."""

    def is_busy(self) -> bool:
        """Whether a request is on the fast path."""

    def look(self, now: float) -> None:
        """Close the connection if its client has been too slow."""

    def drop(self) -> None:
        """Close the connection at once."""


class ConnectionLimit:
    """Closes connections when there are too many. Those of clients that send slowly or do not read are closed first,
    then those that are idle; of each kind those that have been unused for longest.
    """

    def __init__(self, most: int, loop: asyncio.AbstractEventLoop) -> None:
        self.most = most
        self._loop = loop
        self.held = HeldBytes()
        self._members: dict[LimitedConnection, None] = {}
        self._looked_in_vain = 0.0
        self._timer = loop.call_later(LOOK, self._look)

    def __len__(self) -> int:
        return len(self._members)

    def busy(self) -> int:
        """How many connections have a request on the fast path."""
        return sum(member.is_busy() for member in self._members)

    def enter(self, member: LimitedConnection) -> bool:
        """Add a connection. False if there is no room: then it is dropped, or may be answered 503 and nothing else."""
        welcome = len(self._members) < self.most or self._make_room()
        if not welcome:
            metrics.CLOSED.labels("crowded").inc()
        if len(self._members) < self.most + SPARE:
            self._members[member] = None
        else:
            member.drop()
        return welcome

    def leave(self, member: LimitedConnection) -> None:
        self._members.pop(member, None)

    def stop(self) -> None:
        self._timer.cancel()

    def _make_room(self) -> bool:
        now = self._loop.time()
        if now - self._looked_in_vain < LOOK / 10:
            return False
        claims = [(claim, id(member), member) for member in self._members if (claim := member.claim()) is not None]
        for _, _, member in nsmallest(1 + self.most // _PART, claims):
            metrics.CLOSED.labels("crowded").inc()
            self.leave(member)
            member.drop()
        if len(self._members) < self.most:
            return True
        self._looked_in_vain = now
        return False

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK, self._look)
        now = self._loop.time()
        for member in list(self._members):
            member.look(now)


def room_for(wanted: int) -> int:
    """How many of the wanted connections this process can have. Raises its limit of open files if it is allowed to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + SPARE + _RESERVE
    if soft < needed:
        soft = min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(wanted, max(soft - SPARE - _RESERVE, soft // 4))
