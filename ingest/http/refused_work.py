"""Refuses the bodies of a tenant if too much of what it sent was decoded and parsed in vain. Pure."""

from collections.abc import Callable
from typing import Final

from shared.model.errors import ShareError

RATE: Final = 1_048_576
"""Bytes of refused bodies a second that a tenant may send for long."""
PER_ITEM: Final = 64
"""A refused item of a batch costs as much as so many bytes."""
FREE: Final = 1_024
"""Bytes. A body that is not compressed and no larger costs no more than any other request."""
MOST_TENANTS: Final = 10_000


class RefusedWork:
    """A tenant's debt grows with what is refused, and shrinks with time."""

    def __init__(self, most: int, seconds: Callable[[], float]) -> None:
        """`most`: the largest debt with which a tenant is still served."""
        self._most = most
        self._seconds = seconds
        self._debts: dict[str, tuple[float, float]] = {}
        """The debt of each tenant, and since when it has been that."""

    def check(self, tenant: str) -> None:
        """Raise `ShareError` if too much of this tenant was refused lately."""
        debt = self._debt(tenant)
        if debt > self._most:
            raise ShareError(
                f"too many requests of this client ({tenant}) were refused lately: read the answers, and correct the"
                " requests before you send them again",
                (debt - self._most) / RATE,
            )

    def charge(self, tenant: str, size: int, items: int = 0) -> None:
        """So many bytes of a body, with so many items, were refused."""
        cost = size + PER_ITEM * items
        if cost <= FREE:
            return
        debt = self._debt(tenant) + cost
        self._debts.pop(tenant, None)
        if len(self._debts) >= MOST_TENANTS:
            self._debts = {its: debt for its, debt in self._debts.items() if self._debt(its)}
        if len(self._debts) >= MOST_TENANTS:
            self._debts.pop(next(iter(self._debts)))
        self._debts[tenant] = debt, self._seconds()

    def _debt(self, tenant: str) -> float:
        debt, since = self._debts.get(tenant, (0.0, 0.0))
        return max(debt - RATE * (self._seconds() - since), 0.0)
