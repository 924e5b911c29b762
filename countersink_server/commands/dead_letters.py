"""The commands on dead letters: dlq list, show, replay, drop. They need no running service, and disturb none.

What they print is made in `dead_letter_text.py`.
"""

import argparse
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from countersink_server.commands.arguments import sentence, whole
from countersink_server.commands.output import flush, tell
from countersink_server.commands.output import json_of as json_line
from countersink_server.commands.setup import add, connected
from shared.model.errors import CountersinkError
from shared.model.receipts import key_of_envelope

if TYPE_CHECKING:
    from flusher.dead_letters.open_letter import OpenedLetter
    from flusher.dead_letters.replay import ReplayOutcome
    from shared.config.settings import Settings
    from shared.model.words import Receipt
    from shared.ports.broker import DeadLetters
    from shared.wiring.process import Parts

AT_ONCE: Final = 500
MOST_BYTES: Final = 1_000_000
"""Letters that one step replays."""
_LIMIT: Final = 100
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
        help="also those that are too old to tell whether they were counted; use it if you know that they were not",
    )

    drop = add(
        actions,
        "drop",
        _drop,
        "give dead letters up for good: nothing can count them any more, and reads exclude them immediately",
    )
    drop.add_argument("ids", nargs="+", metavar="ID", help=_ID)


@dataclass(slots=True)
class _Desk:
    """The parts that the commands use."""

    settings: "Settings"
    parts: "Parts"
    letters: "DeadLetters"
    seen: set[str] = field(default_factory=set)
    """Receipt keys of the letters that were handed out."""
    letters_over: bool = False
    after: str = ""
    """The key of the last dead receipt that was read from the store."""

    async def pull(self, limit: int = AT_ONCE) -> "list[OpenedLetter]":
        """The broker's letters; then dead receipts whose letters are no longer there, or are held by others."""
        from flusher.dead_letters.open_letter import open_letter  # noqa: PLC0415 (who asks for help should not wait for it)

        if not self.letters_over:
            opened = [open_letter(one, self.parts.topic) for one in await self.letters.pull(limit, MOST_BYTES)]
            self.seen.update(envelope.key for one in opened for envelope in one.envelopes)
            if opened:
                return opened
            self.letters_over = True
        return await self._kept(limit)

    async def _kept(self, limit: int) -> "list[OpenedLetter]":
        from flusher.dead_letters.open_letter import open_receipt  # noqa: PLC0415 (as above)

        while page := await self.parts.store.dead(self.after, limit):
            self.after = page[-1].key
            if opened := [open_receipt(one) for one in page if one.key not in self.seen]:
                return opened
        return []

    async def receipts(self, opened: "Sequence[OpenedLetter]") -> Any:
        keys = [*dict.fromkeys(key for one in opened for key in one.receipt_keys())]
        return (await self.parts.store.receipts(keys)).found if keys else {}

    async def drop(self, one: "OpenedLetter") -> "Mapping[str, Receipt]":
        """The receipts that it had. One commit drops all of it, and readings leave it out when this returns. The letter
        goes last: cut off before that, it can be dropped again.
        """
        from flusher.dead_letters.drop import drop  # noqa: PLC0415 (as above)
        from shared.config.settings import promise_of  # noqa: PLC0415 (as above)

        store, overlay = self.parts.store, self.parts.overlay
        receipts = await drop(store, overlay, one.envelopes, promise_of(self.settings))
        if one.letter.delivery.token:
            await self.letters.ack([one.letter.delivery.token], receipts.time)
        return receipts.found


@contextlib.asynccontextmanager
async def _desk(options: argparse.Namespace) -> AsyncIterator[_Desk]:
    async with connected(options) as (settings, parts):
        letters = parts.letters()
        try:
            yield _Desk(settings, parts, letters)
        finally:
            await letters.close()


async def _list(options: argparse.Namespace) -> None:
    from countersink_server.commands.dead_letter_text import json_of, line_of  # noqa: PLC0415 (as above)

    number, more = 0, False
    async with _desk(options) as desk:
        while number < options.limit and (batch := await desk.pull(min(AT_ONCE, options.limit - number))):
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

    wanted = _LetterFilter([options.id])
    async with _desk(options) as desk:
        while not wanted.seen_all() and (batch := await desk.pull()):
            chosen = wanted.of(batch)
            found = await desk.receipts(chosen)
            for one in chosen:
                for line in [json_of(one, found, whole=True)] if options.json else lines_of(one, found):
                    tell(line)
        wanted.tell_missed(complete=desk.letters.complete)


async def _replay(options: argparse.Namespace) -> None:
    if bool(options.ids) == options.all:
        options.refuse("name the letters, or say --all")
    from countersink_server.process.run import ready, replay_of  # noqa: PLC0415 (as above)

    wanted, total = _LetterFilter(options.ids), _Total(as_json=options.json)
    async with _desk(options) as desk:
        await ready(desk.parts, flushes=True)
        await desk.parts.open()
        replay = replay_of(desk.parts, desk.letters, desk.settings, too_old=options.too_old)
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
    wanted.tell_missed(complete=complete)
    if total.letters_left:
        raise CountersinkError(f"{total.letters_left} dead letters are left, for the reasons above")


async def _drop(options: argparse.Namespace) -> None:
    from countersink_server.commands.dead_letter_text import dropped, json_of  # noqa: PLC0415 (as above)

    wanted = _LetterFilter(options.ids)
    async with _desk(options) as desk:
        await desk.parts.open()
        while not wanted.seen_all() and (batch := await desk.pull()):
            for one in wanted.of(batch):
                found = await desk.drop(one)
                tell(json_of(one, found) if options.json else dropped(one, found))
                flush()
        wanted.tell_missed(complete=desk.letters.complete)


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


class _LetterFilter:
    """Letters that are asked for, by their own names or by receipts. That of a batch names several envelopes, and
    those that are no dead letters are counted or wait: it is found if one of them is.
    """

    def __init__(self, ids: Sequence[str]) -> None:
        self._parts = {one: {*one.split("."), *(key_of_envelope(id_) for id_ in one.split("."))} for one in ids}
        self._seen: set[str] = set()

    def of(self, batch: "Sequence[OpenedLetter]") -> "list[OpenedLetter]":
        """The letters of the batch that were asked for; they are marked as seen."""
        wanted = {*self._parts}.union(*self._parts.values())
        chosen = [one for one in batch if wanted & _names(one)]
        self._seen.update(*(_names(one) for one in chosen))
        return chosen

    def seen_all(self) -> bool:
        return all(
            one in self._seen or all({id_, key_of_envelope(id_)} & self._seen for id_ in one.split("."))
            for one in self._parts
        )

    def tell_missed(self, *, complete: bool) -> None:
        """Raise an error that names the letters that were asked for and not found."""
        flush()  # an error would discard the buffer
        if missed := [one for one, parts in self._parts.items() if not ({one} | parts) & self._seen]:
            said = f"{', '.join(missed)}: not found: already replayed or dropped, or never a dead letter"
            raise CountersinkError(said if complete else f"{said}, or held by somebody else at this moment")


def _names(opened: "OpenedLetter") -> set[str]:
    return {opened.id, *(one.key for one in opened.envelopes), *([opened.envelope_id] if opened.envelope_id else [])}
