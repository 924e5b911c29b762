"""Owns how many bytes this process may hold for its connections: answers that are not read, and requests that came
behind another one.
"""

from typing import Final, Protocol

from shared.runtime import metrics

MOST_HELD: Final = 67_108_864
"""Bytes for all clients. A tenant may have as many as are still free: half of them if it is alone."""
FREE: Final = 4_096
"""So many bytes behind a request are not counted."""


class HoldingConnection(Protocol):
    """What is asked of a connection for which something is held."""

    def drop(self) -> None:
        """Close the connection at once, and forget what is held for it."""


class HeldBytes:
    """If more is held for a tenant than its share, drops those of its connections that have been slowest."""

    def __init__(self, most: int = MOST_HELD) -> None:
        self._most = most
        self._connections: dict[HoldingConnection, tuple[str, int]] = {}
        """The connections for which something is held, those for which nothing was added for longest first."""
        self._tenants: dict[str, int] = {}
        self.held = 0

    def hold(self, connection: HoldingConnection, tenant: str, size: int) -> None:
        """So many bytes are held for this connection now."""
        self.leave(connection)
        if not size:
            return
        self._connections[connection] = tenant, size
        self._add(tenant, size)
        while self._tenants.get(tenant, 0) > self._most - self.held:
            slowest = next(one for one, (its, _) in self._connections.items() if its == tenant)
            metrics.CLOSED.labels("memory").inc()
            self.leave(slowest)
            slowest.drop()

    def leave(self, connection: HoldingConnection) -> None:
        """Nothing is held for it any more."""
        if connection in self._connections:
            tenant, size = self._connections.pop(connection)
            self._add(tenant, -size)

    def _add(self, tenant: str, size: int) -> None:
        self.held += size
        self._tenants[tenant] = self._tenants.get(tenant, 0) + size
        if not self._tenants[tenant]:
            del self._tenants[tenant]
