"""The commands on single counters: incr, get, list, set, reset, delete, shards."""

import argparse
import heapq
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from countersink import AsyncClient, Counter, RejectedError, UnavailableError
from countersink_server.cli.arguments import LINES, Commands, add_prefix, command, duration, integer, seconds, whole
from countersink_server.cli.output import flush, json_of, note, tell
from countersink_server.cli.target import (
    KEY,
    PatientClient,
    add_service,
    key_of_caller,
    naming_the_url,
    settings_of,
    url_of,
)
from shared.model.buckets import written
from shared.model.errors import CountersinkError, amount

_WAIT: Final = 10.0
_PAGE: Final = 1_000
_MOST_TOP: Final = 100_000
_WIDEST: Final = 40
"""Width of the name column; a longer name moves its value to the right."""
_NAME: Final[dict[str, Any]] = {"metavar": "NAME", "help": "the counter; put a name that starts with - after --"}

Command = Callable[[AsyncClient, argparse.Namespace], Coroutine[Any, Any, None]]


def add_commands(commands: Commands) -> None:
    incr = _add(
        commands,
        "incr",
        _incr,
        "Add to a counter. If there is no answer, the command repeats the request, and it counts once all the same.",
    )
    incr.add_argument("name", **_NAME)
    incr.add_argument("--by", type=integer, default=1, metavar="N", help="the number to add; may be negative [1]")
    incr.add_argument("--id", help="id of the increment, which counts once however often you send it [a new id]")

    incr.add_argument(
        "--wait",
        nargs="?",
        type=seconds,
        const=_WAIT,
        metavar="SECONDS",
        help=f"wait until it is in the database, for at most SECONDS [{_WAIT:g}], and print the total",
    )

    get = _add(
        commands,
        "get",
        _get,
        "Print the total of each counter. It includes every increment that was accepted, even those that are not in the"
        " database yet. A total that may lack some is marked as not exact.",
    )
    get.add_argument("names", nargs="+", metavar="NAME")

    listing = _add(commands, "list", _list, "List counters with their totals, in the order of their names.")
    add_prefix(listing, "only counters whose names start with P", default="")
    listing.add_argument(
        "--contains", default="", metavar="TEXT", help="only counters whose names have this part, in a SQLite file"
    )
    listing.add_argument("--top", type=whole(1, _MOST_TOP), metavar="N", help="only the N largest, the largest first")
    listing.add_argument(
        "--unused-for",
        type=duration,
        metavar="400d",
        help="only counters that were not changed for this long, in h, d or y",
    )

    set_ = _add_change(
        commands,
        "set",
        "Set a counter to a value, and print its value before. Every increment that was accepted earlier is part of the"
        " value before; later increments add to the new one.",
    )
    set_.add_argument("value", type=integer, metavar="VALUE")
    _add_change(
        commands,
        "reset",
        "Set a counter to 0, and print its value before, which includes every increment that was accepted earlier.",
    )
    _add_change(
        commands,
        "delete",
        "Set a counter to 0, print its value before, and remove it from lists until it is counted again.",
    )

    shards = _add(
        commands,
        "shards",
        _shards,
        "Change the number of a counter's shards. With more shards, it takes more writes a second; with fewer,"
        " it is read faster. Flushers add shards automatically, so you rarely need this.",
    )
    shards.add_argument("name", **_NAME)
    number = shards.add_mutually_exclusive_group(required=True)
    number.add_argument("number", nargs="?", type=integer, metavar="N", help="give it at least N shards")
    number.add_argument("--compact", type=integer, metavar="N", help="give it exactly N shards, even if it has more")


def _add_change(commands: Commands, name: str, description: str) -> argparse.ArgumentParser:
    parser = _add(commands, name, _change, description)
    parser.add_argument("name", **_NAME)
    parser.add_argument(
        *("--idempotency-key", "--key"),
        dest="key",
        metavar="KEY",
        help="key of the change, which happens once however often you send it [a new key]",
    )
    parser.set_defaults(change=name)
    return parser


def _add(commands: Commands, name: str, run: Command, description: str) -> argparse.ArgumentParser:
    parser = command(commands, name, partial(_ask, run), description=description, json=LINES)
    add_service(parser)
    return parser


async def _ask(run: Command, options: argparse.Namespace) -> None:
    if options.data is not None and getattr(options, "wait", None) is not None:
        options.refuse("--wait needs a running service: with --data, nothing is applied until the next start")
    async with asking(options, options.patience) as client:
        await run(client, options)


@asynccontextmanager
async def asking(
    options: argparse.Namespace, patience: float, say: Callable[[str], None] = note
) -> AsyncIterator[AsyncClient]:
    """A client of the service, or of one in this process that serves the data in --data. It may `say` why it waits."""
    if options.data is not None:
        settings = settings_of(options)
        from countersink_server.serve.run import serving  # noqa: PLC0415 (as above)

        async with (
            serving(settings) as url,
            PatientClient(url, patience=patience, shown=options.target, say=say) as client,
        ):
            yield client
        return
    with naming_the_url(options):
        url = url_of(options)
        client = PatientClient(url, key_of_caller(), patience=patience, shown=options.target, say=say)
    async with client:
        yield client


