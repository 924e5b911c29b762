"""Owns how many bytes of answers may wait in this process for clients that do not read them."""

from typing import Final, Protocol

from shared.runtime import metrics

MOST_UNSENT: Final = 67_108_864
"""Bytes for all clients. A tenant may have as many as are still free: half of them if it is alone."""


class UnreadConnection(Protocol):
    """What is asked of a connection whose client does not read its answers."""

    def drop(self) -> None:
        """Close the connection at once, and forget what was to be sent."""


class UnsentBytes:
    """Drops the connections of a tenant that have been unread for longest, if more waits for it than its share."""

    def __init__(self, most: int = MOST_UNSENT) -> None:
        self._most = most
        self._waiting: dict[UnreadConnection, tuple[str, int]] = {}
        """The connections with unsent bytes, in the order in which their clients stopped reading."""
        self._tenants: dict[str, int] = {}
        self.held = 0

    def wait(self, connection: UnreadConnection, tenant: str, size: int) -> None:
        """So many bytes wait for the client of this connection."""
        self.leave(connection)
        self._waiting[connection] = tenant, size
        self._add(tenant, size)
        while self._tenants.get(tenant, 0) > self._most - self.held:
            slowest = next(one for one, (its, _) in self._waiting.items() if its == tenant)
            metrics.CLOSED.labels("unread").inc()
            self.leave(slowest)
            slowest.drop()

    def leave(self, connection: UnreadConnection) -> None:
        """Nothing waits for its client any more."""
        if connection in self._waiting:
            tenant, size = self._waiting.pop(connection)
            self._add(tenant, -size)

    def _add(self, tenant: str, size: int) -> None:
        self.held += size
        self._tenants[tenant] = self._tenants.get(tenant, 0) + size
        if not self._tenants[tenant]:
            del self._tenants[tenant]
