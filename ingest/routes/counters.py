"""The routes that read counters, lists of counters and receipts."""

from collections.abc import Sequence
from typing import Final

import orjson
from aiohttp import web

from ingest.access.caller import CALLER
from ingest.http.fair_lock import FairLock
from ingest.http.problems import Problem
from ingest.http.requests import Query, limit_of, page_token, page_token_of, unescape
from ingest.http.responses import Answer
from ingest.routes.receipt_status import Tracking
from shared.counters.all_names import AllNames
from shared.counters.reader import LONGEST_AGE, MOST_BASES, Reader
from shared.model.instants import written_at
from shared.model.jobs import flaw_of_prefix
from shared.model.words import MAX_ID_BYTES, Reading, flaw_of_name
from shared.ports.overlay import Overlay
from shared.ports.readings import CounterNames

READS: Final = 4
"""Reads that may take long, such as of many counters, at once. Tenants take turns."""
MOST_IDS: Final = 500
"""Envelopes that a receipt may name. No answer has a receipt with more: see `MOST_EVENTS` and `MAX_ITEMS`."""
MOST_LISTED: Final = 1_000
DEFAULT_LISTED: Final = 100


class ReadRoutes:
    """Answers reads. An answer that is not exact says so."""

    def __init__(
        self, reader: Reader, tracking: Tracking, store: CounterNames, overlay: Overlay, turns: FairLock
    ) -> None:
        self._reader = reader
        self._turns = turns
        self._tracking = tracking
        self._names = AllNames(store, overlay)
        self._rendered: dict[str, tuple[Reading, bytes]] = {}

    async def one(self, name: str, query: Query) -> web.Response:
        """GET /v1/counters/{name}"""
        max_age = query.seconds("max_age", LONGEST_AGE)
        query.done()
        return Answer(await self.read_one(name, max_age))

    async def read_one(self, name: str, max_age: float | None = None) -> bytes:
        """The JSON of a counter."""
        (reading,) = await self._reader.read((name,), max_age)
        return self._render(reading)

    async def several(self, request: web.BaseRequest, query: Query) -> web.Response:
        """GET /v1/counters"""
        async with self._turns.of(request[CALLER].tenant):
            return await self._several(request, query)

    async def _several(self, request: web.BaseRequest, query: Query) -> web.Response:
        max_age = query.seconds("max_age", LONGEST_AGE)
        names = query.all("name")
        token: str | None = None
        said = b""
        if names:
            query.done()
            if len(names) > MOST_LISTED:
                raise Problem(422, f"at most {MOST_LISTED} names in one request", field="name")
            for name in names:
                if flaw := flaw_of_name(name):
                    raise Problem(422, f"the counter's name {flaw}", field="name")
            request[CALLER].check_names(names)
            readings = await self._reader.read(names, max_age)
        else:
            prefix = query.one("prefix") or ""
            if flaw := flaw_of_prefix(prefix):
                raise Problem(422, f"'prefix' {flaw}", field="prefix")
            limit = limit_of(query, DEFAULT_LISTED, MOST_LISTED)
            after = page_token_of(query)
            query.done()
            page, token, exact = await self._pages(request[CALLER].prefixes_under(prefix), after, limit)
            said = b',"exact":true' if exact else b',"exact":false'
            found = await self._reader.read(page, max_age)
            readings = [reading for reading in found if reading.exists]  # a deleted counter may still be stored
        next_token = orjson.dumps(token) if token else b"null"
        counters = b",".join([self._render(reading) for reading in readings])
        return Answer(b'{"counters":[%b],"next_page_token":%b%b}' % (counters, next_token, said))

    async def receipt(self, request: web.BaseRequest, segment: str, query: Query) -> web.Response:
        """GET /v1/receipts/{id}"""
        query.done()
        receipt = unescape(segment, "receipt")
        ids = receipt.split(".")
        if not receipt.isascii() or not all(ids) or (len(ids) == 1 and len(receipt) > MAX_ID_BYTES):
            raise Problem(422, "this is not a receipt: use the 'receipt' of an answer to a POST", field="receipt")
        caller = request[CALLER]
        asked = caller.ids_in(receipt).split(".")
        if len(asked) > MOST_IDS:
            raise Problem(422, f"a receipt names at most {MOST_IDS} ids, this one names {len(asked)}", field="receipt")
        async with self._turns.of(caller.tenant):
            state = await self._tracking.state(asked)
        return Answer(orjson.dumps({"receipt": receipt, "state": state}))

    async def _pages(self, prefixes: Sequence[str], after: str, limit: int) -> tuple[list[str], str | None, bool]:
        """A page of the names under these prefixes, which are in order; the token of the next page; and whether none is
        missing.
        """
        names: list[str] = []
        all_exact = True
        for prefix in prefixes:
            if len(names) == limit:
                return names, page_token(names[-1]), all_exact
            room = limit - len(names)
            more, exact = await self._names.listed(prefix, after, room + 1)
            names += more[:room]
            all_exact = all_exact and exact
            if len(more) > room:
                return names, page_token(names[-1]), all_exact
        return names, None, all_exact

    def _render(self, reading: Reading) -> bytes:
        cached = self._rendered.get(reading.name)
        if cached is not None and cached[0] is reading:
            return cached[1]
        if len(self._rendered) >= MOST_BASES:
            self._rendered.clear()
        rendered = render(reading)
        self._rendered[reading.name] = (reading, rendered)
        return rendered


def render(reading: Reading) -> bytes:
    """The JSON of a counter. It is not made by orjson, which refuses integers beyond 64 bits."""
    return (
        b'{"name":%b,"value":%d,"applied":%d,"pending":%d,"exact":%b,"as_of":"%b","shards":%d,"exists":%b,'
        b'"generation":%d}'
    ) % (
        orjson.dumps(reading.name),
        reading.value,
        reading.applied,
        reading.pending,
        b"true" if reading.exact else b"false",
        written_at(reading.as_of).encode(),
        reading.shards,
        b"true" if reading.exists else b"false",
        reading.generation,
    )
