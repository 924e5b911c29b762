"""The routes that set, reset and delete a counter."""

from typing import Final

import orjson
from aiohttp import web

from ingest.access.audit import note
from ingest.access.caller import CALLER
from ingest.http.bodies import Bodies
from ingest.http.requests import Query, idempotency_key_of
from ingest.http.responses import Answer
from ingest.parsing.json_object import ObjectShape
from ingest.publishing.new_names import NewNames
from shared.counters.setter import SET, ChangeRequest, Setter
from shared.model.words import flaw_of_delta

_VALUE: Final = ObjectShape('{"value": n}', {"value": flaw_of_delta}, required=("value",))
_NOTHING: Final = ObjectShape("empty", {})


class SetRoutes:
    """Each answer has the value before and after. A request with an Idempotency-Key can be sent again safely."""

    def __init__(self, setter: Setter, bodies: Bodies, new_names: NewNames | None = None) -> None:
        self._setter = setter
        self._bodies = bodies
        self._new_names = new_names

    async def change(self, request: web.BaseRequest, name: str, query: Query, kind: str) -> web.Response:
        """PUT and DELETE /v1/counters/{name}, POST /v1/counters/{name}/reset"""
        query.done()
        caller = request[CALLER]
        key = idempotency_key_of(request)
        body = await self._bodies.read_one(request, (_VALUE if kind == SET else _NOTHING).read)
        value = body.get("value", 0)
        if kind == SET and self._new_names is not None:
            await self._new_names.check(name)
        note(caller, f"{kind} {name!r}" + (f" to {value}" if kind == SET else ""))
        wish = ChangeRequest(kind, value, None if key is None else caller.owned(key))
        before, after = await self._setter.set(name, wish)
        # A total may be larger than the integers that orjson writes.
        return Answer(b'{"name":%b,"before":%d,"after":%d}' % (orjson.dumps(name), before, after))
