"""The command watch: shows counters as they change."""

import argparse
import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import AsyncIterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from countersink_server.commands.counters import asking, said_of
from countersink_server.commands.output import flush, json_of, note, tell
from countersink_server.commands.target import add_service
from countersink_server.commands.watch_table import TICK, WatchTable

if TYPE_CHECKING:
    from countersink import Counter

_FOR_EVER: Final = float("inf")


def add_commands(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser(
        "watch",
        help="show counters as they change, until Ctrl-C",
        description="On a terminal, show the total of each counter, its rate per second, and a chart of its rates in"
        " the last half minute. Elsewhere, print a line each time that a counter changes: the time, the name, the"
        " total, the difference, and the rate per second since the change before. If the service goes away, the"
        " command waits until it answers again.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--prefix", metavar="P", help="watch all counters whose names start with P, instead of NAMEs")
    add_service(parser, patience=False)
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.set_defaults(run=lambda options: asyncio.run(_watch(options)), refuse=parser.error)


class CounterChange(NamedTuple):
    """A counter that has changed, or that is read for the first time."""

    counter: "Counter"
    difference: int | None
    rate: float | None
    """The difference per second. None if the counter was set, reset or deleted. Both are None at first."""


class Differences:
    """Compares each counter with what it was."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[Counter, float]] = {}

    def take(self, counter: "Counter", now: float) -> CounterChange | None:
        """None if the total has not changed. `now` in seconds."""
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
    me = asyncio.current_task()
    assert me is not None  # noqa: S101 (this is a task)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, me.cancel)
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


async def _print(changes: "AsyncIterator[Counter]", options: argparse.Namespace) -> None:
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
