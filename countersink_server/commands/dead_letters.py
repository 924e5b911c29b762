"""The commands on dead letters: dlq list, show, replay, drop. They need no running service, and disturb none.

What they print is made in `dead_letter_text.py`.
"""

import argparse
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from countersink_server.commands.arguments import sentence, whole
from countersink_server.commands.output import flush, tell
from countersink_server.commands.output import json_of as json_line
from countersink_server.commands.setup import add, connected
from shared.model.errors import CountersinkError

if TYPE_CHECKING:
    from flusher.dead_letters.letter_filter import LetterFilter
    from flusher.dead_letters.letter_pass import LetterPass
    from flusher.dead_letters.replay import ReplayOutcome
    from shared.config.settings import Settings
    from shared.wiring.process import Parts

_LIMIT: Final = 100
_AT_ONCE: Final = 500
_ID: Final = "an id that list shows, or the receipt of an answer"
_NOT_ALL: Final = "Pub/Sub does not tell how many there are, and others may hold some"


def add_commands(commands: "argparse._SubParsersAction[Any]") -> None:
    help_ = "dead letters: messages that were accepted and could not be counted"
    parser = commands.add_parser("dlq", help=help_, description=sentence(help_))
    actions = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    listing = add(actions, "list", _list, "list dead letters with their reasons; changes nothing")
    listing.add_argument(
        "--limit", type=whole(1, 10**9), default=_LIMIT, metavar="N", help=f"list at most N [{_LIMIT}]"
    )

    show = add(actions, "show", _show, "show all details of one dead letter and its receipts; changes nothing")
    show.add_argument("id", metavar="ID", help=_ID)

    replay = add(
        actions,
        "replay",
        _replay,
        "count dead letters after all; safe to kill, to repeat, and to run twice at the same time",
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
        "give dead letters up for good: nothing can count them any more, and reads exclude them immediately",
    )
    drop.add_argument("ids", nargs="+", metavar="ID", help=_ID)


@contextlib.asynccontextmanager
async def _desk(options: argparse.Namespace) -> "AsyncIterator[tuple[LetterPass, Settings, Parts]]":
    from flusher.dead_letters.letter_pass import LetterPass  # noqa: PLC0415 (who asks for help should not wait for it)
    from shared.config.settings import promise_of  # noqa: PLC0415 (as above)

    async with connected(options) as (settings, parts):
        letters = parts.letters()
        try:
            yield LetterPass(letters, parts.store, parts.overlay, parts.topic, promise_of(settings)), settings, parts
        finally:
            await letters.close()


async def _list(options: argparse.Namespace) -> None:
    from countersink_server.commands.dead_letter_text import json_of, line_of  # noqa: PLC0415 (as above)

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
    letters = "1 dead letter" if number == 1 else f"{number or 'no'} dead letters"
    if more:
        return f"{letters}, and there are more: --limit shows them"
    if complete:
        return letters
    return f"at least {letters}: {_NOT_ALL}" if number else f"{letters} found: {_NOT_ALL}"


async def _show(options: argparse.Namespace) -> None:
    from countersink_server.commands.dead_letter_text import json_of, lines_of  # noqa: PLC0415 (as above)
    from flusher.dead_letters.letter_filter import LetterFilter  # noqa: PLC0415 (as above)

    wanted = LetterFilter([options.id])
    async with _desk(options) as (desk, _, _):
        while not wanted.seen_all() and (batch := await desk.pull()):
            chosen = wanted.of(batch)
            found = await desk.receipts(chosen)
            for one in chosen:
                for line in [json_of(one, found, whole=True)] if options.json else lines_of(one, found):
                    tell(line)
        _tell_missed(wanted, complete=desk.letters.complete)


async def _replay(options: argparse.Namespace) -> None:
    if bool(options.ids) == options.all:
        options.refuse("name the letters, or use --all")
    from countersink_server.process.run import ready, replay_of  # noqa: PLC0415 (as above)
    from flusher.dead_letters.letter_filter import LetterFilter  # noqa: PLC0415 (as above)

    wanted, total = LetterFilter(options.ids), _Total(as_json=options.json)
    async with _desk(options) as (desk, settings, parts):
        await ready(parts, flushes=True)
        await parts.open()
        replay = replay_of(parts, desk.letters, settings, too_old=options.too_old)
        try:
            while (options.all or not wanted.seen_all()) and (batch := await desk.pull()):
                chosen = batch if options.all else wanted.of(batch)
                for outcome in await replay.run(chosen) if chosen else ():
                    total.add(outcome)
        except CountersinkError as error:
            raise CountersinkError(f"{error} ({total.said()}; run it again for the rest)") from error
        complete = desk.letters.complete
    if options.json:
        tell(json_line(total.summary()))
    else:
        tell(total.said() if complete or options.ids else f"{total.said()}; {_NOT_ALL}")
    _tell_missed(wanted, complete=complete)
    if total.letters_left:
        raise CountersinkError(f"{total.letters_left} dead letters are left, for the reasons above")


async def _drop(options: argparse.Namespace) -> None:
    from countersink_server.commands.dead_letter_text import dropped, json_of  # noqa: PLC0415 (as above)
    from flusher.dead_letters.letter_filter import LetterFilter  # noqa: PLC0415 (as above)

    wanted = LetterFilter(options.ids)
    async with _desk(options) as (desk, _, parts):
        await parts.open()
        while not wanted.seen_all() and (batch := await desk.pull()):
            for one in wanted.of(batch):
                found = await desk.drop(one)
                tell(json_of(one, found) if options.json else dropped(one, found))
                flush()
        _tell_missed(wanted, complete=desk.letters.complete)


@dataclass(slots=True)
class _Total:
    """The sums of a replay: increments and letters."""

    as_json: bool
    counted: int = 0
    already: int = 0
    left: int = 0
    letters_left: int = 0

    def add(self, outcome: "ReplayOutcome") -> None:
        from countersink_server.commands.dead_letter_text import json_of_outcome, outcome_of  # noqa: PLC0415 (as above)

        self.counted += outcome.counted
        self.already += outcome.already
        self.left += outcome.left
        self.letters_left += outcome.why is not None
        tell(json_of_outcome(outcome) if self.as_json else outcome_of(outcome))
        flush()

    def summary(self) -> dict[str, int]:
        return {"counted": self.counted, "already": self.already, "left": self.left, "letters_left": self.letters_left}

    def said(self) -> str:
        return f"increments: {self.counted} counted, {self.already} counted before, {self.left} left"


def _tell_missed(wanted: "LetterFilter", *, complete: bool) -> None:
    """Raise an error that names the letters that were asked for and not found."""
    flush()  # an error would discard the buffer
    if missed := wanted.missed():
        said = f"{', '.join(missed)}: not found: already replayed or dropped, or never a dead letter"
        raise CountersinkError(said if complete else f"{said}, or another process holds it at this moment")
