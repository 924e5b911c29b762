"""The routes that stream counters as server-sent events."""

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from ingest.access.caller import CALLER
from ingest.access.keys import Key
from ingest.http.fair_lock import FairLock
from ingest.http.problems import Problem
from ingest.http.requests import Query, told_when_it_leaves
from ingest.http.responses import SECURE
from ingest.routes.watches import LEAST, MOST_NAMES, Shown, Watch, Watches
from shared.model.jobs import flaw_of_prefix
from shared.model.words import flaw_of_name
from shared.runtime.clock import Clock

HEARTBEAT: Final = 10.0
"""Seconds after which a comment is written if nothing has changed: proxies see life, and we see who has gone."""
LEAVING: Final = 1.0
"""The same for a client that has closed its sending side: it reads no more, as a rule."""
_HEADERS: Final = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",  # nginx
    **SECURE,
}


class WatchRoutes:
    """A stream begins with the present values. Whoever reads slowly gets the newest values, and never a queue."""

    def __init__(self, watches: Watches, clock: Clock, turns: FairLock) -> None:
        """Tenants take `turns` to read what a stream begins with."""
        self._watches = watches
        self._turns = turns
        self._clock = clock

    async def one(self, request: web.BaseRequest, name: str, query: Query) -> web.StreamResponse:
        """GET /v1/counters/{name}/watch"""
        query.done()
        return await self._stream(request, Watch([name]), last=request.headers.get("Last-Event-ID", ""))

    async def several(self, request: web.BaseRequest, query: Query) -> web.StreamResponse:
        """GET /v1/watch"""
        names, prefix = [*dict.fromkeys(query.all("name"))], query.one("prefix")
        query.done()
        caller = request[CALLER]
        if prefix is None:
            _check(names)
            caller.check_names(names)
            return await self._stream(request, Watch(names))
        if names:
            raise Problem(422, "send 'name' or 'prefix', not both", field="prefix")
        if flaw := flaw_of_prefix(prefix):
            raise Problem(422, f"'prefix' {flaw}", field="prefix")
        if not (prefixes := caller.prefixes_under(prefix)):
            caller.check_prefix(prefix)
        return await self._stream(request, Watch(prefixes=prefixes))

    async def _stream(self, request: web.BaseRequest, watch: Watch, last: str | None = None) -> web.StreamResponse:
        """`last`: the id of the last event that the client has seen, if its events have ids."""
        places = max(MOST_NAMES if watch.prefixes else len(watch.names), LEAST)
        with self._watches.places.take(request[CALLER].tenant, places):
            async with self._turns.of(request[CALLER].tenant):
                await self._watches.begin(watch)
            if request.method == "HEAD":
                return web.Response(headers=_HEADERS)
            response = web.StreamResponse(headers=_HEADERS)
            with (
                self._watches.open(watch),
                told_when_it_leaves(request, watch.leave),
                suppress(ConnectionError),  # the client has gone
            ):
                await self._write(await response.prepare(request), watch, last, request[CALLER].key)
            return response

    async def _write(
        self, writer: AbstractStreamWriter | None, watch: Watch, last: str | None, key: Key | None
    ) -> None:
        """Until the watch has ended, or the key has expired."""
        assert writer is not None  # noqa: S101 (a response is prepared once)
        begin = b"retry: 1000\n\n"  # milliseconds after which a browser connects again
        while not watch.ended and (left := self._seconds_left(key)) > 0:
            news = await watch.news(min(LEAVING if watch.leaves else HEARTBEAT, left))
            if self._seconds_left(key) <= 0:
                return
            events = b"".join([_event(shown, numbered=last is not None) for shown in news if _id(shown) != last])
            await writer.write(begin + events or b":\n\n")
            await writer.drain()  # until the client has read all of it
            begin, last = b"", None if last is None else ""
        if watch.problem is not None:
            await writer.write(b"event: problem\ndata: %b\n\n" % watch.problem.document())

    def _seconds_left(self, key: Key | None) -> float:
        """Until the key expires."""
        return math.inf if key is None or key.expires is None else key.ends - self._clock.now()


def _check(names: Sequence[str]) -> None:
    if not names:
        raise Problem(422, "name what to watch: 'name', once for each counter, or 'prefix'", field="name")
    if len(names) > MOST_NAMES:
        raise Problem(422, f"at most {MOST_NAMES:,} names in one request", field="name")
    for name in names:
        if flaw := flaw_of_name(name):
            raise Problem(422, f"the counter's name {flaw}", field="name")


def _event(shown: Shown, *, numbered: bool) -> bytes:
    id_ = b"id: %b\n" % _id(shown).encode() if numbered else b""
    return b"%bdata: %b\n\n" % (id_, shown.body)


def _id(shown: Shown) -> str:
    """Of the state of one counter: a client that has seen it need not be told again."""
    return f"{shown.value}.{shown.exact:d}{shown.exists:d}"
