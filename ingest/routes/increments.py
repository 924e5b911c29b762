"""The routes that count one increment or many."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Final, TypeVar

import orjson
from aiohttp import web

from ingest.access.caller import CALLER, Caller
from ingest.http.bodies import LARGE, Bodies
from ingest.http.problems import Problem
from ingest.http.requests import Query, has_gone, idempotency_key_of
from ingest.http.responses import Answer
from ingest.parsing import parse
from ingest.parsing.json_object import BodyError
from ingest.publishing.admission import weight_of
from ingest.publishing.batch import Batch
from ingest.publishing.coalescer import MAX_ENTRIES
from ingest.publishing.publishing import Publishing
from ingest.routes.receipt_status import AppliedWaits
from shared.counters.reader import Reader
from shared.model.words import Increment
from shared.runtime import metrics
from shared.runtime.ids import of_key
from shared.runtime.supervise import all_of

Found = TypeVar("Found", bound=parse.Parsed | None)

ACCEPTED: Final = 202
LONGEST_WAIT: Final = 300.0
DEFAULT_WAIT: Final = 10.0


class IncrementRoutes:
    """Answers 202 when the increments are durable. A client that gets no 202 sends them again with the same id."""

    def __init__(self, publishing: Publishing, waits: AppliedWaits, reader: Reader, bodies: Bodies) -> None:
        self._publishing = publishing
        self._waits = waits
        self._reader = reader
        self._bodies = bodies

    async def one(self, request: web.BaseRequest, name: str, query: Query) -> web.Response:
        """POST /v1/counters/{name}"""
        by = query.one("by")
        timing = _AnswerTiming(query)
        key = idempotency_key_of(request)
        try:
            delta, client_id = await self._bodies.read_one(request, partial(parse.single, by=by))
        except BodyError:
            metrics.REJECTED.inc()
            raise
        if client_id is None:
            client_id = key
        caller = request[CALLER]
        with self._place(request, timing):
            draft = add(self._publishing, name, delta, client_id, caller)
            if timing.undurable:
                metrics.UNDURABLE.inc()
                return _accepted(b'{"accepted":1,"durable":false,"receipt":"%b"}' % caller.receipt(draft.id).encode())
            await self._publishing.durable(draft)
            if not await self._applied(request, [draft], timing):
                return _accepted(answer_of(draft, caller))
            if not caller.may_read:
                return Answer(answer_of(draft, caller))
            (reading,) = await self._reader.read([name])
            answer = f'{{"accepted":1,"receipt":"{caller.receipt(draft.id)}","value":{reading.value}}}'
            return Answer(answer.encode())

    async def many(self, request: web.BaseRequest, query: Query) -> web.Response:
        """POST /v1/increments"""
        timing = _AnswerTiming(query)
        key = idempotency_key_of(request)
        caller = request[CALLER]
        tenant = caller.tenant
        announced = self._bodies.announced(request)
        if announced > LARGE:  # a body that will be refused is not read first
            self._publishing.check(tenant, weight_of(1, announced))
        try:
            parsed, size = await self._bodies.read_many(
                request, partial(_checked, caller, parse.batch), partial(_checked, caller, parse.quick)
            )
        except BodyError:
            metrics.REJECTED.inc()
            raise
        if parsed.bad:
            metrics.REJECTED.inc(parsed.bad)
            self._bodies.refused(tenant, size * parsed.bad // (parsed.bad + parsed.batch.increments), parsed.bad)
        accepted = parsed.batch.increments
        weight = weight_of(accepted + parsed.bad, size)
        with self._place(request, timing):
            caller.spend(accepted)
            drafts = self._add(parsed.batch, None if key is None else caller.owned(key), tenant, weight)
            return await self._answer(request, parsed, drafts, timing)

    async def _answer(
        self, request: web.BaseRequest, parsed: parse.Parsed, drafts: list[Batch], timing: "_AnswerTiming"
    ) -> web.Response:
        accepted = parsed.batch.increments
        receipt = request[CALLER].receipt(".".join([draft.id for draft in drafts]))
        answer = {"accepted": accepted, "rejected": parsed.rejected, "receipt": receipt}
        if parsed.bad > len(parsed.rejected):
            answer["rejected_count"] = parsed.bad
        if timing.undurable:
            metrics.UNDURABLE.inc(accepted)
            return _accepted(orjson.dumps(answer | {"durable": False}))
        durable = [self._publishing.durable(draft) for draft in drafts]
        if len(durable) == 1:
            await durable[0]
        else:
            await all_of(durable)
        if await self._applied(request, drafts, timing):
            return Answer(orjson.dumps(answer))
        return _accepted(orjson.dumps(answer))

    def _place(self, request: web.BaseRequest, timing: "_AnswerTiming") -> AbstractContextManager[None]:
        """A place among the requests that wait, if this one is to wait."""
        return nullcontext() if timing.wait is None else self._waits.place(request[CALLER].tenant)

    async def _applied(self, request: web.BaseRequest, drafts: list[Batch], timing: "_AnswerTiming") -> bool:
        """Whether it is to wait until they are applied, and they are."""
        if timing.wait is None:
            return False
        ids = [draft.id for draft in drafts]
        return await self._waits.applied(ids, timing.wait, gone=partial(has_gone, request))

    def _add(self, batch: Batch, key: str | None, tenant: str, weight: int) -> list[Batch]:
        """Add a batch. With a key, its items without ids become one envelope: its receipt makes the first body win."""
        if key is None or not batch.sums:
            return self._publishing.add_batch(batch, tenant, weight)
        plain, _ = batch.apart()
        if not self._publishing.fits(plain):
            raise Problem(
                413,
                f"a batch with an Idempotency-Key may name at most {MAX_ENTRIES} counters, this one names"
                f" {len(plain.sums)}: send several batches, each with its own key",
                field="Idempotency-Key",
            )
        return self._publishing.add_whole(batch, of_key(key), tenant, weight)


def _checked(caller: Caller, parse: Callable[[bytes], Found], body: bytes) -> Found:
    """What the body holds, if all of its counters are the caller's. For large bodies it runs in a thread."""
    parsed = parse(body)
    if parsed is not None:
        batch = parsed.batch
        caller.check_names(batch.sums)
        caller.check_names(item.counter for item in batch.keyed)
        batch.keyed = caller.owned_items(batch.keyed)
    return parsed


class _AnswerTiming:
    """When the client wants the answer: the query parameters `wait`, `timeout` and `ack`."""

    def __init__(self, query: Query) -> None:
        waits = query.choice("wait", "applied") is not None
        timeout = query.seconds("timeout", LONGEST_WAIT)
        self.undurable = query.choice("ack", "none") is not None
        self.wait = (DEFAULT_WAIT if timeout is None else timeout) if waits else None
        if waits and self.undurable:
            raise Problem(422, "'ack=none' answers at once, so it cannot be combined with 'wait'", field="ack")
        query.done()


def add(publishing: Publishing, name: str, delta: int, client_id: str | None, caller: Caller) -> Batch:
    """Take one increment. It counts once its draft is durable; `OverloadedError` if there is no room for it."""
    caller.spend(1)
    if client_id is None:
        return publishing.add(name, delta, caller.tenant)
    return publishing.add_keyed(Increment(name, delta, caller.owned(client_id)), caller.tenant)


def answer_of(draft: Batch, caller: Caller) -> bytes:
    """The body of the answer to one increment that is durable."""
    return b'{"accepted":1,"receipt":"%b"}' % caller.receipt(draft.id).encode()


def _accepted(body: bytes) -> web.Response:
    return Answer(body, ACCEPTED)
