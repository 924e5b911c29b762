"""The routes that count one increment or many."""

from collections.abc import Callable, Mapping, Sequence
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
from ingest.publishing.batch import Batch, Draft
from ingest.publishing.coalescer import MAX_ENTRIES
from ingest.publishing.envelope_spans import link_request
from ingest.publishing.new_names import NewNames, Trial, refusal
from ingest.publishing.publishing import Publishing
from ingest.publishing.uses import Uses
from ingest.routes.receipt_status import AppliedWaits
from ingest.routes.totals import Totals
from shared.model.receipt_notes import Note
from shared.model.words import ALL_DELTAS, Increment
from shared.runtime import metrics
from shared.runtime.supervise import all_of

Found = TypeVar("Found", bound=parse.Parsed | None)
Read = TypeVar("Read", bound=parse.Parsed)

ACCEPTED: Final = 202
LONGEST_WAIT: Final = 300.0
DEFAULT_WAIT: Final = 10.0
MOST_VALUES: Final = 100
"""Counters of a batch whose totals are in its answer."""
_TOGETHER: Final = "Under an Idempotency-Key, all without an id count or none: leave it out"
_DUPLICATE: Final = b',"duplicate":true'


class IncrementRoutes:
    """Answers 202 when the increments are durable. A client that gets no 202 sends them again with the same id."""

    def __init__(
        self,
        publishing: Publishing,
        waits: AppliedWaits,
        totals: Totals,
        bodies: Bodies,
        new_names: NewNames | None = None,
    ) -> None:
        self._publishing = publishing
        self._new_names = new_names
        self._waits = waits
        self._totals = totals
        self._bodies = bodies

    async def one(self, request: web.BaseRequest, name: str, query: Query) -> web.Response:
        """POST /v1/counters/{name}"""
        by, timing = query.one("by"), AnswerTiming(query)
        caller = request[CALLER]
        timing.check(caller)
        key = idempotency_key_of(request)
        try:
            read = partial(parse.single, by=by, allowed=caller.deltas)
            delta, client_id = await self._bodies.read_one(request, read)
        except BodyError:
            metrics.REJECTED.inc()
            raise
        if client_id is None:
            client_id = key
        with self.place(request, timing):
            draft = await self.take(name, delta, client_id, caller)
            uses = Uses([draft], 0 if client_id is None else 1)
            if timing.undurable:
                metrics.UNDURABLE.inc()
                return _accepted(b'{"accepted":1,"durable":false,"receipt":"%b"}' % caller.receipt(draft.id).encode())
            await self._publishing.durable(draft, awaited=timing.wait is not None)
            notes = await self._applied(request, [draft], timing)
            total = b""
            if timing.value or (notes is not None and caller.may_read):
                total = await self._totals.of_one(name, with_exact=timing.value)
            answer = answer_of(draft, caller, is_second=uses.second(notes) > 0, more=total)
            return _accepted(answer) if notes is None else Answer(answer)

    async def take(self, name: str, delta: int, client_id: str | None, caller: Caller) -> Draft:
        """Take one increment, in a draft that is not durable yet. Raises an error if there is no room for it."""
        caller.spend(1)
        with self.trial(caller) as trial:
            if self._new_names is not None and delta:
                await self._new_names.check(name, trial)
            draft = add(self._publishing, name, delta, client_id, caller)
            link_request(draft)
            return draft

    async def many(self, request: web.BaseRequest, query: Query) -> web.Response:
        """POST /v1/increments"""
        timing, caller = AnswerTiming(query), request[CALLER]
        timing.check(caller)
        key, tenant = idempotency_key_of(request), caller.tenant
        slowly = partial(_checked, caller, timing, partial(parse.batch, allowed=caller.deltas))
        quickly = partial(_checked, caller, timing, parse.quick) if caller.deltas is ALL_DELTAS else None
        parsed, size = await self.read(request, slowly, quickly)
        accepted = parsed.batch.increments
        weight = weight_of(accepted + parsed.bad, size)
        with self.place(request, timing):
            caller.spend(accepted)
            if key is not None:
                self._check_whole(parsed.batch)
            with self.trial(caller) as trial:
                if refused := await self._refuse_new(parsed, key, trial):
                    metrics.REJECTED.inc(refused)
                    self._bodies.refused(tenant, size * refused // (accepted + parsed.bad), refused)
                accepted = parsed.batch.increments
                names, keyed = [*parsed.batch.by_counter()] if timing.value else [], len(parsed.batch.keyed)
                try:
                    drafts = self._add(parsed.batch, None if key is None else caller.batch_id(key), tenant, weight)
                except BodyError:
                    self._bodies.refused(tenant, size, accepted)
                    raise
            return await self.answer(request, parsed, drafts, timing, uses=Uses(drafts, keyed), names=names)

    async def read(
        self,
        request: web.BaseRequest,
        parse: Callable[[bytes], Read],
        quick: Callable[[bytes], Read | None] | None = None,
    ) -> tuple[Read, int]:
        """What `parse` or `quick` finds in the body, and the size of that. What is refused of it is accounted for."""
        tenant = request[CALLER].tenant
        announced = self._bodies.announced(request)
        if announced > LARGE:  # a body that will be refused is not read first
            self._publishing.check(tenant, weight_of(1, announced))
        try:
            parsed, size = await self._bodies.read_many(request, parse, quick)
        except BodyError:
            metrics.REJECTED.inc()
            raise
        if parsed.bad:
            metrics.REJECTED.inc(parsed.bad)
            self._bodies.refused(tenant, size * parsed.bad // (parsed.bad + parsed.batch.increments), parsed.bad)
        return parsed, size

    async def answer(
        self,
        request: web.BaseRequest,
        parsed: parse.Parsed,
        drafts: list[Draft],
        timing: "AnswerTiming",
        *,
        uses: Uses,
        names: Sequence[str],
    ) -> web.Response:
        """The answer to a batch that is in these drafts, when the client wants it. `names`: whose totals it shows."""
        accepted = parsed.batch.increments
        link_request(*drafts)
        ids = dict.fromkeys([draft.id for draft in drafts])
        answer = _answer_of_batch(parsed, request[CALLER].receipt(".".join(ids)))
        if timing.undurable:
            metrics.UNDURABLE.inc(accepted)
            return _accepted(orjson.dumps(answer | {"durable": False}))
        durable = [self._publishing.durable(draft, awaited=timing.wait is not None) for draft in drafts]
        await (durable[0] if len(durable) == 1 else all_of(durable))
        notes = await self._applied(request, drafts, timing)
        if second := uses.second(notes):
            answer |= {"duplicates": second} | ({"duplicate": True} if second == accepted else {})
        written = orjson.dumps(answer)
        if names:
            written = b"%b%b}" % (written[:-1], await self._totals.of_many(names))
        return _accepted(written) if notes is None else Answer(written)

    def trial(self, caller: Caller) -> AbstractContextManager[Trial]:
        return nullcontext(Trial()) if self._new_names is None else self._new_names.trial(caller.new)

    async def _refuse_new(self, parsed: parse.Parsed, key: str | None, trial: Trial) -> int:
        """Take out the increments of new names for which there is no room. Returns how many these are. Raises
        `ShareError` if no other is left.

        Under an Idempotency-Key, the items without ids are refused together. Otherwise a retry that finds room would
        seem to count what the first attempt had left out, and its receipt would keep it from counting.
        """
        batch, new_names = parsed.batch, self._new_names
        if new_names is None:
            return 0
        plain_names = [name for name, total in batch.sums.items() if total]
        if key is None:
            plain = await new_names.admit(plain_names, trial)
        else:
            plain = await new_names.admit_together(plain_names, trial, _TOGETHER)
        keyed = await new_names.admit(dict.fromkeys([item.counter for item in batch.keyed if item.delta]), trial)
        if not plain and not keyed:
            return 0
        dropped = batch.drop(plain=plain, keyed=keyed)
        reasons = keyed | plain
        if not batch.increments:
            raise refusal(next(iter(reasons.values())))
        for name, number in dropped.items():
            for _ in range(number):
                parsed.reject(counter=name, reason=reasons[name])
        return sum(dropped.values())

    def place(self, request: web.BaseRequest, timing: "AnswerTiming") -> AbstractContextManager[None]:
        """A place among the requests that wait, if this one is to wait."""
        return nullcontext() if timing.wait is None else self._waits.places.take(request[CALLER].tenant)

    async def _applied(
        self, request: web.BaseRequest, drafts: list[Draft], timing: "AnswerTiming"
    ) -> Mapping[str, Note] | None:
        """The notes of their receipts, if it is to wait until they are applied, and they are."""
        if timing.wait is None:
            return None
        ids = [draft.id for draft in drafts]
        return await self._waits.applied(ids, timing.wait, gone=partial(has_gone, request))

    def _add(self, batch: Batch, batch_id: str | None, tenant: str, weight: int) -> list[Draft]:
        """Add a batch. With a key, its items without ids become one envelope: its receipt makes the first body win."""
        if batch_id is None or not batch.sums:
            return self._publishing.add_batch(batch, tenant, weight)
        return self._publishing.add_whole(batch, batch_id, tenant, weight)

    def _check_whole(self, batch: Batch) -> None:
        """Raise a 413 if the items without ids do not fit into one envelope."""
        plain, _ = batch.apart()
        if not self._publishing.fits(plain):
            raise Problem(
                413,
                f"a batch with an Idempotency-Key may name at most {MAX_ENTRIES} counters, this one names"
                f" {len(plain.sums)}: send several batches, each with its own key",
                field="Idempotency-Key",
            )


def _checked(caller: Caller, timing: "AnswerTiming", parse: Callable[[bytes], Found], body: bytes) -> Found:
    """What the body holds, if all of its counters are the caller's, and not too many for the answer. For large bodies
    it runs in a thread.
    """
    parsed = parse(body)
    if parsed is not None:
        batch = parsed.batch
        caller.check_size(batch.increments)
        caller.check_names(batch.sums)
        caller.check_names(item.counter for item in batch.keyed)
        timing.check_number(batch)
        batch.keyed = caller.owned_items(batch.keyed)
    return parsed


def _answer_of_batch(parsed: parse.Parsed, receipt: str) -> dict[str, object]:
    answer = {"accepted": parsed.batch.increments, "rejected": parsed.rejected, "receipt": receipt}
    return answer | ({"rejected_count": parsed.bad} if parsed.bad > len(parsed.rejected) else {})


class AnswerTiming:
    """When the client wants the answer, and whether with totals: the query parameters `wait`, `timeout`, `ack` and
    `return`.
    """

    def __init__(self, query: Query) -> None:
        waits = query.choice("wait", "applied") is not None
        timeout = query.seconds("timeout", LONGEST_WAIT)
        self.undurable = query.choice("ack", "none") is not None
        self.wait = (DEFAULT_WAIT if timeout is None else timeout) if waits else None
        if waits and self.undurable:
            raise Problem(422, "'ack=none' answers at once, so it cannot be combined with 'wait'", field="ack")
        self.value = query.choice("return", "value") is not None
        if self.value and self.undurable:
            raise Problem(422, "'ack=none' answers at once, so it cannot be combined with 'return'", field="ack")
        query.done()

    def check(self, caller: Caller) -> None:
        """Raise a 403 if the caller may not see totals, and wants to."""
        if self.value and not caller.may_read:
            who = "a web page of another site" if caller.key is None else f"the key {caller.key.id}"
            raise Problem(403, f"{who} may only count: 'return=value' needs the scope read", field="return")

    def check_number(self, batch: Batch) -> None:
        """Raise a 422 if these are too many counters for their totals to be in the answer."""
        if self.value and (number := len(batch.by_counter())) > MOST_VALUES:
            raise Problem(
                422, f"'return=value' is for at most {MOST_VALUES} counters, this batch names {number}", field="return"
            )


def add(publishing: Publishing, name: str, delta: int, client_id: str | None, caller: Caller) -> Draft:
    """Take one increment. It counts once its draft is durable; `OverloadedError` if there is no room for it."""
    if client_id is None:
        return publishing.add(name, delta, caller.tenant)
    return publishing.add_keyed(Increment(name, delta, caller.owned(client_id)), caller.tenant)


def answer_of(draft: Draft, caller: Caller, *, is_second: bool, more: bytes = b"") -> bytes:
    """The body of the answer to one increment that is durable. `is_second`: whether its id is known to have been used
    before. `more`: further fields.
    """
    receipt = caller.receipt(draft.id).encode()
    return b'{"accepted":1,"receipt":"%b"%b%b}' % (receipt, _DUPLICATE if is_second else b"", more)


def _accepted(body: bytes) -> web.Response:
    return Answer(body, ACCEPTED)
