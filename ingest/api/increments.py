"""Counting one increment or many: the handlers, and what they take and give."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Annotated, Any, Final, Literal, TypeVar

import orjson
from msgspec import UNSET, Meta, Struct, UnsetType, field

from ingest.accept.admission import weight_of
from ingest.accept.drafts import MAX_ENTRIES, Batch, Draft, Uses, accepted_many, accepted_one, link_request
from ingest.accept.new_names import NewNames, Trial, refusal
from ingest.accept.publishing import Publishing
from ingest.access.callers import Caller
from ingest.api import fields
from ingest.api.fields import Json, Read, Schema, an_object, is_a, ref
from ingest.api.receipts import AppliedWaits
from ingest.http.bodies import LARGE
from ingest.http.problems import Problem, problem_of, said_of
from ingest.http.requests import Call, Query, Reply
from ingest.parsing import parse
from ingest.parsing.parse import MOST_IN_BATCH, BodyError
from shared.counters.reader import Reader
from shared.http.front import has_gone
from shared.model.errors import CountersinkError
from shared.model.receipts import Note
from shared.model.words import ALL_DELTAS, Increment, Reading
from shared.runtime import metrics

Found = TypeVar("Found", bound=parse.Parsed | None)
Some = TypeVar("Some", bound=parse.Parsed)

ACCEPTED: Final = 202
LONGEST_WAIT: Final = 300.0
DEFAULT_WAIT: Final = 10.0
MOST_VALUES: Final = 100
"""Counters of a batch whose totals are in its answer."""
_TOGETHER: Final = "Under an Idempotency-Key, all without an id count or none: leave it out"
_FORM: Final = "application/x-www-form-urlencoded"


class Answering(Struct):
    """When the client wants the answer, and whether with totals."""

    wait: Literal["applied"] | None = None
    """Answer 200 when the increments are in the store, or 202 after the timeout. Cannot be combined with `ack`. At most
    8192 requests may wait at once, or half of COUNTERSINK_MAX_CONNECTIONS if that is less, and one client may take as
    many places as are still free. Others get 503 or 429.
    """
    timeout: Annotated[float, Read(partial(Query.seconds, most=LONGEST_WAIT)), Meta(ge=0)] = DEFAULT_WAIT
    """How many seconds to `wait`. More than {LONGEST_WAIT:g} is read as {LONGEST_WAIT:g}."""
    ack: Literal["none"] | None = None
    """Answer at once with `durable: false`. This answer is no promise."""
    value: Literal["value"] | None = field(name="return", default=None)
    """Answer with the totals of the counters, of an instant after the increments were accepted: for at most
    {MOST_VALUES} counters, for callers that may read. Cannot be combined with `ack`.
    """

    def __post_init__(self) -> None:
        other = "wait" if self.wait else "return"
        if self.ack and (self.wait or self.value):
            raise Problem(422, f"'ack=none' answers at once, so it cannot be combined with '{other}'", field="ack")

    def check(self, caller: Caller) -> None:
        """Raise a 403 if the caller may not see totals, and wants to."""
        if self.value and not caller.may_read:
            who = "a web page of another site" if caller.key is None else f"the key {caller.key.id}"
            raise Problem(403, f"{who} may only count: 'return=value' needs the scope read", field="return")

    def check_number(self, batch: Batch) -> None:
        """Raise a 422 if these are too many counters for their totals to be in the answer."""
        if self.value and (number := len(batch.by_counter())) > MOST_VALUES:
            raise Problem(
                422,
                f"'return=value' is for at most {MOST_VALUES} counters, and this batch names {number}: send several",
                field="return",
            )


class CountMany(Answering):
    key: fields.Once = field(name=fields.ONCE, default=None)
    """Makes it safe to send the request again. For a single increment without an id it is the id. For a batch it covers
    the items without an id of their own, and the first body wins. An item with an id counts once by that id, whatever
    the key.
    """


class CountOne(CountMany):
    by: Annotated[str | None, is_a("Delta")] = None
    """The delta, instead of the one in the body."""


class _Counted(Json):
    receipt: Annotated[str, Meta(min_length=1)]
    """`GET /v1/receipts/…` with it shows the state of the increments."""
    exact: bool | UnsetType = UNSET
    """Whether the totals include all that was accepted before. With wait=applied alone, only if they may not."""
    value_error: str | UnsetType = UNSET
    """Why the totals are missing. The increments count all the same."""


class Applied(_Counted, kw_only=True):
    """The increment is in the store. `value` is the counter's value."""

    accepted: Literal[1]
    duplicate: Literal[True] | UnsetType = UNSET
    """The id or key is known to have been used before: this request counted once already, and adds nothing."""
    value: int | UnsetType = UNSET
    """Not for keys that may only write."""


