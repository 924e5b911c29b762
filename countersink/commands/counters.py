"""The commands that talk to a running service: incr, get, list, set, reset, delete, shards."""

import argparse
import asyncio
import heapq
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from countersink.commands.arguments import seconds, whole
from countersink.commands.output import json_of, tell
from shared.model.errors import CountersinkError, SettingsError
from shared.model.instants import written

if TYPE_CHECKING:
    from countersink.client import Client
    from countersink.client.answers import Counter

URL: Final = "http://127.0.0.1:8080"
_VARIABLE: Final = "COUNTERSINK_URL"
KEY: Final = "COUNTERSINK_KEY"
PATIENCE: Final = 10.0
_PAGE: Final = 1_000
_MOST_TOP: Final = 100_000
_WIDEST: Final = 40
"""Width of the name column; a longer name moves its value to the right."""
_NAME: Final[dict[str, Any]] = {"metavar": "NAME", "help": "the counter; put a name that starts with - after --"}

Command = Callable[["Client", argparse.Namespace], Coroutine[Any, Any, None]]


def add_commands(commands: "argparse._SubParsersAction[Any]") -> None:
    incr = _add(
        commands,
        "incr",
        _incr,
        "add to a counter",
        "Add to a counter. If there is no answer, the command repeats the request, and it counts once all the same.",
    )
    incr.add_argument("name", **_NAME)
    incr.add_argument("--by", type=int, default=1, metavar="N", help="the delta; may be negative [1]")
    incr.add_argument("--id", help="its id; a command that you repeat with the same id counts once [a new id]")

    get = _add(
        commands,
        "get",
        _get,
        "print totals",
        "Print the total of each counter. It includes every increment that was accepted, also those that are not in the"
        " database yet. A total that may lack some is marked as not exact.",
    )
    get.add_argument("names", nargs="+", metavar="NAME")

    listing = _add(
        commands,
        "list",
        _list,
        "list counters in the order of their names",
        "List counters with their totals, in the order of their names.",
    )
    listing.add_argument("--prefix", default="", metavar="P", help="only counters whose names start with P")
    listing.add_argument(
        "--top",
        type=whole(1, _MOST_TOP),
        metavar="N",
        help="only the N largest, the largest first",
    )

    set_ = _add_change(
        commands,
        "set",
        "set a counter to a value; later increments add to it",
        "Set a counter to a value, and print its value before. Every increment that was accepted earlier is part of the"
        " value before; later increments add to the new one.",
    )
    set_.add_argument("value", type=int, metavar="VALUE")
    _add_change(
        commands,
        "reset",
        "set a counter to 0",
        "Set a counter to 0, and print its value before, which includes every increment that was accepted earlier.",
    )
    _add_change(
        commands,
        "delete",
        "set a counter to 0, and remove it from lists until it is counted again",
        "Set a counter to 0, print its value before, and remove it from lists until it is counted again.",
    )

    shards = _add(
        commands,
        "shards",
        _shards,
        "change the number of a counter's shards",
        "Change the number of a counter's shards. More shards take more writes a second; fewer are read faster."
        " Flushers add shards by themselves, so this is rarely needed.",
    )
    shards.add_argument("name", **_NAME)
    number = shards.add_mutually_exclusive_group(required=True)
    number.add_argument("number", nargs="?", type=int, metavar="N", help="give it at least N shards")
    number.add_argument("--compact", type=int, metavar="N", help="give it exactly N shards, even if it has more")


def _add_change(commands: "argparse._SubParsersAction[Any]", name: str, help_: str, description: str) -> Any:
    parser = _add(commands, name, _change, help_, description)
    parser.add_argument("name", **_NAME)
    parser.add_argument("--key", help="its key; a command that you repeat with the same key happens once [a new key]")
    parser.set_defaults(change=name)
    return parser


