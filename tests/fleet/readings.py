"""What readings have to keep to, by what their pair promises."""

from datetime import datetime
from typing import Any

from tests.fleet.pairs import Pair

CLOSE = 0.002
"""Seconds between two instants that milliseconds can't tell apart."""


class Readings:
    """All that were taken of one set of counters, from whatever process."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._applied: dict[str, list[tuple[float, int]]] = {}
        self.count = 0

    def check(self, reading: dict[str, Any], answered: int, tried: int) -> None:
        """`answered` before the read began; `tried` when it had ended. No delta is negative."""
        self.count += 1
        value, applied = reading["value"], reading["applied"]
        assert value == applied + reading["pending"]
        assert reading["exact"] is self._pair.exact
        if self._pair.once:
            assert value <= tried, (reading, tried)
        if self._pair.exact:
            assert answered <= value, (reading, answered)
        if self._pair.instants:
            self._in_order(reading["name"], datetime.fromisoformat(reading["as_of"]).timestamp(), applied)

    def _in_order(self, name: str, time: float, applied: int) -> None:
        """What is applied never becomes less, as the store's clock goes, whoever reads."""
        before = self._applied.setdefault(name, [])
        for other_time, other in before:
            if other_time < time - CLOSE:
                assert other <= applied, (name, other_time, other, time, applied)
            elif other_time > time + CLOSE:
                assert applied <= other, (name, other_time, other, time, applied)
        before.append((time, applied))
        del before[:-200]
