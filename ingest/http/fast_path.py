"""The fast path of the commonest requests: POSTs of one increment or of a batch, and GETs of one counter or of several.
What they look like, and their answers. The front asks here first.

aiohttp's objects for a request and its response cost more than all the rest of an increment. Without the fast path a
POST reaches 0.4 times the rate of an empty aiohttp handler, with it 0.9 (`python -m bench --only post`). Only good
requests of a plain form are taken. All others are left to aiohttp and the routes; the answers are the same.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import suppress
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
from ingest.access.google_tokens import UnverifiedError
from ingest.access.keys import PUBLISHABLE_KEY
from ingest.api.counters import ListAsks, ReadRoutes
from ingest.api.fields import Age, read_parameters
from ingest.api.increments import ACCEPTED, add_one, receipt_of
from ingest.api.routes import Target, find
from ingest.http.bodies import LARGE, SMALL, Bodies
from ingest.http.problems import Problem, problem_of
from ingest.http.requests import Query, name_of
from ingest.parsing import parse
from ingest.parsing.parse import BodyError
from shared.http.answers import written
from shared.http.front import Front
from shared.model.words import flaw_of_id
from shared.runtime import metrics
from shared.runtime.traces import REQUEST, RequestContext, sampled_in

if TYPE_CHECKING:
    from ingest.http.router import RequestLog

_log = logging.getLogger(__name__)

POST: Final = "POST /v1/counters/{name}"
GET: Final = "GET /v1/counters/{name}"
_MANY: Final = find("POST", "/v1/increments")
_BATCH: Final = _MANY.label
_TARGET: Final = re.compile(rb"/v1/counters(?:/([A-Za-z0-9._~!$&'()*+,;=:@%-]+))?(?:\?([!\"$-~]+))?")
_VALUE: Final = re.compile(r"[ -~]*")


class Head(NamedTuple):
    """The headers of a plain request, and what the fast path needs of them."""

    headers: CIMultiDictProxy[str]
    key: str | None
    said: Credentials


class Asker(NamedTuple):
    front: Front
    caller: Caller
    begun: float


class Request(NamedTuple):
    target: Target
    head: Head
    names: Collection[str]
    """Counters that it may make."""
    take: Callable[[Asker], None]
    """Begins it, and answers it later."""
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
        self._asked: dict[float | None, list[tuple[Asker, str, Callable[[Asker], None]]]] = {}
        """The reads of one counter that came in this turn of the event loop, by the age that they allow."""

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
            if method == b"GET" and not body and not _has_public_key(query, head.said):
                return Request(asked, head, (), self._reading(asked, found[1], Query(query), head))
            if method == b"POST" and found[1] is not None and found[2] is None and len(body) <= SMALL:
                name = name_of(found[1].decode())
                delta, client_id = parse.single(body, None)
                client_id = head.key if client_id is None else client_id
                take = partial(self._count, name, delta, client_id)
                return Request(asked, head, (name,), take, client_id is None)
        except (BodyError, Problem):
            pass
        return None

    def _batch(self, head: Head, body: bytes) -> Request | None:
        parsed = parse.quick(body) if len(body) <= LARGE else None
        if parsed is None or (head.key is not None and len(parsed.batch.sums) > MAX_ENTRIES):
            return None
        names = () if self._new_names is None else parsed.batch.by_counter()
        take = partial(self._count_many, head, parsed.batch, len(body))
        return Request(_MANY, head, names, take, is_usual=False)  # a draft may keep the batch

    def _reading(self, asked: Target, name: bytes | None, query: Query, head: Head) -> Callable[[Asker], None]:
        if name is None:
            asks = read_parameters(ListAsks, query, head.headers)
            return partial(self._read, asked.label, head, lambda caller: self._reads.read_many(caller, asks))
        counter, age = name_of(name.decode()), read_parameters(Age, query, head.headers).max_age
        alone = partial(self._read, asked.label, head, lambda _: self._reads.read_one(counter, age))
        return partial(self._read_soon, counter, age, alone)

    def begin(self, request: Request, front: Front) -> bytes | bool:
        target, head, names, take, _ = request
        if self._log.left or not (self._new_names is None or all(map(self._new_names.knows, names))):
            return False
        begun = perf_counter()
        try:
            caller = self._door.enter(target, head.said, front.peer)
            front.tenant = caller.tenant
            take(Asker(front, caller, begun))
        except UnverifiedError:  # the routes can wait until it is verified
            return False
        except Exception as error:
            problem = problem_of(error)
            answered(target.label, problem.status, begun)
            return problem.written()
        return True

    def _count(self, name: str, delta: int, client_id: str | None, asker: Asker) -> None:
        caller = asker.caller
        caller.spend(1)
        draft = add_one(self._publishing, caller, name, delta, client_id)
        place = -1 if client_id is None else len(draft.keyed) - 1
        if not draft.posts:
            self._publishing.durable(draft).add_done_callback(partial(_answer_posts, draft))
        draft.posts.append((asker, place))

    def _count_many(self, head: Head, batch: Batch, size: int, asker: Asker) -> None:
        caller = asker.caller
        self._bodies.check(caller.tenant, size)
        with self._bodies.judging(caller.tenant, size):
            caller.check_batch(batch)
        increments, keyed = batch.increments, len(batch.keyed)
        caller.spend(increments)
        key = "" if head.key is None else caller.batch_id(head.key, batch.apart()[0].content)
        with self._bodies.judging(caller.tenant, size, increments):
            drafts = self._publishing.add_batch(batch, caller.tenant, weight_of(increments, size), key)
        receipt, uses = receipt_of(caller, drafts), Uses(drafts, keyed)
        told = partial(_answer, asker, _BATCH, lambda: accepted_many(increments, receipt, uses.second()))
        self._publishing.all_durable(drafts).add_done_callback(told)

    def _read_soon(self, counter: str, age: float | None, alone: Callable[[Asker], None], asker: Asker) -> None:
        """Read it with all that is asked for in this turn of the event loop. Their one look begins after the last of
        them came, so it shows each of them what any process had accepted before.
        """
        asked = self._asked.get(age)
        if asked is None:
            self._asked[age] = asked = []
            asyncio.get_running_loop().create_task(self._read_cached(age, asked))
        asked.append((asker, counter, alone))

    async def _read_cached(self, age: float | None, asked: list[tuple[Asker, str, Callable[[Asker], None]]]) -> None:
        """Answer those that need nothing but a look. The others are read alone, each with its own waits and errors."""
        del self._asked[age]
        bodies: Mapping[str, bytes] = {}
        with suppress(Exception):
            bodies = await self._reads.cached([counter for _, counter, _ in asked], age)
        answered(GET, 200, *[asker.begun for asker, counter, _ in asked if counter in bodies])
        answers = {counter: written(200, body) for counter, body in bodies.items()}
        for asker, counter, alone in asked:
            answer = answers.get(counter)
            if answer is None:
                alone(asker)
            else:
                _tell(asker.front, answer)

    @staticmethod
    def _read(route: str, head: Head, read: Callable[[Caller], Coroutine[Any, Any, bytes]], asker: Asker) -> None:
        token = REQUEST.set(RequestContext(head.headers))
        done = asyncio.get_running_loop().create_task(read(asker.caller))  # `ensure_future` takes 2 µs more
        REQUEST.reset(token)
        done.add_done_callback(partial(_answer, asker, route, None))


def _has_public_key(query: str, said: Credentials) -> bool:
    """Then the routes answer, which say how long a browser may keep what the key has read."""
    return "key=" in query or any(f" {PUBLISHABLE_KEY}_" in text for text in said.authorization)


def answered(route: str, status: int, *begun: float) -> None:
    """Count requests that began then, by `perf_counter`, and are answered now."""
    metrics.REQUEST_SECONDS.labels(route, f"{status // 100}xx").observe_since(begun, perf_counter())


def _answer(asker: Asker, route: str, told: Callable[[], bytes] | None, done: asyncio.Future[Any]) -> None:
    """Answer a batch with the body that `told` makes, a read with its result, or either with the error."""
    front, _, begun = asker
    if done.cancelled():
        front.answer(None)
    elif (problem := _problem_of(done)) is not None:
        answered(route, problem.status, begun)
        front.answer(problem.written())
    else:
        status, body = (200, done.result()) if told is None else (ACCEPTED, told())
        answered(route, status, begun)
        front.answer(written(status, body))


def _answer_posts(draft: Draft, durable: asyncio.Future[None]) -> None:
    """Answer all that the draft has. Most get the same bytes."""
    posts: list[tuple[Asker, int]] = draft.posts
    problem = refused = None
    if not durable.cancelled():
        problem = _problem_of(durable)
        answered(POST, ACCEPTED if problem is None else problem.status, *[asker.begun for asker, _ in posts])
        refused = None if problem is None else problem.written()
    made: dict[tuple[int, bool], bytes] = {}
    for (front, caller, _), place in posts:
        answer = refused
        if answer is None and not durable.cancelled():
            whose = id(caller), place in draft.second_uses
            answer = made.get(whose)
            if answer is None:
                told = accepted_one(caller.receipt(draft.id), is_second=whose[1])
                made[whose] = answer = written(ACCEPTED, told)
        _tell(front, answer)


def _tell(front: Front, answer: bytes | None) -> None:
    """Answer one of several that are answered together. The others get their answers, whatever happens to it."""
    try:
        front.answer(answer)
    except Exception:
        _log.exception("a connection hit an unexpected error")
        front.drop()


def _problem_of(done: asyncio.Future[Any]) -> Problem | None:
    error = done.exception()
    assert error is None or isinstance(error, Exception), "a future holds no other kind of error"  # noqa: S101
    return None if error is None else problem_of(error)
