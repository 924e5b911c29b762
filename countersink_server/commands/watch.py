"""The command watch: prints a line each time that one of some counters changes."""

import argparse
import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from countersink_server.commands.arguments import seconds
from countersink_server.commands.counters import asking, said_of
from countersink_server.commands.output import flush, json_of, tell
from countersink_server.commands.target import add_service

if TYPE_CHECKING:
    from countersink import AsyncClient, Counter

EVERY: Final = 1.0
SHORTEST: Final = 0.05
_FOR_EVER: Final = float("inf")


def add_commands(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser(
        "watch",
        help="print a line each time that a counter changes, until Ctrl-C",
        description="Print the total of each counter, and a line with its new total each time that it changes: the"
        " time, the name, the total, the difference, and the rate per second since the reading before. If the service"
        " goes away, the command waits until it answers again.",
    )
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument(
        "--interval", type=seconds, default=EVERY, metavar="S", help=f"seconds between two readings [{EVERY:g}]"
    )
    add_service(parser, patience=False)
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.set_defaults(run=lambda options: asyncio.run(_watch(options)), refuse=parser.error)


class CounterChange(NamedTuple):
    """A counter that differs from the reading before, or that is read for the first time."""

    counter: "Counter"
    difference: int | None
    rate: float | None
    """Of the difference, per second. Both are None at the first reading."""


class Differences:
    """Compares each reading with the one before."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}
        self._at = 0.0

    def take(self, counters: "Iterable[Counter]", now: float) -> list[CounterChange]:
        """The counters that changed, in their order. `now` in seconds."""
        changes = []
        for counter in counters:
            before = self._before.get(counter.name)
            self._before[counter.name] = counter.value
            if before is None:
                changes.append(CounterChange(counter, None, None))
            elif counter.value != before:
                passed = max(now - self._at, 0.001)
                changes.append(CounterChange(counter, counter.value - before, (counter.value - before) / passed))
        self._at = now
        return changes


async def _watch(options: argparse.Namespace) -> None:
    if options.interval < SHORTEST:
        options.refuse(f"argument --interval: must be {SHORTEST:g} or more")
    me = asyncio.current_task()
    assert me is not None  # noqa: S101 (this is a task)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, me.cancel)
    differences, width = Differences(), max(map(len, options.names))
    with contextlib.suppress(asyncio.CancelledError):  # Ctrl-C is how it is meant to end
        async with asking(options, _FOR_EVER) as client:
            async for counters in _readings(client, options.names, options.interval):
                for change in differences.take(counters, time.monotonic()):
                    tell(json_of(_json_of(change)) if options.json else line_of(change, width, datetime.now()))  # noqa: DTZ005 (for people, in their zone)
                flush()


async def _readings(client: "AsyncClient", names: Sequence[str], interval: float) -> "AsyncIterator[Sequence[Counter]]":
    """The counters, again and again. The only place that knows how they are read."""
    while True:
        yield await client.get_many(dict.fromkeys(names), max_age=interval)
        await asyncio.sleep(interval)


def line_of(change: CounterChange, width: int, now: datetime) -> str:
    counter, difference, rate = change
    text = f"{now:%H:%M:%S}  {counter.name:{width}}  {counter.value}"
    if difference is not None:
        text += f"  {difference:+}  {rate:.1f}/s"
    return text + ("" if counter.exact else "  not exact") + ("" if counter.exists else "  does not exist")


def _json_of(change: CounterChange) -> dict[str, Any]:
    rate = None if change.rate is None else round(change.rate, 3)
    return said_of(change.counter) | {"difference": change.difference, "rate": rate}
