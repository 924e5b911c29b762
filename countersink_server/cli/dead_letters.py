"""The commands on dead letters: dlq list, show, replay, drop, and how letters are shown. They need no running
service.
"""

import argparse
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final

from countersink_server.cli.arguments import HELPS, Commands, whole
from countersink_server.cli.output import flush, plain, tell
from countersink_server.cli.output import json_of as json_line
from countersink_server.cli.setup import add, connected
from countersink_server.cli.target import settings_of
from countersink_server.serve.run import ready
from flusher.dead_letters.desk import LetterPass, Replay, ReplayOutcome, passing
from flusher.dead_letters.letters import LetterFilter, OpenedLetter, sums_of
from flusher.service import make_tools
from shared.config.settings import Settings
from shared.model.errors import CountersinkError, amount
from shared.model.words import Receipt
from shared.wiring.process import Parts

_LIMIT: Final = 100
_AT_ONCE: Final = 500
_ID: Final = "an id that list shows, or the receipt of an answer"
_NOT_ALL: Final = "Pub/Sub does not say how many there are, and others may hold some"


def add_commands(commands: Commands) -> None:
    help_ = HELPS["dlq"]
    parser = commands.add_parser("dlq", help=help_, description=f"{help_[0].upper()}{help_[1:]}.")
    actions = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    listing = add(actions, "list", _list, help_="list dead letters with their reasons; changes nothing")
    listing.add_argument(
        "--limit", type=whole(1, 10**9), default=_LIMIT, metavar="N", help=f"list at most N [{_LIMIT}]"
    )

    show = add(actions, "show", _show, help_="show all details of one dead letter and its receipts; changes nothing")
    show.add_argument("id", metavar="ID", help=_ID)

    replay = add(
        actions,
        "replay",
        _replay,
        help_="count dead letters after all; safe to kill, to repeat, and to run twice at the same time",
    )
    replay.add_argument("ids", nargs="*", metavar="ID", help=_ID)
    replay.add_argument("--all", action="store_true", help="all dead letters")
    replay.add_argument(
        "--too-old",
        action="store_true",
        help="also letters so old that nobody can tell whether they were counted; use it only if you know that they"
        " were not",
    )

    drop = add(
        actions,
        "drop",
        _drop,
        help_="give dead letters up for good: nothing can count them any more, and reads exclude them immediately",
    )
    drop.add_argument("ids", nargs="+", metavar="ID", help=_ID)


@contextlib.asynccontextmanager
async def _desk(options: argparse.Namespace) -> AsyncIterator[tuple[LetterPass, Settings, Parts]]:
    settings = settings_of(options)
    async with connected(settings) as parts, passing(parts, settings) as desk:
        yield desk, settings, parts


async def _list(options: argparse.Namespace) -> None:
    number, more = 0, False
    async with _desk(options) as (desk, _, _):
        while number < options.limit and (batch := await desk.pull(min(_AT_ONCE, options.limit - number))):
            found = await desk.receipts(batch)
            for one in batch:
                tell(json_of(one, found) if options.json else line_of(one, found))
            number += len(batch)
        if number == options.limit:
            more = bool(await desk.pull(1))
        complete = desk.letters.complete
    if not options.json:
        tell(_how_many(number, more=more, complete=complete))


def _how_many(number: int, *, more: bool, complete: bool) -> str:
    letters = amount(number, "dead letter") if number else "no dead letters"
    if more:
        return f"{letters}, and there are more: --limit shows them"
    if complete:
        return letters
    return f"at least {letters}: {_NOT_ALL}" if number else f"{letters} found: {_NOT_ALL}"


async def _show(options: argparse.Namespace) -> None:
    wanted = LetterFilter([options.id])
    async with _desk(options) as (desk, _, _):
        async for chosen in desk.chosen(wanted):
            found = await desk.receipts(chosen)
            for one in chosen:
                for line in [json_of(one, found, whole=True)] if options.json else lines_of(one, found):
                    tell(line)
        _tell_missed(wanted, complete=desk.letters.complete)


async def _replay(options: argparse.Namespace) -> None:
    if bool(options.ids) == options.all:
        options.refuse("name the letters, or use --all")

    wanted = LetterFilter(None if options.all else options.ids)
    total = dict.fromkeys(("counted", "already", "left", "letters_left"), 0)
    async with _desk(options) as (desk, settings, parts):
        await ready(parts, flushes=True)
        await parts.open()
        replay = Replay(make_tools(parts, settings), desk.letters, too_old=options.too_old)
        try:
            async for chosen in desk.chosen(wanted):
                for outcome in await replay.run(chosen) if chosen else ():
                    for name in ("counted", "already", "left"):
                        total[name] += getattr(outcome, name)
                    total["letters_left"] += outcome.why is not None
                    tell(json_of_outcome(outcome) if options.json else outcome_of(outcome))
                    flush()
        except CountersinkError as error:
            raise CountersinkError(f"{error} ({_summed(total)}; run it again for the rest)") from error
        complete = desk.letters.complete
    if options.json:
        tell(json_line(total))
    else:
        tell(_summed(total) if complete or options.ids else f"{_summed(total)}; {_NOT_ALL}")
    _tell_missed(wanted, complete=complete)
    if total["letters_left"]:
        left = amount(total["letters_left"], "dead letter is", "dead letters are")
        raise CountersinkError(f"{left} left, for the reasons above")


