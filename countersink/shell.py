"""The commands that ask a running service: incr, get, list."""

import argparse
import asyncio
import json
import os
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine
from dataclasses import asdict
from typing import Any

from countersink.client import Client, Counter

_URL = "http://127.0.0.1:8080"
_PATIENCE = 10.0

Command = Callable[[Client, argparse.Namespace], Coroutine[Any, Any, None]]


def add_commands(commands: "argparse._SubParsersAction[Any]") -> None:
    incr = _add(commands, "incr", _incr, "count something")
    incr.add_argument("name", metavar="NAME")
    incr.add_argument("--by", type=int, default=1, metavar="N", help="how much [1]")
    incr.add_argument("--id", help="counts once however often it is sent under this id [a new one]")

    get = _add(commands, "get", _get, "read counters")
    get.add_argument("names", nargs="+", metavar="NAME")

    listing = _add(commands, "list", _list, "list counters, in order of their names")
    listing.add_argument("--prefix", default="", metavar="P", help="those that start so")


def _add(commands: "argparse._SubParsersAction[Any]", name: str, command: Command, help_: str) -> Any:
    parser = commands.add_parser(name, help=help_)
    url = os.environ.get("COUNTERSINK_URL", _URL)
    parser.add_argument("--url", default=url, help=f"where the service is; or COUNTERSINK_URL [{url}]")
    parser.add_argument(
        "--patience", type=float, default=_PATIENCE, metavar="S", help=f"seconds to try for [{_PATIENCE:g}]"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.set_defaults(run=lambda options: asyncio.run(_ask(command, options)))
    return parser


async def _ask(command: Command, options: argparse.Namespace) -> None:
    async with Client(options.url, patience=options.patience) as client:
        await command(client, options)


async def _incr(client: Client, options: argparse.Namespace) -> None:
    accepted = await client.increment(options.name, options.by, id=options.id)
    if options.json:
        _say(json.dumps({"accepted": accepted.accepted, "receipt": accepted.receipt}))
    else:
        _say(f"accepted, receipt {accepted.receipt}")


async def _get(client: Client, options: argparse.Namespace) -> None:
    async def found() -> AsyncIterator[Counter]:
        for counter in await client.get_many(options.names):
            yield counter

    await _show(found(), options, width=max(map(len, options.names)))


async def _list(client: Client, options: argparse.Namespace) -> None:
    await _show(client.list(options.prefix, page=1000), options, width=24)


async def _show(counters: AsyncIterable[Counter], options: argparse.Namespace, width: int) -> None:
    """As they come: there may be millions."""
    async for counter in counters:
        if options.json:
            _say(json.dumps(asdict(counter)))
        else:
            notes = ("" if counter.exact else "  not exact") + ("" if counter.exists else "  never seen")
            _say(f"{counter.name:{width}}  {counter.value:>12}{notes}")


def _say(line: str) -> None:
    print(line)  # noqa: T201 (what was asked for)
