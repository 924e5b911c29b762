"""Owns the open connections of one server: how many there may be, and who has to go for a new one."""

import asyncio
import resource
from heapq import nsmallest
from typing import Final, Protocol

from shared.runtime import metrics

LOOK: Final = 1.0
"""Seconds between two looks at all connections."""
SPARE: Final = 64
"""Connections beyond the most, which are only told that there are too many."""
_RESERVE: Final = 256
"""File descriptors for everything but clients: the data, the broker, the store."""
_PART: Final = 32
"""Of all connections, this part goes at once when one has to: looking for them costs more than closing them."""


class LimitedConnection(Protocol):
    """A connection, as it is seen here."""

    def claim(self) -> tuple[int, float] | None:
        """The least goes first; None while the client waits for us."""

    def look(self, now: float) -> None:
        """Close it if it has kept us waiting for too long."""

    def drop(self) -> None:
        """Close it at once."""


class Crowd:
    """Whoever waits for nothing but his own client has to go when there are too many: who sends slowly or does not read
    first, then who is idle, the longest of each.
    """

    def __init__(self, most: int, loop: asyncio.AbstractEventLoop) -> None:
        self.most = most
        self._loop = loop
        self._members: dict[LimitedConnection, None] = {}
        self._looked_in_vain = 0.0
        self._timer = loop.call_later(LOOK, self._look)

    def __len__(self) -> int:
        return len(self._members)

    def enter(self, member: LimitedConnection) -> bool:
        """Whether it may ask for something; if not, it may be told so, or is dropped."""
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
    """How many clients this process can have at once. Its limit of open files is raised for them, if it may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + SPARE + _RESERVE
    if soft < needed:
        soft = min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(wanted, max(soft - SPARE - _RESERVE, soft // 4))