class Accepted(Applied, kw_only=True):
    """The increment is durable, and will be counted exactly once."""

    value: int | UnsetType = UNSET
    """Only with return=value: the total, with this increment."""
    durable: Literal[False] | UnsetType = UNSET
    """Only with ack=none: the increments are not durable yet, and may be lost."""


class BatchAccepted(_Counted, kw_only=True):
    accepted: Annotated[int, Meta(ge=1)]
    rejected: Annotated[list[Annotated[Any, is_a("Rejected")]], Meta(max_length=parse.MOST_REJECTIONS)]
    """Items that do not count, at most 100."""
    rejected_count: Annotated[int, Meta(ge=parse.MOST_REJECTIONS + 1)] | UnsetType = UNSET
    """How many items do not count, if more than are listed."""
    duplicate: Literal[True] | UnsetType = UNSET
    """All that was accepted is known to have counted before."""
    duplicates: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    """How many of the accepted ones are known to have counted before. Missing if none is."""
    values: dict[str, int] | UnsetType = UNSET
    """Only with return=value: the totals of the counters, with these increments."""
    value: int | UnsetType = UNSET
    """Only with return=value, if all are of one counter: its total."""
    durable: Literal[False] | UnsetType = UNSET
    """Only with ack=none: the increments are not durable yet, and may be lost."""


_ID: Final[Schema] = {"anyOf": [ref("Id"), {"type": "null"}]}
SCHEMAS: Final[Schema] = {
    "Single": an_object(
        {"delta": ref("Delta"), "id": _ID}, optional=("delta", "id"), examples=[{"delta": 2, "id": "order-17"}]
    ),
    "Item": an_object({"counter": ref("Name"), "delta": ref("Delta"), "id": _ID}, optional=("delta", "id")),
    "Items": {
        "type": "array",
        "items": ref("Item"),
        "minItems": 1,
        "maxItems": MOST_IN_BATCH,
        "description": "Invalid items are rejected; the valid ones count.",
    },
    "Map": an_object(
        {
            "counters": {
                "type": "object",
                "propertyNames": ref("Name"),
                "additionalProperties": ref("Delta"),
                "minProperties": 1,
                "maxProperties": MOST_IN_BATCH,
            }
        },
        description="The delta of each counter. Invalid entries are rejected; the valid ones count.",
    ),
    "Batch": {
        "anyOf": [ref("Items"), ref("Map"), ref("Item")],
        "description": f"With an Idempotency-Key, the items without an id may name at most {MAX_ENTRIES} counters.",
    },
    "Rejected": {
        "oneOf": [
            an_object({"index": {"type": "integer", "minimum": 0}, "reason": {"type": "string"}}),
            an_object(
                {"counter": {"type": "string"}, "reason": {"type": "string"}},
                description="For a map, and for a new name beyond COUNTERSINK_MAX_COUNTERS.",
            ),
        ]
    },
}
_FIELDS: Final[Schema] = {"counter": ref("Name"), "delta": ref("Delta"), "id": ref("Id")}
ONE_BODY: Final = {
    "application/json": ref("Single"),
    _FORM: an_object({name: _FIELDS[name] for name in ("delta", "id")}, optional=("delta", "id")),
}
BATCH_BODY: Final = {
    "application/json": ref("Batch"),
    "application/x-ndjson": {"type": "string"},
    _FORM: an_object(_FIELDS, optional=("delta", "id")),
}


# Reads the totals that answers contain, together for the requests that ask at the same time.


LONGEST_READ: Final = 5.0
"""Seconds that an answer waits for its totals."""
MOST_TOGETHER: Final = 1_000
"""Counters after which a read takes no further request."""


_Totals = Mapping[str, Reading] | str


