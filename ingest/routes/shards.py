"""The route that changes a counter's number of shards."""

from functools import partial

import orjson
from aiohttp import web

from ingest.access.audit import note
from ingest.access.caller import CALLER
from ingest.http.bodies import Bodies
from ingest.http.problems import Problem
from ingest.http.requests import Query
from ingest.http.responses import Answer
from ingest.parsing.json_object import Flaw, ObjectShape, flaw_of_flag
from ingest.publishing.new_names import NewNames
from shared.config.settings import flaw_of_shards
from shared.counters.compaction import Compactor
from shared.model.errors import CrowdedError, NotAloneError
from shared.ports.shards import ShardNumbers
from shared.runtime import metrics


class ShardRoutes:
    """Raises a counter's number of shards. Only `compact` lowers it, and not where an ndb application writes."""

    def __init__(
        self,
        store: ShardNumbers,
        compactor: Compactor,
        bodies: Bodies,
        max_shards: int,
        new_names: NewNames | None = None,
    ) -> None:
        self._store = store
        self._compactor = compactor
        self._bodies = bodies
        self._new_names = new_names
        fields: dict[str, Flaw] = {"shards": partial(flaw_of_shards, most=max_shards), "compact": flaw_of_flag}
        self._shape = ObjectShape('{"shards": n}', fields, required=("shards",))

    async def put(self, request: web.BaseRequest, name: str, query: Query) -> web.Response:
        """PUT /v1/counters/{name}/shards"""
        query.done()
        data = await self._bodies.read_one(request, self._shape.read)
        shards = data["shards"]
        if self._new_names is not None:
            await self._new_names.check(name)
        note(request[CALLER], f"give {name!r} {shards} shards" + (", compacted" if data.get("compact") else ""))
        if data.get("compact", False):
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
            raise Problem(409, f"{error}: choose a larger number") from None
