"""Divides limits among those who use them. `Shares` is the one rule of a fair share, which admission, bodies, places,
unread bytes, pending bytes and new counters follow. Tenants take turns with `FairLock` where nobody is refused.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from ipaddress import IPv6Address
from typing import Final

from shared.model.errors import OverloadedError, ShareError


def excess_of(own: int, more: int, left: int) -> int:
    """The rule of `Shares` as a number, for callers that know what is left: by how much a holder of `own`
    would exceed its share with `more`. `left` is what would be left for others then.
    """
    return own + more - left if own and own + more > left else 0


class Shares:
    """Who holds how much of a limit, and how much more it may have.

    The rule: a holder may have as much as is then left for others. Whoever holds nothing gets in while there is room.

    So one alone gets half of the limit, and each of two that begin together a third. Nobody has to know how many will
    come: what the first ones leave is divided in the same way. Six clients that come one after the other, and each take
    of 12 places what they get:

    >>> places = Shares(12)
    >>> def take(client: str) -> int:
    ...     while places.left(1) >= 0 and not places.excess(client, 1):
    ...         places.enter(client, 1)
    ...     return places.held_by(client)
    >>> {client: take(client) for client in "abcdef"}
    {'a': 6, 'b': 3, 'c': 1, 'd': 1, 'e': 1, 'f': 0}

    With one more, "a" would hold 7 while 5 are left. "b" to "e" began later, and got less. "f" finds no room. A holder
    keeps what it has, even if its share becomes smaller.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.holders: dict[str, int] = {}

    def held_by(self, holder: str) -> int:
        return self.holders.get(holder, 0)

    def left(self, more: int) -> int:
        """What is left for others if a holder gets `more`. Below 0, there is no room for `more`."""
        return self.limit - self.held - more

    def excess(self, holder: str, more: int) -> int:
        """By how much the holder would exceed its share with `more`; 0 if it may have `more`. It may have it once so
        much has left. With `more` 0: by how much it exceeds its share now.
        """
        return excess_of(self.held_by(holder), more, self.left(more))

    def enter(self, holder: str, more: int) -> None:
        """Give the holder so much more, without asking whether it may have it."""
        self.held += more
        self.holders[holder] = self.holders.get(holder, 0) + more

    def leave(self, holder: str, less: int) -> None:
        """Take so much back."""
        self.enter(holder, -less)
        if not self.holders[holder]:
            del self.holders[holder]


class Places(Shares):
    """Tenants take places for as long as a request lasts. Their shares are rounded up to a whole request, as there may
    be room for few: so a client that is alone may have two of three.
    """

    def __init__(self, most: int, are: str, instead: str) -> None:
        """`are` says what takes the places, as in "6 ARE"; `instead` says what a client can do if none is left."""
        super().__init__(most)
        self._are = are
        self._instead = instead

    @contextmanager
    def take(self, tenant: str, number: int = 1) -> Iterator[None]:
        """Have places for the tenant. Raises `ShareError` if that is more than its share, `OverloadedError` if there
        are not this many left.
        """
        if self.left(number) < 0:
            raise OverloadedError(f"{self.held} {self._are}: try again later, or {self._instead}")
        if excess_of(self.held_by(tenant), number, self.left(0)):
            raise ShareError(
                f"{self.held_by(tenant)} {self._are} for this client ({tenant}), which is its share of the"
                f" {self.limit} that may: end some of them, or {self._instead}"
            )
        self.enter(tenant, number)
        try:
            yield
        finally:
            self.leave(tenant, number)


# Turns for which tenants queue: each has a queue of its own, and the queues take turns.


class FairLock:
    """A lock that is fair between tenants: one with many waiters gets no more turns than one with a single waiter. It
    has a place, or several. There are no shares of turns, as nobody is refused one.
    """

    def __init__(self, places: int = 1) -> None:
        self._free = places
        self._rows: dict[str, deque[asyncio.Future[None]]] = {}
        """The waiters of each tenant. The tenants are in the order of their turns."""

    @asynccontextmanager
    async def of(self, tenant: str) -> AsyncIterator[None]:
        if self._free:
            self._free -= 1
        else:
            await self._wait(tenant)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, tenant: str) -> None:
        """Wait for a turn. A place is taken when this returns."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._rows.setdefault(tenant, deque()).append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._pass_on()  # the turn was given to a waiter that has ended
            raise

    def _pass_on(self) -> None:
        while self._rows:
            tenant = next(iter(self._rows))
            row = self._rows.pop(tenant)
            turn = row.popleft()
            if row:
                self._rows[tenant] = row  # its next turn comes after all others
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


# Tenants: clients that have one share of what is limited.


LOCAL: Final = "local"
"""The tenant of a peer without an address, such as one behind a Unix socket."""
_NETWORK: Final = 64
"""Bits of an IPv6 address that tell clients apart. A client can choose the other bits as it likes."""


def peer_of(transport: asyncio.BaseTransport) -> str:
    """The address of the other end of a connection, without its port; empty if it has none."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) and peer else ""


def tenant_of(peer: str) -> str:
    """The tenant at an address: the address itself, or its network for IPv6."""
    if not peer:
        return LOCAL
    if ":" not in peer:
        return peer
    address = IPv6Address(peer)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    network = int(address) >> (128 - _NETWORK) << (128 - _NETWORK)
    return f"{IPv6Address(network)}/{_NETWORK}"