async def _incr(client: AsyncClient, options: argparse.Namespace) -> None:
    try:
        accepted = await client.increment(options.name, options.by, id=options.id, wait=options.wait)
    except UnavailableError as error:
        # It may have been accepted: only a retry with this id is safe.
        raise CountersinkError(f"{_sentence(error)} Repeat the command with --id {error.id}: it counts once") from error
    again = accepted.duplicates > 0
    said = {"accepted": accepted.accepted, "receipt": accepted.receipt, "id": accepted.id, "duplicate": again}
    # An id of this command's own can only have been counted by an earlier try of it: that is no duplicate.
    more = "  (a duplicate: this id had counted before)" if again and options.id is not None else ""
    if options.wait is None:
        tell(json_of(said) if options.json else f"accepted, receipt {accepted.receipt}{more}")
        return
    # A key that may not read gets no total.
    state = "applied" if accepted.value is not None else await client.receipt(accepted.receipt)
    if options.json:
        tell(json_of(said | {"state": state, "value": accepted.value}))
    elif state == "applied":
        what = f"applied, receipt {accepted.receipt}" if accepted.value is None else f"{options.name}  {accepted.value}"
        tell(f"{what}{more}")
    if state != "applied":
        flush()
        known = "it counts when a flusher has applied it" if state == "pending" else f"its receipt is {state}"
        raise CountersinkError(f"accepted, not applied after {options.wait:g} s; {known}: receipt {accepted.receipt}")


def _sentence(error: UnavailableError) -> str:
    said = str(error)
    return said if said.endswith((".", "?")) else f"{said}."


async def _change(client: AsyncClient, options: argparse.Namespace) -> None:
    if (options.key or "").startswith(("csk_", "cpk_")):
        options.refuse(f"argument --idempotency-key: this is an access key: put it into {KEY}")
    change = getattr(client, options.change)
    values = (options.value,) if options.change == "set" else ()
    try:
        changed = await change(options.name, *values, key=options.key)
    except UnavailableError as error:
        again = f"Repeat the command with --idempotency-key {error.id}: it happens once"
        raise CountersinkError(f"{_sentence(error)} {again}") from error
    if options.json:
        tell(json_of({name: getattr(changed, name) for name in changed.__slots__}))
    else:
        tell(f"{changed.name}  was {changed.before}, is {changed.after}")


async def _shards(client: AsyncClient, options: argparse.Namespace) -> None:
    compact = options.compact is not None
    now = await client.set_shards(options.name, options.compact if compact else options.number, compact=compact)
    tell(
        json_of({"name": options.name, "shards": now})
        if options.json
        else f"{options.name}  has {amount(now, 'shard')}"
    )


async def _get(client: AsyncClient, options: argparse.Namespace) -> None:
    _CounterTable(options.json).show(await client.get_many(options.names))


async def _list(client: AsyncClient, options: argparse.Namespace) -> None:
    table = _CounterTable(options.json)
    if options.top is not None:
        if options.unused_for is not None:
            options.refuse("--unused-for and --top can't be combined")
        if options.contains:
            options.refuse("--contains and --top can't be combined")
        top, exact = await _top(client, options.prefix, options.top)
        table.show(top)
    else:
        exact = True
        which = {"unused_for": options.unused_for, "contains": options.contains}
        async for page in client.pages(options.prefix, page=_PAGE, **which):
            exact = exact and page.exact
            table.show(page.counters)
    if not exact:
        note("countersink: the list may lack counters that are not in the database yet")


async def _top(client: AsyncClient, prefix: str, number: int) -> tuple[Sequence[Counter], bool]:
    """The largest counters, and whether none is missing. If the service can't sort this many by value, all are read,
    and only the largest are kept.
    """
    if number <= _PAGE:
        try:
            (page,) = [page async for page in client.pages(prefix, page=number, order="value")]
        except RejectedError as error:
            if error.field != "order":
                raise
        else:
            return page.counters, page.exact
    top: list[Counter] = []
    exact = True
    async for page in client.pages(prefix, page=_PAGE):
        exact = exact and page.exact
        top = heapq.nsmallest(number, [*top, *page.counters], key=lambda counter: (-counter.value, counter.name))
    return top, exact


class _CounterTable:
    """Prints page by page, as there may be millions. Columns grow from page to page and never shrink."""

    def __init__(self, as_json: bool) -> None:
        self._json = as_json
        self._name = self._value = 0

    def show(self, counters: Sequence[Counter]) -> None:
        self._name = max([self._name, *(min(len(counter.name), _WIDEST) for counter in counters)])
        self._value = max([self._value, *(len(str(counter.value)) for counter in counters)])
        for counter in counters:
            tell(json_of(said_of(counter)) if self._json else self._line(counter))

    def _line(self, counter: Counter) -> str:
        notes = ("" if counter.exact else "  not exact") + ("" if counter.exists else "  does not exist")
        return f"{counter.name:{self._name}}  {counter.value:>{self._value}}{notes}"


def said_of(counter: Counter) -> dict[str, Any]:
    """The fields as the service sends them."""
    its = {name: getattr(counter, name) for name in counter.__slots__} | {"as_of": written(counter.as_of)}
    return its | {"updated_at": written(counter.updated_at) if counter.updated_at is not None else None}
