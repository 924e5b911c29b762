"""Owns the fast path of the commonest requests, a POST of one increment and a GET of one counter: what they look like,
and their answers.

aiohttp's objects for a request and its response cost more than all the rest. Without the fast path a POST reaches 0.4
times the rate of an empty aiohttp handler, with it 0.9 (`python -m bench --only post`). Only requests of a plain form
are taken. All others are left to aiohttp and the routes; the answers are the same.
"""

import asyncio
import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from multidict import CIMultiDict, CIMultiDictProxy

from ingest.access.caller import Caller
from ingest.access.credentials import Credentials, credentials_in
from ingest.api.counters import ReadRoutes
from ingest.api.increments import ACCEPTED, add, answer_of
from ingest.http.problems import Problem, problem_of
from ingest.http.requests import name_of
from ingest.http.responses import written
from ingest.parsing import parse
from ingest.parsing.json_object import BodyError
from ingest.publishing.batch import Draft
from ingest.publishing.new_names import NewNames
from ingest.publishing.publishing import Publishing
from ingest.server.request_times import GET, POST, answered
from shared.model.words import flaw_of_id
from shared.runtime import metrics
from shared.runtime.request_context import REQUEST, RequestContext
from shared.runtime.traces import sampled_in

LARGEST: Final = 4_096
"""Most bytes of a request on the fast path. It is below each limit of aiohttp, so no limit is missed."""
_MOST_HEADERS: Final = 64
_LINE: Final = re.compile(rb"(POST|GET) (/v1/counters/[A-Za-z0-9._~!$&'()*+,;=:@%-]+) HTTP/1\.1\r\n")
_PREFIX: Final = len("/v1/counters/")
_HEADER: Final = re.compile(rb"([A-Za-z0-9_-]++): *+([ -~]*+)")
_TINY: Final = 16
"""Bytes of a body without an id, most often. Such bodies are the same again and again, so parsing them is cached."""
_LENGTH: Final = re.compile(r"0|[1-9][0-9]{0,3}")
_LEFT: Final = frozenset(
    {
        "content-encoding",
        "expect",
        "http2-settings",
        "origin",
        "proxy-connection",
        "sec-websocket-key1",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that change what a request means, how aiohttp reads it, or how it is answered. Requests with one of them are
left to aiohttp.
"""


class Head(NamedTuple):
    """The headers of a plain request, and what the fast path needs of them."""

    headers: CIMultiDictProxy[str]
    length: int
    key: str | None
    said: Credentials


Plain = tuple[str, str, Head, bytes]
"""Method, path, headers and body of a whole request. It is made for each request; a named tuple would cost more."""
End = Callable[[asyncio.Future[Any]], bytes | None]
"""The bytes of the answer, of what is waited for. None if it was cancelled, which leaves nothing to answer."""


class FastPath:
    """Takes a request in three steps: `recognise` it, `begin` it, and answer when what it waits for is done."""

    def __init__(
        self,
        publishing: Publishing,
        reads: ReadRoutes,
        max_body_bytes: int,
        new_names: NewNames | None = None,
        *,
        traced: bool = False,
    ) -> None:
        """With `new_names`, requests with a name that it does not know are left to the routes, which can wait. If
        `traced`, so are requests of a trace that is recorded.
        """
        self._publishing = publishing
        self._reads = reads
        self._head = lru_cache(maxsize=512)(partial(_head, traced=traced))
        """It is cached, as clients send the same headers every time."""
        self._new_names = new_names
        self._max_body_bytes = max_body_bytes

    def recognise(self, data: bytes) -> Plain | None:
        """The request, if the data is one whole request of such a kind and nothing else. What it says may be wrong."""
        if len(data) > LARGEST or (line := _LINE.match(data)) is None:
            return None
        start = line.end()
        end = data.find(b"\r\n\r\n", start)
        if end < 0 or (head := self._head(data[start:end])) is None:
            return None
        body = data[end + 4 :]
        if len(body) != head.length or head.length > self._max_body_bytes:
            return None
        path = line[2].decode()
        if line[1] == b"GET":
            return None if body else ("GET", path, head, body)
        if self._new_names is not None and not self._new_names.knows(unquote(path[_PREFIX:])):
            return None
        return "POST", path, head, body

    def begin(self, request: Plain, caller: Caller, begun: float) -> tuple[asyncio.Future[Any], End]:
        """Begin a request that came then. Returns what it waits for, and what makes the answer of that. Raises what the
        handler of its route would; then nothing was counted.
        """
        method, path, head, body = request
        name = name_of(path[_PREFIX:])
        if method == "GET":
            token = REQUEST.set(RequestContext(head.headers))
            reading = asyncio.get_running_loop().create_task(self._reads.read_one(name))
            REQUEST.reset(token)
            return reading, partial(_read, begun)
        try:
            delta, client_id = _single(body) if len(body) <= _TINY else parse.single(body, None)
        except BodyError:
            metrics.REJECTED.inc()
            raise
        caller.spend(1)
        if client_id is None:
            client_id = head.key
        draft = add(self._publishing, name, delta, client_id, caller)
        place = -1 if client_id is None else len(draft.keyed) - 1
        draft.begun.append(begun)
        return self._publishing.durable(draft), partial(_counted, draft, place, caller)


def _read(begun: float, reading: asyncio.Future[bytes]) -> bytes | None:
    """The answer to a GET."""
    if reading.cancelled():
        return None
    problem = _problem_of(reading)
    answered(GET, 200 if problem is None else problem.status, begun)
    return written(200, reading.result()) if problem is None else problem.written()


def _counted(draft: Draft, place: int, caller: Caller, durable: asyncio.Future[None]) -> bytes | None:
    """The answer to a POST whose increment is in the draft, at this place among those with ids, or -1."""
    if durable.cancelled():
        return None
    problem = _problem_of(durable)
    if draft.begun:  # the first of its requests: all are answered in this turn of the event loop
        answered(POST, ACCEPTED if problem is None else problem.status, *draft.begun)
        draft.begun = []
    if problem is not None:
        return problem.written()
    return written(ACCEPTED, answer_of(draft, caller, is_second=place in draft.second_uses))


def _problem_of(done: asyncio.Future[Any]) -> Problem | None:
    error = done.exception()
    assert error is None or isinstance(error, Exception), "a future holds no other kind of error"  # noqa: S101
    return None if error is None else problem_of(error)


@lru_cache(maxsize=512)
def _single(body: bytes) -> tuple[int, str | None]:
    return parse.single(body, None)


def _head(block: bytes, *, traced: bool = False) -> Head | None:
    """What the headers say; None if they are not plain."""
    lines = block.split(b"\r\n")
    if len(lines) > _MOST_HEADERS:
        return None
    headers: CIMultiDict[str] = CIMultiDict()
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None:
            return None
        name = header[1].decode()
        if name in headers or name.lower() in _LEFT:
            return None
        headers[name] = header[2].decode().rstrip(" ")
    if "host" not in headers or headers.get("connection", "keep-alive").lower() != "keep-alive":
        return None
    length, key = headers.get("content-length", "0"), headers.get("idempotency-key")
    if not _LENGTH.fullmatch(length) or (key is not None and flaw_of_id(key)):
        return None
    if traced and sampled_in(headers.get("traceparent", "")):
        return None
    proxy = CIMultiDictProxy(headers)
    return Head(proxy, int(length), key, credentials_in(proxy))
