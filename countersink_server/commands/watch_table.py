"""Draws watched counters on a terminal: a line each, with its total, its rate, and a chart of its rates."""

import shutil
import sys
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from countersink_server.commands.output import flush

if TYPE_CHECKING:
    from countersink import Counter

TICK: Final = 1.0
"""Seconds between two points of a chart."""
POINTS: Final = 30
NARROW: Final = 20
"""Columns of a name at least, if the terminal is too narrow for it."""
_BARS: Final = "▁▂▃▄▅▆▇█"
_UP: Final = "\x1b[{}F"
_CLEAR_LINE: Final = "\x1b[K"
_CLEAR_REST: Final = "\x1b[J"


class _Row:
    def __init__(self, counter: "Counter") -> None:
        self.counter = counter
        self.ticked = counter.value
        """The total at the last tick."""
        self.rates: deque[float] = deque(maxlen=POINTS)


class WatchTable:
    """It draws over what it has drawn before."""

    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}
        self._height = 0
        """Lines that it has drawn."""

    def take(self, counter: "Counter") -> bool:
        """Returns whether to draw now: the counter is new, or was set, which is no rate."""
        row = self._rows.get(counter.name)
        if row is None:
            self._rows[counter.name] = _Row(counter)
            return True
        was_set = counter.generation != row.counter.generation
        if was_set:
            row.ticked = counter.value
        row.counter = counter
        return was_set

    def tick(self) -> None:
        """A second has passed."""
        for row in self._rows.values():
            row.rates.append((row.counter.value - row.ticked) / TICK)
            row.ticked = row.counter.value

    def leave(self) -> None:
        """Something else was printed: draw anew below it."""
        self._height = 0

    def draw(self) -> None:
        columns, lines = shutil.get_terminal_size()
        shown = self.lines(columns, lines - 1, bars=_can_draw_bars())
        up = _UP.format(self._height) if self._height else ""
        sys.stdout.write(up + "".join([f"{line}{_CLEAR_LINE}\n" for line in shown]) + _CLEAR_REST)
        flush()
        self._height = len(shown)

    def lines(self, columns: int, most: int, *, bars: bool) -> Sequence[str]:
        """The table, in at most so many columns and lines."""
        rows = [*self._rows.values()]
        left = 0
        if len(rows) > most:
            left = len(rows) - most + 1
            rows = sorted(rows, key=lambda row: -row.counter.value)[: most - 1]
        texts = [(_shown(row.counter.name), f"{row.counter.value:,}", _rate(row)) for row in rows]
        values = max((len(value) for _, value, _ in texts), default=0)
        rates = max((len(rate) for _, _, rate in texts), default=0)
        rest = columns - values - rates - 4
        chart = POINTS + 2 if bars and rest >= NARROW + POINTS + 2 else 0
        width = min(max((len(name) for name, _, _ in texts), default=0), max(rest - chart, 1))
        found = [
            f"{_cut(name, width):{width}}  {value:>{values}}  {rate:>{rates}}"
            + (f"  {sparkline(row.rates)}" if chart else "")
            for row, (name, value, rate) in zip(rows, texts, strict=True)
        ]
        return [*found, f"and {left} more"] if left else found


def sparkline(rates: Sequence[float] | deque[float]) -> str:
    """The highest rate is a full bar."""
    highest = max(rates, default=0)
    if highest <= 0:
        return _BARS[0] * len(rates)
    return "".join([_BARS[max(0, round(rate / highest * (len(_BARS) - 1)))] for rate in rates])


def _rate(row: _Row) -> str:
    flags = ("" if row.counter.exact else " not exact") + ("" if row.counter.exists else " does not exist")
    return (f"{row.rates[-1]:,.0f}/s" if row.rates else "") + flags


def _shown(name: str) -> str:
    """A name without what would move the cursor."""
    return "".join([one if one.isprintable() else "?" for one in name])


def _cut(name: str, width: int) -> str:
    return name if len(name) <= width else name[: max(width - 1, 0)] + "…"


def _can_draw_bars() -> bool:
    try:
        _BARS.encode(sys.stdout.encoding)
    except (LookupError, UnicodeEncodeError):
        return False
    return True
