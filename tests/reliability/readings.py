"""What readings have to keep to, by what their pair promises and what they say of themselves."""

from datetime import datetime
from typing import Any

from tests.processes.fleet.pairs import Pair
from tests.processes.fleet.truth import split

CLOSE = 0.002
"""Seconds between two instants that milliseconds can't tell apart."""


class Readings:
    """All that were taken of one set of counters, from whatever process."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._applied: dict[str, list[tuple[float, int]]] = {}
        self.count = self.exact = 0

    def check(self, reading: dict[str, Any], answered: int, tried: int) -> None:
        """Masks: `answered` before the read began; `tried` when it had ended. No delta is negative."""
        self.count += 1
        exact = reading["exact"]
        self.exact += exact
        mask, more = split(reading["value"])
        assert reading["value"] == reading["applied"] + reading["pending"], f"it does not add up: {reading}"
        assert exact or not self._pair.exact, f"not exact: {reading}"
        assert not more, f"an increment was counted twice: {reading}"
        assert not mask & ~tried, f"something was counted that nobody sent: {reading}"
        if exact:
            assert not answered & ~mask, f"an increment is missing: {reading}"
        if self._pair.instants:
            self._in_order(reading["name"], datetime.fromisoformat(reading["as_of"]).timestamp(), reading["applied"])

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
