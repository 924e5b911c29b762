"""Counts operations of Datastore, and what they cost. Pure."""

from typing import Final, NamedTuple

from countersink_server.planning.measured import ORIGINAL_READS, ORIGINAL_WRITES

MONTH: Final = 30 * 86_400
"""Seconds."""
PRICED: Final = 100_000
"""Operations that a price is for."""


class Prices(NamedTuple):
    """The lowest and the highest price of `PRICED` operations, in dollars: regions differ."""

    write: tuple[float, float]
    read: tuple[float, float]
    delete: tuple[float, float]


class Operations(NamedTuple):
    """Operations per second."""

    writes: float
    reads: float
    deletes: float

    @property
    def all(self) -> float:
        return sum(self)

    def a_month(self, prices: Prices) -> tuple[float, float]:
        """The lowest and the highest cost in dollars."""
        low, high = (sum(n * pair[end] for n, pair in zip(self, prices, strict=True)) for end in (0, 1))
        return low * MONTH / PRICED, high * MONTH / PRICED


def of_original(rate: float) -> Operations:
    """Google's example: a transaction for each increment."""
    return Operations(rate * ORIGINAL_WRITES, rate * ORIGINAL_READS, 0.0)
