"""The route that raises a counter's number of shards."""

import orjson
from aiohttp import web

from ingest.answers import Answer
from ingest.bodies import MOST_OF_ONE, Bodies
from ingest.parse import SMALL
from ingest.problems import Problem
from ingest.requests import Query
from shared import strict_json
from shared.ports import Store
from shared.settings import Settings


class Shards:
    """Never fewer: an increment might be on its way to the highest one."""

    def __init__(self, store: Store, bodies: Bodies, settings: Settings) -> None:
        self._store = store
        self._bodies = bodies
        self._settings = settings

    async def put(self, request: web.BaseRequest, name: str, query: Query) -> web.Response:
        """PUT /v1/counters/{name}/shards"""
        query.done()
        try:
            data, _ = await self._bodies.read(request, strict_json.loads, MOST_OF_ONE, SMALL)
        except strict_json.JsonError as error:
            raise Problem(400, f"the body is {error}") from None
        if type(data) is not dict:
            raise Problem(400, 'the body must be {"shards": n}')
        for field in data:
            if field != "shards":
                raise Problem(422, f'unknown field {field[:100]!r}: the body must be {{"shards": n}}', field=field)
        shards = data.get("shards")
        if type(shards) is not int or not 1 <= shards <= self._settings.max_shards:
            raise Problem(
                422,
                f"'shards' must be a whole number from 1 to {self._settings.max_shards} (COUNTERSINK_MAX_SHARDS)",
                field="shards",
            )
        now = await self._store.raise_shards(name, shards)
        return Answer(orjson.dumps({"name": name, "shards": now}))