def _add(commands: "argparse._SubParsersAction[Any]", name: str, command: Command, help_: str, description: str) -> Any:
    parser = commands.add_parser(name, help=help_, description=description, allow_abbrev=False)
    parser.add_argument("--url", help=f"URL of the service; also {_VARIABLE} [{URL}]")
    parser.add_argument(
        "--patience",
        type=seconds,
        default=PATIENCE,
        metavar="S",
        help=f"seconds to retry while there is no answer, or the service is overloaded [{PATIENCE:g}]",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.set_defaults(run=lambda options: asyncio.run(_ask(command, options)), refuse=parser.error)
    return parser


async def _ask(command: Command, options: argparse.Namespace) -> None:
    from countersink.client import Client  # noqa: PLC0415 (who asks for help should not wait for it)

    variable = os.environ.get(_VARIABLE)
    try:
        client = Client(options.url or variable or URL, key=os.environ.get(KEY), patience=options.patience)
    except SettingsError as error:
        if options.url:
            options.refuse(f"argument --url: {error}")
        raise SettingsError(f"{_VARIABLE}={error}") from None
    async with client:
        await command(client, options)


async def _incr(client: "Client", options: argparse.Namespace) -> None:
    from countersink.client.answers import UnavailableError  # noqa: PLC0415 (as above)

    try:
        accepted = await client.increment(options.name, options.by, id=options.id)
    except UnavailableError as error:
        # It may have been accepted: only a retry with this id is safe.
        raise CountersinkError(f"{error} Repeat the command with --id {error.id}: it counts once") from error
    if options.json:
        tell(json_of({"accepted": accepted.accepted, "receipt": accepted.receipt, "id": accepted.id}))
    else:
        tell(f"accepted, receipt {accepted.receipt}")


async def _change(client: "Client", options: argparse.Namespace) -> None:
    from countersink.client.answers import UnavailableError  # noqa: PLC0415 (as above)

    change = getattr(client, options.change)
    values = (options.value,) if options.change == "set" else ()
    try:
        changed = await change(options.name, *values, key=options.key)
    except UnavailableError as error:
        raise CountersinkError(f"{error} Sent again with --key {error.id} it happens once") from error
    if options.json:
        tell(json_of({name: getattr(changed, name) for name in changed.__slots__}))
    else:
        tell(f"{changed.name}  was {changed.before}, is {changed.after}")


async def _shards(client: "Client", options: argparse.Namespace) -> None:
    compact = options.compact is not None
    now = await client.set_shards(options.name, options.compact if compact else options.number, compact=compact)
    tell(json_of({"name": options.name, "shards": now}) if options.json else f"{options.name}  has {now} shards")


async def _get(client: "Client", options: argparse.Namespace) -> None:
    _CounterTable(options.json).show(await client.get_many(options.names))


async def _list(client: "Client", options: argparse.Namespace) -> None:
    table = _CounterTable(options.json)
    top: list[Counter] = []
    async for counters in client.pages(options.prefix, page=_PAGE):
        if options.top is None:
            table.show(counters)
        else:  # no store sorts by value, so all are read and only N are kept
            top = heapq.nsmallest(options.top, [*top, *counters], key=lambda counter: (-counter.value, counter.name))
    table.show(top)


class _CounterTable:
    """Prints page by page, as there may be millions. Columns grow from page to page and never shrink."""

    def __init__(self, as_json: bool) -> None:
        self._json = as_json
        self._name = self._value = 0

    def show(self, counters: "Sequence[Counter]") -> None:
        self._name = max([self._name, *(min(len(counter.name), _WIDEST) for counter in counters)])
        self._value = max([self._value, *(len(str(counter.value)) for counter in counters)])
        for counter in counters:
            tell(json_of(_said(counter)) if self._json else self._line(counter))

    def _line(self, counter: "Counter") -> str:
        notes = ("" if counter.exact else "  not exact") + ("" if counter.exists else "  does not exist")
        return f"{counter.name:{self._name}}  {counter.value:>{self._value}}{notes}"


def _said(counter: "Counter") -> dict[str, Any]:
    """The fields as the service sends them."""
    return {name: getattr(counter, name) for name in counter.__slots__} | {"as_of": written(counter.as_of)}
