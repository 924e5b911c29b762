"""The command watch: shows counters as they change, each in a line with its total, its rate, and a chart of its
rates.
"""

import argparse
import asyncio
import contextlib
import shutil
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from countersink import Counter
from countersink_server.cli.arguments import LINES, Commands, add_prefix, command
from countersink_server.cli.counters import asking, said_of
from countersink_server.cli.output import flush, json_of, note, plain, tell
from countersink_server.cli.target import add_service

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
    def __init__(self, counter: Counter) -> None:
        self.counter = counter
        self.ticked = counter.value
        """The total at the last tick."""
        self.rates: deque[float] = deque(maxlen=POINTS)


class WatchTable:
    """A line for each counter, with its total, its rate and a chart of its rates, drawn over what was drawn before."""

    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}
        self._height = 0
        """Lines that it has drawn."""

    def take(self, counter: Counter) -> bool:
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
        for row in self._rows.values():
            row.rates.append((row.counter.value - row.ticked) / TICK)
            row.ticked = row.counter.value

    def leave(self) -> None:
        """Something else was printed: draw again below it."""
        self._height = 0

    def draw(self) -> None:
        columns, lines = shutil.get_terminal_size()
        shown = self.lines(columns, lines - 1, bars=_can_draw_bars())
        up = _UP.format(self._height) if self._height else ""
        sys.stdout.write(up + "".join([f"{line}{_CLEAR_LINE}\n" for line in shown]) + _CLEAR_REST)
        flush()
        self._height = len(shown)

    def lines(self, columns: int, most: int, *, bars: bool) -> Sequence[str]:
        rows = [*self._rows.values()]
        left = 0
        if len(rows) > most:
            left = len(rows) - most + 1
            rows = sorted(rows, key=lambda row: -row.counter.value)[: most - 1]
        texts = [(plain(row.counter.name), f"{row.counter.value:,}", _rate(row)) for row in rows]
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


def _cut(name: str, width: int) -> str:
    return name if len(name) <= width else name[: max(width - 1, 0)] + "…"


def _can_draw_bars() -> bool:
    try:
        _BARS.encode(sys.stdout.encoding)
    except (LookupError, UnicodeEncodeError):
        return False
    return True


_FOR_EVER: Final = float("inf")


def add_commands(commands: Commands) -> None:
    parser = command(
        commands,
        "watch",
        _watch,
        description="On a terminal, show the total of each counter, its rate per second, and a chart of its rates in"
        " the last half minute. Elsewhere, print a line each time that a counter changes: the time, the name, the"
        " total, the difference, and the rate per second since the change before. If the service goes away, the"
        " command waits until it answers again.",
        json=LINES,
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    add_prefix(parser, "watch all counters whose names start with P, instead of NAMEs")
    add_service(parser, patience=False)


class CounterChange(NamedTuple):
    counter: Counter
    difference: int | None
    rate: float | None
    """The difference per second. None if the counter was set, reset or deleted. Both are None at first."""


class Differences:
    def __init__(self) -> None:
        self._before: dict[str, tuple[Counter, float]] = {}

    def take(self, counter: Counter, now: float) -> CounterChange | None:
        """Take a new total; returns None if it has not changed. `now` in seconds."""
        before = self._before.get(counter.name)
        if before is None:
            self._before[counter.name] = counter, now
            return CounterChange(counter, None, None)
        last, then = before
        if last.value == counter.value:
            return None
        self._before[counter.name] = counter, now
        difference = counter.value - last.value
        was_set = last.generation != counter.generation
        return CounterChange(counter, difference, None if was_set else difference / max(now - then, 0.001))


async def _watch(options: argparse.Namespace) -> None:
    if bool(options.names) == (options.prefix is not None):
        options.refuse("name what to watch: NAMEs, or --prefix P")
    draws = not options.json and sys.stdout is not None and sys.stdout.isatty()
    table = WatchTable() if draws else None

    def say(line: str) -> None:
        if table is not None:
            table.leave()
        note(line)

    with contextlib.suppress(asyncio.CancelledError):  # Ctrl-C is how it is meant to end
        async with asking(options, _FOR_EVER, say) as client:
            changes = client.watch(*dict.fromkeys(options.names), prefix=options.prefix)
            if table is None:
                await _print(changes, options)
            else:
                async with asyncio.TaskGroup() as tasks:
                    drawing = tasks.create_task(_draw(table), name="draw")
                    async for counter in changes:
                        if table.take(counter):
                            table.draw()
                    drawing.cancel()


async def _print(changes: AsyncIterator[Counter], options: argparse.Namespace) -> None:
    differences = Differences()
    width = max(map(len, options.names), default=0)
    async for counter in changes:
        change = differences.take(counter, time.monotonic())
        if change is not None:
            tell(json_of(_json_of(change)) if options.json else line_of(change, width, datetime.now()))  # noqa: DTZ005 (for people, in their zone)
            flush()


async def _draw(table: WatchTable) -> None:
    while True:
        await asyncio.sleep(TICK)
        table.tick()
        table.draw()


def line_of(change: CounterChange, width: int, now: datetime) -> str:
    counter, difference, rate = change
    text = f"{now:%H:%M:%S}  {counter.name:{width}}  {counter.value}"
    if difference is not None:
        text += f"  {difference:+}"
    if rate is not None:
        text += f"  {rate:.1f}/s"
    return text + ("" if counter.exact else "  not exact") + ("" if counter.exists else "  does not exist")


def _json_of(change: CounterChange) -> dict[str, Any]:
    rate = None if change.rate is None else round(change.rate, 3)
    return said_of(change.counter) | {"difference": change.difference, "rate": rate}
