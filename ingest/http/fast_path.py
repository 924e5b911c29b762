"""The fast path of the commonest requests, a POST of one increment and a GET of one counter: what they look like, and
their answers. The front asks here first.

aiohttp's objects for a request and its response cost more than all the rest. Without the fast path a POST reaches 0.4
times the rate of an empty aiohttp handler, with it 0.9 (`python -m bench --only post`). Only good requests of a plain
form are taken. All others are left to aiohttp and the routes; the answers are the same.
"""

import asyncio
import re
from collections.abc import Mapping
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from multidict import CIMultiDict, CIMultiDictProxy

from ingest.accept.drafts import Draft, accepted_one
from ingest.accept.new_names import NewNames
from ingest.accept.publishing import Publishing
from ingest.access.callers import Caller, Credentials, credentials_in
from ingest.access.door import Door
from ingest.api.counters import ReadRoutes
from ingest.api.routes import Target, find
from ingest.http.problems import Problem, problem_of
from ingest.http.requests import name_of
from ingest.parsing import parse
from ingest.parsing.parse import BodyError
from shared.http.answers import written
from shared.http.front import Front
from shared.model.words import Increment, flaw_of_id
from shared.runtime import metrics
from shared.runtime.traces import REQUEST, RequestContext, sampled_in

if TYPE_CHECKING:
    from ingest.http.router import RequestLog

POST: Final = "POST /v1/counters/{name}"
GET: Final = "GET /v1/counters/{name}"
ACCEPTED: Final = 202
_TARGET: Final = re.compile(rb"/v1/counters/([A-Za-z0-9._~!$&'()*+,;=:@%-]+)")
_VALUE: Final = re.compile(r"[ -~]*")


class Head(NamedTuple):
    """The headers of a plain request, and what the fast path needs of them."""

    headers: CIMultiDictProxy[str]
    key: str | None
    said: Credentials


class Request(NamedTuple):
    """A plain request. It is remembered as long as clients send it again."""

    target: Target
    name: str
    head: Head
    increment: tuple[int, str | None] | None
    """The delta and the id; None if the counter is read."""

    @property
    def is_usual(self) -> bool:
        return self.increment is None or self.increment[1] is None


class FastPath:
    """Takes good requests of plain form."""

    def __init__(
        self,
        door: Door,
        publishing: Publishing,
        reads: ReadRoutes,
        max_body_bytes: int,
        new_names: NewNames | None = None,
        *,
        log: "RequestLog",
        traced: bool = False,
    ) -> None:
        """With `new_names`, requests with a name that it does not know are left to the routes, which can wait. So are
        requests that `log` wants, and, if `traced`, those of a trace that is recorded.
        """
        self._door = door
        self._publishing = publishing
        self._reads = reads
        self._traced = traced
        self._log = log
        self._new_names = new_names
        self._max_body_bytes = max_body_bytes

    def head(self, headers: Mapping[bytes, bytes]) -> Head | None:
        found: CIMultiDict[str] = CIMultiDict()
        for name, value in headers.items():
            text = value.decode("latin-1")
            if not _VALUE.fullmatch(text):
                return None
            found[name.decode()] = text
        key = found.get("idempotency-key")
        if "host" not in found or (key is not None and flaw_of_id(key)):
            return None
        if self._traced and sampled_in(found.get("traceparent", "")):
            return None
        proxy = CIMultiDictProxy(found)
        return Head(proxy, key, credentials_in(proxy))

    def recognise(self, method: bytes, target: bytes, minor: bytes, head: Head, body: bytes) -> Request | None:
        found = _TARGET.fullmatch(target)
        if found is None or minor != b"1" or len(body) > self._max_body_bytes:
            return None
        path = target.decode()
        try:
            name = name_of(found[1].decode())
            if method == b"GET" and not body:
                return Request(find("GET", path), name, head, None)
            if method == b"POST":
                delta, client_id = parse.single(body, None)
                return Request(find("POST", path), name, head, (delta, head.key if client_id is None else client_id))
        except (BodyError, Problem):
            pass
        return None

    def begin(self, request: Request, front: Front) -> bytes | bool:
        target, name, head, increment = request
        if self._log.left:
            return False
        if increment is None:
            return self._read(target, name, head, front)
        if self._new_names is not None and not self._new_names.knows(name):
            return False
        begun = perf_counter()
        try:
            caller = self._door.enter(target, head.said, front.peer)
            front.tenant = caller.tenant
            caller.spend(1)
            delta, client_id = increment
            if client_id is None:
                draft = self._publishing.add(name, delta, caller.tenant)
            else:
                draft = self._publishing.add_keyed(Increment(name, delta, caller.owned(client_id)), caller.tenant)
        except Exception as error:
            return _refused(POST, error, begun)
        place = -1 if client_id is None else len(draft.keyed) - 1
        draft.begun.append(begun)
        self._publishing.durable(draft).add_done_callback(partial(_counted, front, draft, place, caller))
        return True

    def _read(self, target: Target, name: str, head: Head, front: Front) -> bytes | bool:
        begun = perf_counter()
        try:
            front.tenant = self._door.enter(target, head.said, front.peer).tenant
        except Exception as error:
            return _refused(GET, error, begun)
        token = REQUEST.set(RequestContext(head.headers))
        reading = asyncio.get_running_loop().create_task(self._reads.read_one(name))
        REQUEST.reset(token)
        reading.add_done_callback(partial(_has_read, front, begun))
        return True


def answered(route: str, status: int, *begun: float) -> None:
    """Count requests that began then, by `perf_counter`, and are answered now."""
    metrics.REQUEST_SECONDS.labels(route, f"{status // 100}xx").observe_since(begun, perf_counter())


def _refused(route: str, error: Exception, begun: float) -> bytes:
    """The answer to a request of which nothing was counted."""
    problem = problem_of(error)
    answered(route, problem.status, begun)
    return problem.written()


def _has_read(front: Front, begun: float, reading: asyncio.Future[bytes]) -> None:
    if reading.cancelled():
        front.answer(None)
        return
    problem = _problem_of(reading)
    answered(GET, 200 if problem is None else problem.status, begun)
    front.answer(written(200, reading.result()) if problem is None else problem.written())


def _counted(front: Front, draft: Draft, place: int, caller: Caller, durable: asyncio.Future[None]) -> None:
    """Answer a POST whose increment is in the draft, at this place among those with ids, or -1."""
    if durable.cancelled():
        front.answer(None)
        return
    problem = _problem_of(durable)
    if draft.begun:  # the first of its requests: all are answered in this turn of the event loop
        answered(POST, ACCEPTED if problem is None else problem.status, *draft.begun)
        draft.begun = []
    if problem is not None:
        front.answer(problem.written())
    else:
        front.answer(written(ACCEPTED, accepted_one(caller.receipt(draft.id), is_second=place in draft.second_uses)))


def _problem_of(done: asyncio.Future[Any]) -> Problem | None:
    error = done.exception()
    assert error is None or isinstance(error, Exception), "a future holds no other kind of error"  # noqa: S101
    return None if error is None else problem_of(error)
