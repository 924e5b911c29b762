"""The routes that set, reset and delete a counter."""

import orjson
from aiohttp import web

from ingest.http.bodies import MOST_OF_ONE, Bodies
from ingest.http.problems import Problem
from ingest.http.requests import Query, idempotency_key_of
from ingest.http.responses import Answer
from ingest.parsing.parse import SMALL
from shared.counters.setter import DELETE, RESET, SET, ChangeRequest, Setter
from shared.model.words import MAX_DELTA
from shared.wire import strict_json


class Sets:
    """Each answers with the value before and after, and under an Idempotency-Key happens once."""

    def __init__(self, setter: Setter, bodies: Bodies) -> None:
        self._setter = setter
        self._bodies = bodies

    async def put(self, request: web.BaseRequest, name: str, query: Query) -> web.Response:
        """PUT /v1/counters/{name}"""
        return await self._set(request, name, query, SET)

    async def reset(self, request: web.BaseRequest, name: str, query: Query) -> web.Response:
        """POST /v1/counters/{name}/reset"""
        return await self._set(request, name, query, RESET)

    async def delete(self, request: web.BaseRequest, name: str, query: Query) -> web.Response:
        """DELETE /v1/counters/{name}"""
        return await self._set(request, name, query, DELETE)

    async def _set(self, request: web.BaseRequest, name: str, query: Query, kind: str) -> web.Response:
        query.done()
        key = idempotency_key_of(request)
        try:
            body, _ = await self._bodies.read(request, value_of if kind == SET else nothing, MOST_OF_ONE, SMALL)
        except strict_json.JsonError as error:
            raise Problem(400, f"the body is {error}") from None
        before, after = await self._setter.set(name, ChangeRequest(kind, body, key))
        # By hand: a total may be larger than the integers that orjson writes.
        return Answer(b'{"name":%b,"before":%d,"after":%d}' % (orjson.dumps(name), before, after))


def value_of(body: bytes) -> int:
    data = strict_json.loads(body)
    if type(data) is not dict:
        raise Problem(400, 'the body must be {"value": n}')
    for field in data:
        if field != "value":
            raise Problem(422, f'unknown field {field[:100]!r}: the body must be {{"value": n}}', field=field)
    value = data.get("value")
    if type(value) is not int or not -MAX_DELTA <= value <= MAX_DELTA:
        raise Problem(422, f"'value' must be a whole number between -{MAX_DELTA} and {MAX_DELTA}", field="value")
    return value


def nothing(body: bytes) -> int:
    """An empty body, or an empty object: what some clients send for it."""
    data = strict_json.loads(body) if body.strip() else {}
    if type(data) is not dict:
        raise Problem(400, "the body must be empty")
    for field in data:
        raise Problem(422, f"unknown field {field[:100]!r}: the body must be empty", field=field)
    return 0
