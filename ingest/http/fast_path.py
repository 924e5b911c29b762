"""The fast path of the commonest requests: POSTs of one increment or of a batch, and GETs of one counter or of several.
What they look like, and their answers. The front asks here first.

aiohttp's objects for a request and its response cost more than all the rest of an increment. Without the fast path a
POST reaches 0.4 times the rate of an empty aiohttp handler, with it 0.9 (`python -m bench --only post`). Only good
requests of a plain form are taken. All others are left to aiohttp and the routes; the answers are the same.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from multidict import CIMultiDict, CIMultiDictProxy

from ingest.accept.admission import weight_of
from ingest.accept.drafts import MAX_ENTRIES, Batch, Draft, Uses, accepted_many, accepted_one
from ingest.accept.new_names import NewNames
from ingest.accept.publishing import Publishing
from ingest.access.callers import Caller, Credentials, credentials_in
from ingest.access.door import Door
from ingest.api.counters import ListAsks, ReadRoutes
from ingest.api.fields import Age, read_parameters
from ingest.api.routes import Target, find
from ingest.http.bodies import LARGE, SMALL, Bodies
from ingest.http.problems import Problem, problem_of
from ingest.http.requests import Query, name_of
from ingest.parsing import parse
from ingest.parsing.parse import BodyError
from shared.http.answers import written
from shared.http.front import Front
from shared.model.words import Increment, flaw_of_id
from shared.runtime import metrics
from shared.runtime.retry import all_of
from shared.runtime.traces import REQUEST, RequestContext, sampled_in

if TYPE_CHECKING:
    from ingest.http.router import RequestLog

POST: Final = "POST /v1/counters/{name}"
_MANY: Final = find("POST", "/v1/increments")
_BATCH: Final = _MANY.label
ACCEPTED: Final = 202
_TARGET: Final = re.compile(rb"/v1/counters(?:/([A-Za-z0-9._~!$&'()*+,;=:@%-]+))?(?:\?([!\"$-~]+))?")
_VALUE: Final = re.compile(r"[ -~]*")


class Head(NamedTuple):
    """The headers of a plain request, and what the fast path needs of them."""

    headers: CIMultiDictProxy[str]
    key: str | None
    said: Credentials


class One(NamedTuple):
    """A POST of one increment."""

    target: Target
    head: Head
    name: str
    delta: int
    id: str | None

    @property
    def is_usual(self) -> bool:
        """Whether it may be sent again, so that it pays to remember it."""
        return self.id is None


class Many(NamedTuple):
    """A POST of a batch. It belongs to the draft that it becomes, so it is not used again."""

    head: Head
    batch: Batch
    size: int
    """Bytes of the body."""

    @property
    def is_usual(self) -> bool:
        return False


class Read(NamedTuple):
    """A GET of one counter or of several."""

    target: Target
    label: str
    head: Head
    read: Callable[[Caller], Awaitable[bytes]]

    @property
    def is_usual(self) -> bool:
        return True


Request = One | Many | Read


class FastPath:
    """Takes good requests of plain form."""

    def __init__(
        self,
        door: Door,
        publishing: Publishing,
        reads: ReadRoutes,
        bodies: Bodies,
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
        self._bodies = bodies

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
        if minor != b"1" or len(body) > self._bodies.largest:
            return None
        try:
            if method == b"POST" and target == b"/v1/increments":
                return self._batch(head, body)
            found = _TARGET.fullmatch(target)
            if found is None:
                return None
            if method == b"GET" and not body:
                return self._of_get(target.decode(), found, head)
            if method == b"POST" and found[1] is not None and found[2] is None and len(body) <= SMALL:
                name = name_of(found[1].decode())
                delta, client_id = parse.single(body, None)
                client_id = head.key if client_id is None else client_id
                return One(find("POST", target.decode()), head, name, delta, client_id)
        except (BodyError, Problem):
            pass
        return None

    def _batch(self, head: Head, body: bytes) -> Many | None:
        parsed = parse.quick(body) if len(body) <= LARGE else None
        if parsed is None or (head.key is not None and len(parsed.batch.sums) > MAX_ENTRIES):
            return None
        return Many(head, parsed.batch, len(body))

    def _of_get(self, target: str, found: re.Match[bytes], head: Head) -> Read | None:
        path, _, text = target.partition("?")
        if "key=" in text:
            return None
        query, what = Query(text), find("GET", path, text)
        if found[1] is not None:
            name, asks = name_of(found[1].decode()), read_parameters(Age, query, head.headers)
            return Read(what, what.label, head, lambda _: self._reads.read_one(name, asks.max_age))
        all_asks = read_parameters(ListAsks, query, head.headers)
        return Read(what, what.label, head, lambda caller: self._reads.read_many(caller, all_asks))

    def begin(self, request: Request, front: Front) -> bytes | bool:
        if self._log.left:
            return False
        if isinstance(request, One):
            return self._count(request, front)
        if isinstance(request, Many):
            return self._count_many(request, front)
        return self._read(request, front)

    def _count(self, request: One, front: Front) -> bytes | bool:
        target, head, name, delta, client_id = request
        if self._new_names is not None and not self._new_names.knows(name):
            return False
        begun = perf_counter()
        try:
            caller = self._door.enter(target, head.said, front.peer)
            front.tenant = caller.tenant
            caller.spend(1)
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

    def _count_many(self, request: Many, front: Front) -> bytes | bool:
        head, batch, size = request
        if self._new_names is not None and not all(map(self._new_names.knows, batch.by_counter())):
            return False
        begun = perf_counter()
        try:
            caller = self._door.enter(_MANY, head.said, front.peer)
            front.tenant = caller.tenant
            self._bodies.check(caller.tenant, size)
            with self._bodies.judging(caller.tenant, size):
                caller.check_batch(batch)
            caller.spend(batch.increments)
            keyed, weight = len(batch.keyed), weight_of(batch.increments, size)
            key = None if head.key is None else caller.batch_id(head.key, batch.apart()[0].content)
            with self._bodies.judging(caller.tenant, size, batch.increments):
                drafts = self._publishing.add_batch(batch, caller.tenant, weight, key)
        except Exception as error:
            return _refused(_BATCH, error, begun)
        durable = [self._publishing.durable(draft) for draft in drafts]
        all_durable: asyncio.Future[Any] = durable[0] if len(durable) == 1 else asyncio.ensure_future(all_of(durable))
        receipt = caller.receipt(".".join(dict.fromkeys([draft.id for draft in drafts])))
        told = partial(_told, batch.increments, receipt, Uses(drafts, keyed))
        all_durable.add_done_callback(partial(_counted_many, front, begun, told))
        return True

    def _read(self, request: Read, front: Front) -> bytes | bool:
        target, label, head, read = request
        begun = perf_counter()
        try:
            caller = self._door.enter(target, head.said, front.peer)
            front.tenant = caller.tenant
        except Exception as error:
            return _refused(label, error, begun)
        token = REQUEST.set(RequestContext(head.headers))
        reading = asyncio.ensure_future(read(caller))
        REQUEST.reset(token)
        reading.add_done_callback(partial(_has_read, front, label, begun))
        return True


def answered(route: str, status: int, *begun: float) -> None:
    """Count requests that began then, by `perf_counter`, and are answered now."""
    metrics.REQUEST_SECONDS.labels(route, f"{status // 100}xx").observe_since(begun, perf_counter())


def _refused(route: str, error: Exception, begun: float) -> bytes:
    """The answer to a request of which nothing was counted."""
    problem = problem_of(error)
    answered(route, problem.status, begun)
    return problem.written()


def _has_read(front: Front, route: str, begun: float, reading: asyncio.Future[bytes]) -> None:
    if reading.cancelled():
        front.answer(None)
    elif (error := reading.exception()) is not None:
        front.answer(_refused(route, _of_us(error), begun))
    else:
        answered(route, 200, begun)
        front.answer(written(200, reading.result()))


def _counted(front: Front, draft: Draft, place: int, caller: Caller, durable: asyncio.Future[None]) -> None:
    """Answer a POST whose increment is in the draft, at this place among those with ids, or -1."""
    if durable.cancelled():
        front.answer(None)
        return
    error = durable.exception()
    problem = None if error is None else problem_of(_of_us(error))
    if draft.begun:  # the first of its requests: all are answered in this turn of the event loop
        answered(POST, ACCEPTED if problem is None else problem.status, *draft.begun)
        draft.begun = []
    if problem is not None:
        front.answer(problem.written())
    else:
        front.answer(written(ACCEPTED, accepted_one(caller.receipt(draft.id), is_second=place in draft.second_uses)))


def _told(increments: int, receipt: str, uses: Uses) -> bytes:
    return accepted_many(increments, receipt, uses.second())


def _counted_many(front: Front, begun: float, told: Callable[[], bytes], durable: asyncio.Future[Any]) -> None:
    """Answer a batch."""
    if durable.cancelled():
        front.answer(None)
    elif (error := durable.exception()) is not None:
        front.answer(_refused(_BATCH, _of_us(error), begun))
    else:
        answered(_BATCH, ACCEPTED, begun)
        front.answer(written(ACCEPTED, told()))


def _of_us(error: BaseException) -> Exception:
    assert isinstance(error, Exception), "a future holds no other kind of error"  # noqa: S101
    return error
