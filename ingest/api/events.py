"""Counting CloudEvents: the handler, and what it takes."""

from functools import partial
from typing import Final

from msgspec import field

from ingest.accept.admission import weight_of
from ingest.accept.drafts import MAX_ENTRIES, Uses
from ingest.accept.new_names import PAGE, NewNames, Trial, refusal
from ingest.accept.publishing import Publishing
from ingest.access.callers import Caller
from ingest.api.fields import Schema, ref
from ingest.api.increments import Answering, IncrementRoutes
from ingest.http.requests import Call, Reply
from ingest.parsing.events import BATCH, MOST_EVENTS, ONE, Event, Events, none_valid, reader_of
from ingest.parsing.parse import BodyError
from shared.model.words import MAX_ID_BYTES
from shared.runtime import metrics

_OTHER: Final = "other data was accepted under this 'source' and 'id': send this under a new id"
_TOGETHER: Final = "An event counts as a whole or not at all"
_IDENTITY: Final = {"type": "string", "minLength": 1, "maxLength": MAX_ID_BYTES}
_COUNTERS: Final = {"type": "object", "propertyNames": ref("Name"), "additionalProperties": ref("Delta")}


def _increment(id_: Schema, *required: str) -> Schema:
    """One increment, with or without an id of its own. Other fields are ignored."""
    properties = {"counter": ref("Name"), "delta": ref("Delta"), "id": id_, "counters": False, "keyed": False}
    return {"type": "object", "properties": properties, "required": ["counter", *required]}


_INCREMENT: Final = _increment({"anyOf": [ref("Id"), {"type": "null"}]})

SCHEMAS: Final[Schema] = {
    "EventData": {
        "anyOf": [
            _INCREMENT,
            {"type": "array", "items": _INCREMENT, "minItems": 1},
            {
                "type": "object",
                "properties": {
                    "counter": False,
                    "counters": _COUNTERS,
                    "keyed": {"type": "array", "items": _increment(ref("Id"), "id")},
                },
                "anyOf": [
                    {"required": ["counters"], "properties": {"counters": {"minProperties": 1}}},
                    {"required": ["keyed"], "properties": {"keyed": {"minItems": 1}}},
                ],
            },
        ],
        "description": "What the event counts: as in a message on the topic, but all of it together may name at most"
        f" {MAX_ENTRIES} counters and ids.",
        "examples": [{"counter": "visits", "delta": 2}],
    },
    "Event": {
        "type": "object",
        "properties": {
            "specversion": {"const": "1.0"},
            "id": _IDENTITY,
            "source": _IDENTITY,
            "type": {"type": "string", "minLength": 1},
        },
        "required": ["specversion", "id", "source", "type"],
        "anyOf": [
            {"required": ["data"], "properties": {"data": ref("EventData"), "data_base64": {"type": "null"}}},
            {
                "required": ["counter"],
                "properties": {
                    "data": {"type": "null"},
                    "data_base64": {"type": "null"},
                    "counter": ref("Name"),
                    "delta": ref("Delta"),
                },
            },
        ],
        "description": "A CloudEvent 1.0. All events of one owner of keys with the same `source` and `id` count once,"
        " and the first one wins. The data may also be a string that holds one of these forms, or Base64 of it in"
        " `data_base64`. Other attributes are ignored.",
        "examples": [
            {"specversion": "1.0", "id": "1041", "source": "//shop.example", "type": "sold", "data": {"counter": "a"}}
        ],
    },
    "Events": {
        "type": "array",
        "items": ref("Event"),
        "minItems": 1,
        "maxItems": MOST_EVENTS,
        "description": "Each event counts or is rejected as a whole.",
    },
}
BODY: Final = {ONE: ref("Event"), BATCH: ref("Events")}
MODES: Final = (
    "One event, or several. In binary mode, the attributes are the headers `ce-specversion`, `ce-id`, `ce-source` and"
    " `ce-type`, and the body is the data, with any other Content-Type. Without a body, `ce-counter` and `ce-delta` say"
    " what counts. Without such headers, the body may be what a push subscription of Pub/Sub sends: its message counts"
    " what it would count on the topic."
)