async def _drop(options: argparse.Namespace) -> None:
    wanted = LetterFilter(options.ids)
    async with _desk(options) as (desk, _, parts):
        await parts.open()
        async for chosen in desk.chosen(wanted):
            for one in chosen:
                found = await desk.drop(one)
                tell(json_of(one, found) if options.json else dropped(one, found))
                flush()
        _tell_missed(wanted, complete=desk.letters.complete)


def _summed(total: Mapping[str, int]) -> str:
    return f"increments: {total['counted']} counted, {total['already']} counted before, {total['left']} left"


def _tell_missed(wanted: LetterFilter, *, complete: bool) -> None:
    flush()  # an error would discard the buffer
    if missed := wanted.missed():
        said = f"{', '.join(missed)}: not found: already replayed or dropped, or never a dead letter"
        raise CountersinkError(said if complete else f"{said}, or another process holds it at this moment")


# Dead letters and their outcomes as text and as JSON. Pure.


_MOST_COUNTERS: Final = 5
"""Counters that one line names."""
_STATES: Final = {
    "dead": "not counted",
    "applied": "counted already; a replay removes the letter and counts nothing",
    "dropped": "dropped already; a replay removes the letter and counts nothing",
    "unreadable": "unreadable",
}


def line_of(opened: OpenedLetter, found: Mapping[str, Receipt]) -> str:
    sums = sums_of(opened.envelopes)
    what = f"{amount(opened.increments, 'increment')}: {_some(sums)}" if sums else "nothing that can be read"
    state = opened.state(found)
    note = f"  [{_STATES[state]}]" if state in {"applied", "dropped"} else ""
    return plain(f"{opened.id}  {opened.published}  {what}  ({opened.letter.reason or 'no reason'}){note}")


def dropped(opened: OpenedLetter, found: Mapping[str, Receipt]) -> str:
    """One line about a dropped letter. It leaves out what had been counted before."""
    left, number = opened.left_to_drop(found)
    if opened.flaw is not None:
        what = "dropped; it was unreadable"
    elif number:
        what = f"{amount(number, 'increment')} dropped: {_some(sums_of(left, found))}"
    else:
        what = "removed; nothing was left to drop"
    return plain(f"{opened.id}  {what}")


def lines_of(opened: OpenedLetter, found: Mapping[str, Receipt]) -> Iterator[str]:
    delivery = opened.letter.delivery
    message = delivery.message
    yield f"id          {plain(opened.id)}"
    yield f"published   {opened.published}"
    yield f"reason      {plain(opened.letter.reason or 'no reason is given')}"
    yield f"state       {_STATES[opened.state(found)]}" + (f": {plain(opened.flaw)}" if opened.flaw else "")
    if opened.flaw is None:
        yield f"receipt     {plain(opened.envelope_id or opened.envelopes[0].key)}"
        yield f"holds       {amount(opened.increments, 'increment')}"
        for envelope in opened.envelopes:
            state = found[envelope.key].state if envelope.key in found else "without a receipt"
            for counter, delta in envelope.sums.items():
                yield f"  {plain(counter)} {delta:+}  {state}"
            for item in envelope.keyed:
                its = "applied" if item.key in found else state
                yield f"  {plain(item.counter)} {item.delta:+} under the id {plain(item.id or item.key)}  {its}"
    if not delivery.token:
        yield "data        the store keeps what it counts; the message is no longer among the broker's dead letters"
        return
    for name, value in message.attributes.items():
        yield f"attribute   {plain(name)}={plain(value)}"
    yield f"data        {plain(message.data.decode(errors='backslashreplace'))}"


def json_of(opened: OpenedLetter, found: Mapping[str, Receipt], *, whole: bool = False) -> str:
    delivery = opened.letter.delivery
    said: dict[str, Any] = {
        "id": opened.id,
        "published": opened.published,
        "reason": opened.letter.reason,
        "state": opened.state(found),
        "flaw": opened.flaw,
        "receipt": opened.envelope_id,
        "increments": opened.increments,
        "counters": sums_of(opened.envelopes),
    }
    if whole:
        said["attributes"] = dict(delivery.message.attributes)
        said["data"] = delivery.message.data.decode(errors="backslashreplace")
    return json_line(said)


def outcome_of(outcome: ReplayOutcome) -> str:
    said = []
    if outcome.counted:
        said.append(f"{amount(outcome.counted, 'increment')} counted")
    if outcome.already:
        said.append(f"{amount(outcome.already, 'increment')} counted before")
    if outcome.dropped:
        said.append(f"{amount(outcome.dropped, 'increment')} dropped before")
    if outcome.why is not None:
        left = f"{amount(outcome.left, 'increment')} left" if outcome.left else "left"
        said.append(f"{left}: {outcome.why}")
    return plain(f"{outcome.opened.id}  {'; '.join(said) or 'held nothing'}")


def json_of_outcome(outcome: ReplayOutcome) -> str:
    numbers = {name: getattr(outcome, name) for name in ("counted", "already", "dropped", "left")}
    return json_line({"id": outcome.opened.id} | numbers | {"why": outcome.why})


def _some(sums: Mapping[str, int]) -> str:
    some = [f"{name} {delta:+}" for name, delta in [*sums.items()][:_MOST_COUNTERS]]
    if len(sums) > len(some):
        some.append(f"and {len(sums) - len(some)} counters more")
    return ", ".join(some)
