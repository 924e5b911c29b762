"""Limits the places of long requests, such as requests that wait or watch: of one tenant, and of all."""

from collections.abc import Iterator
from contextlib import contextmanager

from shared.model.errors import OverloadedError, ShareError


class Places:
    """A tenant may have as many as are still free: half of them if it is alone."""

    def __init__(self, most: int, are: str, instead: str) -> None:
        """`are` says what takes the places, as in "6 ARE"; `instead` says what a client can do if none is left."""
        self._most = most
        self._are = are
        self._instead = instead
        self._tenants: dict[str, int] = {}
        self.held = 0
        """Places that are taken."""

    @contextmanager
    def take(self, tenant: str, number: int = 1) -> Iterator[None]:
        """Have places for the tenant. Raises `ShareError` if that is more than its share, `OverloadedError` if there
        are not so many left.
        """
        held, free = self._tenants.get(tenant, 0), self._most - self.held
        if number > free:
            raise OverloadedError(f"{self.held} {self._are}: try again later, or {self._instead}")
        if held and held + number > free:
            raise ShareError(
                f"{held} {self._are} for this client ({tenant}), which is its share of the {self._most} that may:"
                f" end some of them, or {self._instead}"
            )
        self.held += number
        self._tenants[tenant] = held + number
        try:
            yield
        finally:
            self.held -= number
            self._tenants[tenant] -= number
            if not self._tenants[tenant]:
                del self._tenants[tenant]
