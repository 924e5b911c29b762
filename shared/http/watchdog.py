"""The watchdog of one server: how many connections it may have, how many bytes it may hold for them, and how slow their
clients may be. It looks at all connections once a second.

Places. If there are too many connections, some are closed for the newcomer: first those of clients that send slowly or
do not read, then idle ones, then streams. Of each kind, those of the client that has the most go first, the oldest of
them before the others. If none can be closed, as all clients wait for an answer, the newcomer gets one of `SPARE`
places that are kept: there it is answered one request, if that is a probe or counts, and else 503. There are no shares,
which would refuse a client connections while idle ones can be closed.
"""

import asyncio
import resource
from collections import Counter
from collections.abc import Callable
from heapq import nsmallest
from typing import Any, Final, Protocol

from shared.http import answers
from shared.http.front import KNOWN, REPEATED, Front, Plain
from shared.http.heads import Heads
from shared.http.shares import Shares
from shared.runtime import metrics
from shared.runtime.retry import set_within

LOOK: Final = 1.0
"""Seconds between two looks at all connections."""
UNREAD: Final = 30.0
"""Seconds for which a client may leave unread what the kernel could not take. It gets no other answer meanwhile."""
ADMINS: Final = 100
"""Connections where administrators and metrics have a port of their own."""
SPARE: Final = 64
"""Connections beyond the limit."""
_RESERVE: Final = 256
"""File descriptors that are kept for the data, the broker and the store."""
_PART: Final = 32
"""1/32 of all connections are closed when one has to be, since finding them costs more than closing them."""
MOST_HELD: Final = 67_108_864
"""Bytes held for all clients, in shares for tenants."""
UNCOUNTED: Final = 4_096
"""This many bytes behind a request are not counted."""

Refuse = Callable[[int, str, Front], bytes]
"""The answer to what is not HTTP: its status, why, and the connection."""


def problem(status: int, detail: str, _: Front | None = None) -> bytes:
    return answers.problem(status, detail)


class Watchdog:
    """What the connections of one server share."""

    problem = staticmethod(problem)

    def __init__(
        self,
        aiohttp: Callable[[], asyncio.Protocol],
        most: int,
        head_timeout: float,
        idle_timeout: float,
        *,
        plain: Plain | None = None,
        refuse: Refuse = problem,
    ) -> None:
        """`aiohttp` makes the protocol to which requests are lent. `most`: connections, besides `SPARE`."""
        self.aiohttp = aiohttp
        self.plain = plain
        self.refuse = refuse
        self.heads = Heads(None if plain is None else plain.head)
        self.known: dict[bytes, Any] = {}
        """Plain requests by their bytes."""
        self.draining = False
        self.most = most
        self.held = HeldBytes()
        self.time = asyncio.get_running_loop().time
        self.fronts: dict[Front, None] = {}
        self._head_timeout = head_timeout
        self._idle_timeout = idle_timeout
        self._looked_in_vain = 0.0
        self._empty: asyncio.Event = asyncio.Event()
        self._timer = self._later()

    def _later(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(LOOK, self._look)

    def remember(self, data: bytes, request: Any) -> None:
        if len(data) <= REPEATED:
            if len(self.known) >= KNOWN:
                self.known.clear()
            self.known[data] = request

    def answering(self) -> int:
        return sum(front.is_answering() for front in self.fronts)

    def enter(self, front: Front) -> None:
        """Add a connection, which may be closed at once or become a crowded one."""
        if len(self.fronts) >= self.most and not self._make_room():
            metrics.CLOSED.labels("crowded").inc()
            front.is_crowded = True
        if self.draining or len(self.fronts) >= self.most + SPARE:
            front.drop()
        else:
            self.fronts[front] = None

    def leave(self, front: Front) -> None:
        self.fronts.pop(front, None)
        self.held.forget(front)
        if not self.fronts:
            self._empty.set()

    def hold(self, front: Front, unread: int, behind: int) -> None:
        """Hold this many bytes for this connection now."""
        self.held.hold(front, front.tenant, unread + (behind if behind > UNCOUNTED else 0))

    def _make_room(self) -> bool:
        now = self.time()
        if now - self._looked_in_vain < LOOK / 10:
            return False
        claims = [(*claim, front) for front in self.fronts if (claim := front.claim()) is not None]
        counts = Counter((kind, front.tenant) for kind, _, front in claims)
        by_claim = [(kind, -counts[kind, front.tenant], since, id(front), front) for kind, since, front in claims]
        for *_, front in nsmallest(1 + self.most // _PART, by_claim):
            metrics.CLOSED.labels("crowded").inc()
            self.leave(front)
            front.drop()
        if len(self.fronts) < self.most:
            return True
        self._looked_in_vain = now
        return False

    def _look(self) -> None:
        self._timer = self._later()
        now = self.time()
        for front in list(self.fronts):
            if why := front.look(now, self._head_timeout, self._idle_timeout, UNREAD):
                metrics.CLOSED.labels(why).inc()

    async def drain(self, timeout: float) -> None:
        """Close each connection when its request is answered, for this many seconds at most."""
        self.draining = True
        self.known.clear()
        for front in list(self.fronts):
            front.drain()
        self._empty.clear()
        if self.fronts:
            await set_within(self._empty, timeout)

    def stop(self) -> None:
        self._timer.cancel()
        for front in list(self.fronts):
            front.drop()


class Holding(Protocol):
    """A connection for which something is held."""

    def drop(self) -> None:
        """Close the connection at once, and forget what is held for it."""


class HeldBytes(Shares):
    """If more is held for a tenant than its share, drops those of its connections that have been slowest. The bytes are
    there already, so even the only connection of a tenant is dropped if it exceeds the share.
    """

    def __init__(self, most: int = MOST_HELD) -> None:
        super().__init__(most)
        self._fronts: dict[Holding, tuple[str, int]] = {}
        """The connections for which something is held, those for which nothing was added for longest first."""

    def hold(self, front: Holding, tenant: str, size: int) -> None:
        """Hold this many bytes for this connection now."""
        self.forget(front)
        if not size:
            return
        self._fronts[front] = tenant, size
        self.enter(tenant, size)
        while self.excess(tenant, 0):
            slowest = next(one for one, (its, _) in self._fronts.items() if its == tenant)
            metrics.CLOSED.labels("memory").inc()
            self.forget(slowest)
            slowest.drop()

    def forget(self, front: Holding) -> None:
        """Nothing is held for it any more."""
        if front in self._fronts:
            self.leave(*self._fronts.pop(front))


def room_for(wanted: int, others: int = 0) -> int:
    """How many of the wanted connections this process can have, besides `others`. Raises its limit of open files if it
    is allowed to.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    kept = others + SPARE + _RESERVE
    if soft < wanted + kept:
        soft = min(wanted + kept, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(wanted, max(soft - kept, soft // 4))