class EventAsks(Answering):
    """When the client wants the answer; and what Eventarc adds."""

    mode: str | None = field(name="__GCP_CloudEventsMode", default=None)
    """Eventarc sends it. It changes nothing."""


class EventRoutes:
    """Each event becomes one envelope, whose id is made from the event's owner, source and id."""

    def __init__(self, writes: IncrementRoutes, publishing: Publishing, new_names: NewNames) -> None:
        self._writes = writes
        self._publishing = publishing
        self._new_names = new_names

    async def count_events(self, call: Call, asks: EventAsks) -> Reply:
        """Count CloudEvents. Each event counts once, however often it is sent"""
        caller, writes = call.caller, self._writes
        asks.check(caller)
        try:
            read = reader_of(call.headers)
        except BodyError:
            metrics.REJECTED.inc()
            raise
        found, size = await writes.read(call, lambda body: _checked(caller, asks, read(body)))
        weight, bad = weight_of(found.batch.increments + found.bad, size), found.bad
        with writes.place(caller, asks):
            caller.spend(found.batch.increments)
            with self._new_names.trial(caller.new) as trial:
                try:
                    self._refuse_others(found, caller)
                    await self._refuse_new(found, trial)
                finally:
                    if more := found.bad - bad:
                        metrics.REJECTED.inc(more)
                        call.bodies.refused(caller.tenant, size * more // (len(found.events) + found.bad), more)
                names = [*found.batch.by_counter()] if asks.value else []
                batches = [(_id_of(event, caller), event.batch) for event in found.events]
                drafts = self._publishing.add_wholes(batches, caller.tenant, weight)
            return await writes.answer(call, found, drafts, asks, uses=Uses(drafts, 0), names=names)

    def _refuse_others(self, found: Events, caller: Caller) -> None:
        """Reject the events that are known to have been accepted with other data, as they would not count; and those
        with deltas that the caller may not send.
        """
        is_other, allowed = self._publishing.is_other, caller.deltas
        reasons: dict[int, str] = {}
        for event in found.events:
            if flaw := allowed.flaw_of(event.ends[0]) or allowed.flaw_of(event.ends[1]):
                reasons[event.place] = f"with this key, 'delta' {flaw}"
            elif is_other(_id_of(event, caller), event.batch):
                reasons[event.place] = _OTHER
        if reasons:
            found.refuse(reasons)
            if found.bad == 1 and not found.events:
                (reason,) = reasons.values()
                raise BodyError(422, reason, "id" if reason is _OTHER else "delta")
            if not found.events:
                raise none_valid(found)

    async def _refuse_new(self, found: Events, trial: Trial) -> None:
        """Reject the events that name new counters for which there is no room. Raises `ShareError` if no other is
        left.
        """
        if not self._new_names.may_refuse(trial):
            return
        admit = partial(self._new_names.admit_together, trial=trial, hint=_TOGETHER)
        names = found.batch.changed()
        if len(names) <= PAGE and not await admit(names):
            return
        reasons: dict[int, str] = {}
        for event in found.events:
            if refused := await admit(event.batch.changed()):
                reasons[event.place] = next(iter(refused.values()))
        if reasons:
            found.refuse(reasons)
            if not found.events:
                raise refusal(next(iter(reasons.values())), trial.refused)


def _checked(caller: Caller, asks: Answering, found: Events) -> Events:
    """The events, if all of their counters are the caller's, and not too many for the answer."""
    caller.check_size(found.batch.increments)
    caller.check_names(found.batch.by_counter())
    asks.check_number(found.batch)
    for event in found.events:
        event.batch.keyed = caller.owned_items(event.batch.keyed)
    return found


def _id_of(event: Event, caller: Caller) -> str:
    return caller.event_id(event.source, event.id, event.batch.content)