class Totals:
    """Reads of instants after the call. The increments are durable then, so no error is raised: it is told instead."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._next: tuple[dict[str, None], asyncio.Task[_Totals]] | None = None

    async def of_one(self, name: str, *, with_exact: bool) -> bytes:
        """The field `value` of an answer, and `exact`: always `with_exact`, otherwise if it is not."""
        found = await self._read([name])
        if isinstance(found, str):
            return _why(found)
        reading = found[name]
        return _value(reading) + (_exact([reading]) if with_exact or not reading.exact else b"")

    async def of_many(self, names: Collection[str]) -> bytes:
        """The fields `values` and `exact` of an answer, and `value` for one counter; or why they are missing."""
        found = await self._read(names)
        if isinstance(found, str):
            return _why(found)
        readings = [found[name] for name in names]
        values = b",".join([b"%b:%d" % (orjson.dumps(one.name), one.value) for one in readings])
        value = _value(readings[0]) if len(readings) == 1 else b""
        return b'%b,"values":{%b}%b' % (value, values, _exact(readings))

    async def _read(self, names: Collection[str]) -> _Totals:
        """Read the totals of these counters, and perhaps of others."""
        try:
            async with asyncio.timeout(LONGEST_READ):
                return await asyncio.shield(self._join(names))
        except TimeoutError:
            return f"reading took longer than {LONGEST_READ:g} seconds"

    def _join(self, names: Collection[str]) -> asyncio.Task[_Totals]:
        """The read that begins in the next turn of the event loop, with these counters."""
        if self._next is None or len(self._next[0]) + len(names) > MOST_TOGETHER:
            wanted: dict[str, None] = {}
            self._next = wanted, asyncio.create_task(self._run(wanted), name="read totals for answers")
        wanted, flight = self._next
        wanted.update(dict.fromkeys(names))
        return flight

    async def _run(self, wanted: dict[str, None]) -> _Totals:
        if self._next is not None and self._next[0] is wanted:
            self._next = None
        try:
            return {reading.name: reading for reading in await self._reader.read([*wanted])}
        except Exception as error:
            return said_of(error) if isinstance(error, CountersinkError) else problem_of(error).detail


def _value(reading: Reading) -> bytes:
    return b',"value":%d' % reading.value


def _exact(readings: Collection[Reading]) -> bytes:
    return b',"exact":%b' % (b"true" if all(reading.exact for reading in readings) else b"false")


def _why(detail: str) -> bytes:
    return b',"value_error":%b' % orjson.dumps(f"it counts, but the total could not be read: {detail}")


# The handlers.


class IncrementRoutes:
    """Answers 202 when the increments are durable. A client that gets no 202 sends them again with the same id."""

    def __init__(self, publishing: Publishing, waits: AppliedWaits, totals: Totals, new_names: NewNames) -> None:
        self._publishing = publishing
        self._new_names = new_names
        self._waits = waits
        self._totals = totals

    async def increment(self, call: Call, name: str, asks: CountOne) -> Reply:
        """Count one increment"""
        caller = call.caller
        asks.check(caller)
        try:
            read = partial(parse.single, by=asks.by, allowed=caller.deltas)
            delta, client_id = await call.bodies.read_one(call.request, caller, read)
        except BodyError:
            metrics.REJECTED.inc()
            raise
        if client_id is None:
            client_id = asks.key
        with self.place(caller, asks):
            draft = await self.take(name, delta, client_id, caller)
            uses = Uses([draft], 0 if client_id is None else 1)
            if asks.ack:
                metrics.UNDURABLE.inc()
                return _accepted(b'{"accepted":1,"durable":false,"receipt":"%b"}' % caller.receipt(draft.id).encode())
            await self._publishing.durable(draft, awaited=asks.wait is not None)
            notes = await self._applied(call, [draft], asks)
            total = b""
            if (asks.value or notes is not None) and caller.may_read:
                total = await self._totals.of_one(name, with_exact=asks.value is not None)
            answer = accepted_one(caller.receipt(draft.id), is_second=uses.second(notes) > 0, more=total)
            return _accepted(answer) if notes is None else Reply(answer)

    async def take(self, name: str, delta: int, client_id: str | None, caller: Caller) -> Draft:
        """Take one increment, in a draft that is not durable yet. Raises an error if there is no room for it."""
        caller.spend(1)
        with self._new_names.trial(caller.new) as trial:
            if delta:
                await self._new_names.check(name, trial)
            draft = add_one(self._publishing, caller, name, delta, client_id)
            link_request(draft)
            return draft

    async def increment_many(self, call: Call, asks: CountMany) -> Reply:
        """Count many increments"""
        caller, key = call.caller, asks.key
        asks.check(caller)
        tenant = caller.tenant
        slowly = partial(_checked, caller, asks, partial(parse.batch, allowed=caller.deltas))
        quickly = partial(_checked, caller, asks, parse.quick) if caller.deltas is ALL_DELTAS else None
        parsed, size = await self.read(call, slowly, quickly)
        accepted = parsed.batch.increments
        weight = weight_of(accepted + parsed.bad, size)
        with self.place(caller, asks):
            caller.spend(accepted)
            if key is not None:
                _check_whole(parsed.batch)
            with self._new_names.trial(caller.new) as trial:
                if refused := await self._refuse_new(parsed, key, trial):
                    metrics.REJECTED.inc(refused)
                    call.bodies.refused(tenant, size * refused // (accepted + parsed.bad), refused)
                accepted = parsed.batch.increments
                names, keyed = [*parsed.batch.by_counter()] if asks.value else [], len(parsed.batch.keyed)
                batch_id = "" if key is None else caller.batch_id(key, parsed.batch.apart()[0].content)
                with call.bodies.judging(tenant, size, accepted):
                    drafts = self._publishing.add_batch(parsed.batch, tenant, weight, batch_id)
            return await self.answer(call, parsed, drafts, asks, uses=Uses(drafts, keyed), names=names)

    async def read(
        self, call: Call, parse: Callable[[bytes], Some], quick: Callable[[bytes], Some | None] | None = None
    ) -> tuple[Some, int]:
        """What `parse` or `quick` finds in the body, and the size of that. What is refused of it is accounted for."""
        tenant, bodies = call.caller.tenant, call.bodies
        announced = bodies.announced(call.request)
        if announced > LARGE:  # a body that will be refused is not read first
            self._publishing.check(tenant, weight_of(1, announced))
        try:
            parsed, size = await bodies.read_many(call.request, call.caller, parse, quick)
        except BodyError:
            metrics.REJECTED.inc()
            raise
        if parsed.bad:
            metrics.REJECTED.inc(parsed.bad)
            bodies.refused(tenant, size * parsed.bad // (parsed.bad + parsed.batch.increments), parsed.bad)
        return parsed, size

    async def answer(
        self,
        call: Call,
        parsed: parse.Parsed,
        drafts: list[Draft],
        asks: Answering,
        *,
        uses: Uses,
        names: Sequence[str],
    ) -> Reply:
        """The answer to a batch that is in these drafts, when the client wants it. `names`: whose totals it shows."""
        accepted = parsed.batch.increments
        link_request(*drafts)
        answer = partial(
            accepted_many, accepted, receipt_of(call.caller, drafts), rejected=parsed.rejected, bad=parsed.bad
        )
        if asks.ack:
            metrics.UNDURABLE.inc(accepted)
            return _accepted(answer(durable=False))
        await self._publishing.all_durable(drafts, awaited=asks.wait is not None)
        notes = await self._applied(call, drafts, asks)
        written = answer(uses.second(notes))
        if names and call.caller.may_read:
            written = b"%b%b}" % (written[:-1], await self._totals.of_many(names))
        return _accepted(written) if notes is None else Reply(written)

    async def _refuse_new(self, parsed: parse.Parsed, key: str | None, trial: Trial) -> int:
        """Take out the increments of new names for which there is no room. Returns how many these are. Raises
        `ShareError` if no other is left.

        Under an Idempotency-Key, the items without ids are refused together. Otherwise a retry that finds room would
        seem to count what the first attempt had left out, and its receipt would keep it from counting.
        """
        batch, new_names = parsed.batch, self._new_names
        if not new_names.may_refuse(trial):
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
            raise refusal(next(iter(reasons.values())), trial.refused)
        for name, number in dropped.items():
            for _ in range(number):
                parsed.reject(counter=name, reason=reasons[name])
        return sum(dropped.values())

    def place(self, caller: Caller, asks: Answering) -> AbstractContextManager[None]:
        """A place among the requests that wait, if this one is to wait."""
        return nullcontext() if asks.wait is None else self._waits.places.take(caller.tenant)

    async def _applied(self, call: Call, drafts: list[Draft], asks: Answering) -> Mapping[str, Note] | None:
        """The notes of their receipts, if it is to wait until they are applied, and they are while the key is valid."""
        if asks.wait is None:
            return None
        gone = partial(has_gone, call.request)
        notes = await self._waits.applied([draft.id for draft in drafts], asks.timeout, gone)
        return notes if call.caller.is_valid() else None


def add_one(publishing: Publishing, caller: Caller, name: str, delta: int, client_id: str | None) -> Draft:
    """Take one increment. It counts once its draft is durable. `OverloadedError` if there is no room for it."""
    if client_id is None:
        return publishing.add(name, delta, caller.tenant)
    return publishing.add_keyed(Increment(name, delta, caller.owned(client_id)), caller.tenant)


def receipt_of(caller: Caller, drafts: Sequence[Draft]) -> str:
    return caller.receipt(".".join(dict.fromkeys([draft.id for draft in drafts])))


def _checked(caller: Caller, asks: Answering, parse: Callable[[bytes], Found], body: bytes) -> Found:
    """What the body holds, if all of its counters are the caller's, and not too many for the answer. For large bodies
    it runs in a thread.
    """
    parsed = parse(body)
    if parsed is not None:
        caller.check_batch(parsed.batch)
        asks.check_number(parsed.batch)
    return parsed


def _accepted(body: bytes) -> Reply:
    return Reply(body, ACCEPTED)


def _check_whole(batch: Batch) -> None:
    """Raise a 413 if the items without ids do not fit into one envelope."""
    if len(batch.sums) > MAX_ENTRIES:
        raise Problem(
            413,
            f"a batch with an Idempotency-Key may name at most {MAX_ENTRIES} counters, and this one names"
            f" {len(batch.sums)}: send several batches, each with its own key",
            field="Idempotency-Key",
        )
