"""The route of the fleet: which processes the store knows, and whether reads can be exact."""

from collections.abc import Mapping
from typing import Any, Final

import orjson
from aiohttp import web

from ingest.http.problems import Problem
from ingest.http.requests import Query
from ingest.http.responses import JSON, line
from shared.fleet.fleet_view import FleetView
from shared.model.errors import TransientError
from shared.model.fleet import Fleet, FlusherRecord, PublisherRecord
from shared.model.instants import written_at
from shared.model.times import StoreMillis

JOINED: Final = "joined"
APART: Final = "apart"
STOPPED: Final = "stopped"
STRUCK: Final = "struck"
AT_WORK: Final = "at work"


class FleetRoute:
    """Answers from the entity that all processes on one store share. A file has none."""

    def __init__(self, looks: FleetView | None) -> None:
        self._looks = looks

    async def get(self, _: web.BaseRequest, query: Query) -> web.Response:
        """GET /v1/fleet"""
        query.done()
        if self._looks is None:
            raise Problem(404, "this service uses a SQLite file, which has no list of its processes")
        look = await self._looks.get()
        if look is None:
            raise TransientError("the store does not answer, so its list of processes can't be read")
        return web.Response(body=line(orjson.dumps(_said(look.fleet, look.now))), headers=JSON)


def _said(fleet: Fleet, now: StoreMillis) -> Mapping[str, Any]:
    return {
        "whole": fleet.whole(),
        "as_of": _instant(now),
        "ingests": [_ingest(fleet, name, one) for name, one in sorted(fleet.members.items())],
        "flushers": [_flusher(name, one) for name, one in sorted(fleet.flushers.items())],
    }


def _ingest(fleet: Fleet, name: str, record: PublisherRecord) -> Mapping[str, Any]:
    state = STOPPED if record.stopped else STRUCK if record.struck else JOINED if fleet.joined(record) else APART
    spool = bool(record.spool)
    return {"id": name, "topic": record.topic, "state": state, "spool": spool, "struck": _instant(record.struck)}


def _flusher(name: str, record: FlusherRecord) -> Mapping[str, Any]:
    state = STRUCK if record.struck else AT_WORK
    return {"id": name, "topic": record.topic, "state": state, "struck": _instant(record.struck)}


def _instant(time: StoreMillis) -> str | None:
    return written_at(time / 1000) if time else None
