"""The routes of dead letters: a list of them, a replay, and a drop. They do what the command `countersink dlq` does."""

import json
from dataclasses import asdict
from typing import Any, Final

from aiohttp import web

from ingest.access.audit import note
from ingest.access.caller import CALLER, Caller
from ingest.http.bodies import Bodies
from ingest.http.problems import Problem
from ingest.http.requests import Query, limit_of, page_token, page_token_of
from ingest.http.responses import JSON, line
from ingest.parsing.json_object import ObjectShape, flaw_of_flag
from shared.model.dead_letters import place_of
from shared.model.words import flaw_of_id
from shared.ports.letter_desk import LetterDesk

DEFAULT_LISTED: Final = 50
MOST_LISTED: Final = 100
MOST_IDS: Final = 100
"""Letters that one request may name."""


class DeadLetterRoutes:
    """A letter is replayed or dropped whole, may hold counters of anybody, and some can't be read at all. So only keys
    without prefixes may use these routes.
    """

    def __init__(self, desk: LetterDesk, bodies: Bodies) -> None:
        self._desk = desk
        self._bodies = bodies
        ids = {"ids": _flaw_of_ids}
        flags = {"all": flaw_of_flag, "too_old": flaw_of_flag}
        self._replay = ObjectShape('{"ids": […]} or {"all": true}', ids | flags)
        self._drop = ObjectShape('{"ids": […]}', ids, required=("ids",))

    async def page(self, request: web.BaseRequest, query: Query) -> web.Response:
        """GET /v1/dead-letters"""
        limit = limit_of(query, DEFAULT_LISTED, MOST_LISTED)
        place = place_of(page_token_of(query))
        query.done()
        _check(request[CALLER])
        if place is None:
            raise Problem(422, "'page_token' must be the next_page_token of an answer", field="page_token")
        page = await self._desk.page(place, limit)
        rows = [asdict(row) for row in page.rows]
        token = page_token(page.next.written()) if page.next else None
        return _answer({"dead_letters": rows, "next_page_token": token, "complete": page.complete})

    async def replay(self, request: web.BaseRequest, query: Query) -> web.Response:
        """POST /v1/dead-letters/replay"""
        query.done()
        caller = request[CALLER]
        _check(caller)
        asked = await self._bodies.read_one(request, self._replay.read)
        ids, too_old = asked.get("ids"), asked.get("too_old", False)
        if (ids is None) != asked.get("all", False):
            raise Problem(422, "send either 'ids' or '\"all\": true'", field="ids")
        old = ", even if they are too old to tell whether they were counted" if too_old else ""
        note(caller, f"replay {'all dead letters' if ids is None else f'the dead letters {ids}'}{old}")
        result = asdict(await self._desk.replay(ids, too_old=too_old))
        result["reasons"] = [left._asdict() for left in result["reasons"]]
        return _answer(result)

    async def drop(self, request: web.BaseRequest, query: Query) -> web.Response:
        """POST /v1/dead-letters/drop"""
        query.done()
        caller = request[CALLER]
        _check(caller)
        ids = (await self._bodies.read_one(request, self._drop.read))["ids"]
        note(caller, f"drop the dead letters {ids}")
        result = asdict(await self._desk.drop(ids))
        result["dropped"] = [one._asdict() for one in result["dropped"]]
        return _answer(result)


def _check(caller: Caller) -> None:
    if caller.key is not None and not caller.may_use(""):
        raise Problem(403, f"the key {caller.key.id} has prefixes, and dead letters may hold counters of others")


def _answer(said: dict[str, Any]) -> web.Response:
    """The sums of an unreadable message may be larger than orjson writes."""
    return web.Response(body=line(json.dumps(said).encode()), headers=JSON)


def _flaw_of_ids(value: object) -> str | None:
    if type(value) is not list or not 1 <= len(value) <= MOST_IDS:
        return f"must be an array of 1 to {MOST_IDS} ids"
    return next((f"has an id that {flaw}" for flaw in map(flaw_of_id, value) if flaw), None)
