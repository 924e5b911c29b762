"""Dead letters: a list of them, a replay, and a drop. They do what the command `countersink dlq` does."""

import json
from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict

from ingest.access.callers import Caller, note
from ingest.api.fields import Body, Flag, Flaw, Form, Id, Json, PageToken, Read
from ingest.http.problems import Problem
from ingest.http.requests import Call, limit_of, page_token
from shared.model.dead_letters import DeadLetter, LettersDropped, LettersReplayed, place_of
from shared.model.words import flaw_of_id
from shared.ports.broker import LetterDesk

DEFAULT_LISTED: Final = 50
MOST_LETTERS: Final = 100
MOST_CHOSEN: Final = 100


class LettersAsks(Struct):
    limit: Annotated[int, Read(lambda query, _: limit_of(query, MOST_LETTERS)), Meta(ge=1, le=MOST_LETTERS)] = (
        DEFAULT_LISTED
    )
    """Maximum number of letters on a page."""
    page_token: PageToken = ""
    """The `next_page_token` of the previous page."""


class DeadLetters(Json):
    """Some dead letters, with the reasons."""

    dead_letters: list[DeadLetter]
    next_page_token: str | None
    """For the next page; null on the last one. A page may be short, or empty, before that."""
    complete: bool
    """Whether this page and those before it show all dead letters. Never true on Pub/Sub, which does not say."""


def _flaw_of_ids(value: object) -> str | None:
    if type(value) is not list or not 1 <= len(value) <= MOST_CHOSEN:
        return f"must be an array of 1 to {MOST_CHOSEN} ids"
    return next((f"has an id that {flaw}" for flaw in map(flaw_of_id, value) if flaw), None)


Ids = Annotated[
    list[Id], Flaw(_flaw_of_ids), Meta(min_length=1, max_length=MOST_CHOSEN, description="Ids that the list shows.")
]


class ReplayLetters(Body):
    """`too_old` also counts letters so old that nobody can tell whether they were counted. Send it only if you know
    that they were not.
    """

    ids: Ids | UnsetType = UNSET
    all: Flag | UnsetType = UNSET
    """All dead letters."""
    too_old: Flag | UnsetType = UNSET

    like = '{"ids": […]} or {"all": true}'
    forms = (Form({"all": False}, ("ids",), ("all", "too_old")), Form({"all": True}, ("all",), ("too_old",)))


class DropLetters(Body):
    ids: Ids

    like = '{"ids": […]}'


class DeadLetterRoutes:
    """A letter is replayed or dropped whole, may hold counters of anybody, and some can't be read at all. So only keys
    without prefixes may use these routes.
    """

    def __init__(self, desk: LetterDesk) -> None:
        self._desk = desk

    async def list_dead_letters(self, call: Call, asks: LettersAsks) -> Annotated[bytes, DeadLetters]:
        """List dead letters: messages that were accepted and could not be counted"""
        place = place_of(asks.page_token)
        _check(call.caller)
        if place is None:
            raise Problem(422, "'page_token' must be the next_page_token of an answer", field="page_token")
        page = await self._desk.page(place, asks.limit)
        token = page_token(page.next.written()) if page.next else None
        return _written({"dead_letters": page.rows, "next_page_token": token, "complete": page.complete})

    async def replay_dead_letters(self, call: Call, body: ReplayLetters) -> Annotated[bytes, LettersReplayed]:
        """Count dead letters after all. Each increment counts once, however often you send this"""
        _check(call.caller)
        ids, too_old = body.ids or None, body.too_old is True
        if (ids is None) != (body.all is True):
            raise Problem(422, "send either 'ids' or '\"all\": true'", field="ids")
        old = ", even if they are too old to tell whether they were counted" if too_old else ""
        note(call.caller, f"replay {'all dead letters' if ids is None else f'the dead letters {ids}'}{old}")
        return _written(await self._desk.replay(ids, too_old=too_old))

    async def drop_dead_letters(self, call: Call, body: DropLetters) -> Annotated[bytes, LettersDropped]:
        """Give dead letters up for good. Reads exclude them at once"""
        _check(call.caller)
        note(call.caller, f"drop the dead letters {body.ids}")
        return _written(await self._desk.drop(body.ids))


def _check(caller: Caller) -> None:
    if caller.key is not None and not caller.key.has_all(""):
        raise Problem(403, f"the key {caller.key.id} has prefixes, and dead letters may hold counters of others")


def _written(answer: Any) -> bytes:
    """The sums of an unreadable message may be larger than orjson writes, and its text no Unicode."""
    return json.dumps(answer, default=asdict).encode()
