"""The route that changes a counter's number of shards."""

import orjson
from aiohttp import web

from ingest.http.bodies import MOST_OF_ONE, Bodies
from ingest.http.problems import Problem
from ingest.http.requests import Query
from ingest.http.responses import Answer
from ingest.parsing.parse import SMALL
from shared.config.settings import flaw_of_shards
from shared.counters.compaction import Compactor
from shared.model.errors import CrowdedError, NotAloneError
from shared.ports.shards import ShardNumbers
from shared.runtime import metrics
from shared.wire import strict_json


class Shards:
    """Never fewer by accident: only who says `compact` gets fewer, and not beside an ndb application."""

    def __init__(self, store: ShardNumbers, compactor: Compactor, bodies: Bodies, max_shards: int) -> None:
        self._store = store
        self._compactor = compactor
        self._bodies = bodies
        self._max_shards = max_shards

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
            if field not in {"shards", "compact"}:
                raise Problem(422, f'unknown field {field[:100]!r}: the body must be {{"shards": n}}', field=field)
        if flaw := flaw_of_shards(data.get("shards"), self._max_shards):
            raise Problem(422, f"'shards' {flaw}", field="shards")
        shards = data["shards"]
        compact = data.get("compact", False)
        if type(compact) is not bool:
            raise Problem(422, "'compact' must be true or false", field="compact")
        if compact:
            await self._compact(name, shards)
        now = await self._store.raise_shards(name, shards)
        return Answer(orjson.dumps({"name": name, "shards": now}))

    async def _compact(self, name: str, shards: int) -> None:
        before = (await self._store.shards([name])).get(name, 0)
        try:
            if await self._compactor.compact(name, shards) < before:
                metrics.COMPACTIONS.labels("asked").inc()
        except NotAloneError as error:
            raise Problem(409, str(error)) from None
        except CrowdedError as error:
            raise Problem(409, f"{error}: ask for more") from None
