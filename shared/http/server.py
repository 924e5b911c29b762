"""The server: listens on a socket, answers requests, and stops when they are answered. It decides how many connections
there may be, how many bytes are held for them, and how slow their clients may be. It looks at all once a second.

Places. If there are too many connections, some are closed for the newcomer: first those of clients that send slowly or
do not read, then idle ones, then streams. Of each kind, those of the client that has the most go first, the oldest of
them before the others. If none can be closed, as all clients wait for an answer, the newcomer gets one of `SPARE`
places that are kept: there it is answered one request, if that is a probe or counts, and else 503. There are no shares,
which would refuse a client connections while idle ones can be closed.
"""

import asyncio
import resource
import socket
from collections import Counter
from collections.abc import Callable
from functools import partial
from heapq import nsmallest
from typing import Any, Final

from aiohttp import web

from shared.http import answers
from shared.http.front import KNOWN, LINGER, REPEATED, Front, Handler, Plain, lending
from shared.http.heads import LONGEST_HEAD, Heads
from shared.http.shares import Shares
from shared.runtime import metrics
from shared.runtime.retry import set_within

BACKLOG: Final = 1024
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
_NEVER: Final = 1e9
"""Seconds: the front closes idle connections, not aiohttp."""
_CANCELLED: Final = 0.1
"""Seconds for handlers to end that were cancelled."""

Refuse = Callable[[int, str, Front], bytes]
"""The answer to what is not HTTP: its status, why, and the connection."""


def _problem(status: int, detail: str, _: Front) -> bytes:
    return answers.problem(status, detail)


class HttpServer:
    """Answers requests on a bound socket from `start` until `stop`. It has what its connections share."""

    def __init__(
        self,
        handler: Handler,
        most: int,
        head_timeout: float,
        idle_timeout: float,
        *,
        plain: Plain | None = None,
        refuse: Refuse = _problem,
    ) -> None:
        """`handler` answers what is not `plain`; `refuse` makes the answer to what is not HTTP. `most`: connections,
        besides `SPARE`.
        """
        self.aiohttp = web.Server(
            lending(handler),
            access_log=None,
            keepalive_timeout=_NEVER,
            lingering_time=LINGER,
            max_line_size=LONGEST_HEAD,
            max_field_size=LONGEST_HEAD,
            auto_decompress=False,
        )
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
        self._listening: asyncio.AbstractServer | None = None
        self._timer = self._later()

    async def start(self, sock: socket.socket) -> None:
        make = partial(Front, self)
        self._listening = await asyncio.get_running_loop().create_server(make, sock=sock, backlog=BACKLOG)

    async def stop(self, timeout: float) -> None:
        """Listen no more, and end all connections: those with a request when it is answered, or after this time."""
        if self._listening is not None:
            self._listening.close()
        self.draining = True
        self.known.clear()
        try:
            for front in list(self.fronts):
                front.drain()
            self._empty.clear()
            if self.fronts:
                await set_within(self._empty, timeout)
            await self.aiohttp.shutdown(_CANCELLED)
        finally:
            self._timer.cancel()
            for front in list(self.fronts):
                front.drop()

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


class HeldBytes(Shares):
    """If more is held for a tenant than its share, drops those of its connections that have been slowest. The bytes are
    there already, so even the only connection of a tenant is dropped if it exceeds the share.
    """

    def __init__(self, most: int = MOST_HELD) -> None:
        super().__init__(most)
        self._fronts: dict[Front, tuple[str, int]] = {}
        """The connections for which something is held, those for which nothing was added for longest first."""

    def hold(self, front: Front, unread: int, behind: int) -> None:
        """Hold this many bytes for this connection now: of answers, and behind its request."""
        self.forget(front)
        size = unread + (behind if behind > UNCOUNTED else 0)
        if not size:
            return
        tenant = front.tenant
        self._fronts[front] = tenant, size
        self.enter(tenant, size)
        while self.excess(tenant, 0):
            slowest = next(one for one, (its, _) in self._fronts.items() if its == tenant)
            metrics.CLOSED.labels("memory").inc()
            self.forget(slowest)
            slowest.drop()

    def forget(self, front: Front) -> None:
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


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at this address. Port 0 takes a free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    return socket.create_server((host, port), family=family, backlog=BACKLOG, dualstack_ipv6=both)
