"""The fast path of the commonest requests: POSTs of one increment or of a batch, and GETs of one counter or of several.
What they look like, and their answers. The front asks here first.

aiohttp's objects for a request and its response cost more than all the rest of an increment. Without the fast path a
POST reaches 0.4 times the rate of an empty aiohttp handler, with it 0.9 (`python -m bench --only post`). Only good
requests of a plain form are taken. All others are left to aiohttp and the routes; the answers are the same.
"""

import asyncio
import re
from collections.abc import Callable, Collection, Coroutine, Mapping
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


class Waiting(NamedTuple):
    """A request that is taken, and what it waits for."""

    status: int
    """If all goes well."""
    begun: list[float]
    """When it began, and others that are answered in the same turn of the event loop. It is empty once they are."""
    told: Callable[[Any], bytes]
    """Makes the answer of what `done` returns."""
    done: asyncio.Future[Any]


class Request(NamedTuple):
    """A plain request."""

    target: Target
    route: str
    head: Head
    names: Collection[str]
    """Counters that it may make."""
    take: Callable[[Caller, float], Waiting]
    """Begins it for a caller whom the door lets in."""
    is_usual: bool = True
    """Whether it may be sent again, so that it pays to remember it."""


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
            if target == b"/v1/increments":
                return self._batch(head, body) if method == b"POST" else None
            found = _TARGET.fullmatch(target)
            if found is None:
                return None
            path, _, query = target.decode().partition("?")
            asked = find(method.decode(), path, query)
            if method == b"GET" and not body and "key=" not in query:
                return Request(asked, asked.label, head, (), self._reading(found[1], Query(query), head))
            if method == b"POST" and found[1] is not None and found[2] is None and len(body) <= SMALL:
                name = name_of(found[1].decode())
                delta, client_id = parse.single(body, None)
                client_id = head.key if client_id is None else client_id
                take = partial(self._count, name, delta, client_id)
                return Request(asked, POST, head, (name,), take, client_id is None)
        except (BodyError, Problem):
            pass
        return None

    def _batch(self, head: Head, body: bytes) -> Request | None:
        parsed = parse.quick(body) if len(body) <= LARGE else None
        if parsed is None or (head.key is not None and len(parsed.batch.sums) > MAX_ENTRIES):
            return None
        names = () if self._new_names is None else parsed.batch.by_counter()
        take = partial(self._count_many, head, parsed.batch, len(body))
        return Request(_MANY, _BATCH, head, names, take, is_usual=False)  # a draft may keep the batch

    def _reading(self, name: bytes | None, query: Query, head: Head) -> Callable[[Caller, float], Waiting]:
        if name is None:
            asks = read_parameters(ListAsks, query, head.headers)
            return partial(self._read, head, lambda caller: self._reads.read_many(caller, asks))
        counter, age = name_of(name.decode()), read_parameters(Age, query, head.headers).max_age
        return partial(self._read, head, lambda _: self._reads.read_one(counter, age))

    def begin(self, request: Request, front: Front) -> bytes | bool:
        target, route, head, names, take, _ = request
        if self._log.left or not (self._new_names is None or all(map(self._new_names.knows, names))):
            return False
        begun = perf_counter()
        try:
            caller = self._door.enter(target, head.said, front.peer)
            front.tenant = caller.tenant
            waiting = take(caller, begun)
        except Exception as error:
            problem = problem_of(error)
            answered(route, problem.status, begun)
            return problem.written()
        waiting.done.add_done_callback(partial(_answer, front, route, waiting))
        return True

    def _count(self, name: str, delta: int, client_id: str | None, caller: Caller, begun: float) -> Waiting:
        caller.spend(1)
        if client_id is None:
            draft, place = self._publishing.add(name, delta, caller.tenant), -1
        else:
            draft = self._publishing.add_keyed(Increment(name, delta, caller.owned(client_id)), caller.tenant)
            place = len(draft.keyed) - 1
        draft.begun.append(begun)
        return Waiting(ACCEPTED, draft.begun, partial(_told_one, caller, draft, place), self._publishing.durable(draft))

    def _count_many(self, head: Head, batch: Batch, size: int, caller: Caller, begun: float) -> Waiting:
        self._bodies.check(caller.tenant, size)
        with self._bodies.judging(caller.tenant, size):
            caller.check_batch(batch)
        increments, keyed = batch.increments, len(batch.keyed)
        caller.spend(increments)
        key = "" if head.key is None else caller.batch_id(head.key, batch.apart()[0].content)
        with self._bodies.judging(caller.tenant, size, increments):
            drafts = self._publishing.add_batch(batch, caller.tenant, weight_of(increments, size), key)
        receipt, uses = caller.receipt(".".join(dict.fromkeys([draft.id for draft in drafts]))), Uses(drafts, keyed)
        durable = [self._publishing.durable(draft) for draft in drafts]
        done: asyncio.Future[Any] = durable[0] if len(durable) == 1 else asyncio.ensure_future(all_of(durable))
        return Waiting(ACCEPTED, [begun], lambda _: accepted_many(increments, receipt, uses.second()), done)

    @staticmethod
    def _read(
        head: Head, read: Callable[[Caller], Coroutine[Any, Any, bytes]], caller: Caller, begun: float
    ) -> Waiting:
        token = REQUEST.set(RequestContext(head.headers))
        done = asyncio.get_running_loop().create_task(read(caller))  # `ensure_future` takes 2 µs more
        REQUEST.reset(token)
        return Waiting(200, [begun], bytes, done)


def answered(route: str, status: int, *begun: float) -> None:
    """Count requests that began then, by `perf_counter`, and are answered now."""
    metrics.REQUEST_SECONDS.labels(route, f"{status // 100}xx").observe_since(begun, perf_counter())


def _told_one(caller: Caller, draft: Draft, place: int, _: None) -> bytes:
    """What is told of an increment in the draft, at this place among those with ids, or -1."""
    return accepted_one(caller.receipt(draft.id), is_second=place in draft.second_uses)


def _answer(front: Front, route: str, waiting: Waiting, done: asyncio.Future[Any]) -> None:
    status, begun, told, _ = waiting
    if done.cancelled():
        front.answer(None)
        return
    error = done.exception()
    assert error is None or isinstance(error, Exception), "a future holds no other kind of error"  # noqa: S101
    problem = None if error is None else problem_of(error)
    if begun:
        answered(route, status if problem is None else problem.status, *begun)
        begun.clear()
    front.answer(written(status, told(done.result())) if problem is None else problem.written())
