"""Reads CloudEvents from requests, one or a batch, and what Pub/Sub pushes; and finds what is wrong with them. Pure.

What an event may count is what a message on the topic may: `codec` reads the data of both.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from multidict import CIMultiDictProxy

from ingest.accept.drafts import MAX_ENTRIES, Batch, gathered
from ingest.parsing.parse import BodyError, Parsed, check_values, load
from shared.model.errors import UnreadableError
from shared.model.words import MAX_SUM, Message, flaw_of_id
from shared.wire.codec import MAX_ITEMS, OURS, SOURCE, Content, content_of, content_of_value

MOST_EVENTS: Final = 400
"""Most events in one request. The receipt names each of them, and has to fit into a URL."""
ONE: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"
SPEC: Final = "specversion"
_VERSION: Final = "1.0"
_REQUIRED: Final = (SPEC, "id", "source", "type")
PUBLISHED: Final = "google.cloud.pubsub.topic.v1.messagePublished"
"""The type of an event of Eventarc whose data is what Pub/Sub pushes."""
_COUNTS: Final = ("counter", "delta")
"""Attributes that say what an event without data counts."""
_ESCAPED: Final = re.compile(r"\\(.)")


class Event(NamedTuple):
    """One event. Its source and id are its identity: it counts once, and as a whole."""

    place: int
    """Where it stands in a batch."""
    source: str
    id: str
    batch: Batch
    ends: tuple[int, int]
    """The least and the largest of its deltas."""


@dataclass(slots=True)
class Events(Parsed):
    events: list[Event] = field(default_factory=list)

    def refuse(self, reasons: Mapping[int, str]) -> None:
        for index, reason in reasons.items():
            self.reject(index=index, reason=reason)
        self.events = [event for event in self.events if event.place not in reasons]
        self.batch = gathered(event.batch for event in self.events)


def reader_of(headers: CIMultiDictProxy[str]) -> Callable[[bytes], Events]:
    """The function that reads the body of a request with these headers: events, or without headers of an event what
    Pub/Sub pushes. Raises `BodyError` if the headers say that the body holds no events.
    """
    said = ",".join(headers.getall("Content-Type", ())).partition(";")[0].strip().lower()
    if said == ONE:
        return _structured
    if said == BATCH:
        return _batch
    if said.startswith("application/cloudevents"):
        raise BodyError(400, f"events are read as JSON only: send {ONE} or {BATCH}", "Content-Type")
    if not headers.getall(f"ce-{SPEC}", ()):
        return _pushed
    attributes = {name: _header(headers, f"ce-{name}") for name in (*_REQUIRED, *_COUNTS)}
    return partial(_binary, {name: value for name, value in attributes.items() if value is not None})


def _header(headers: CIMultiDictProxy[str], name: str) -> str | None:
    """The value of an attribute in a header, as the HTTP binding of CloudEvents encodes it."""
    values = headers.getall(name, ())
    if len(values) > 1:
        raise BodyError(400, f"the header {name} was sent more than once: send one", name)
    if not values:
        return None
    value = values[0]
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = _ESCAPED.sub(r"\1", value[1:-1])
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise BodyError(400, f"the header {name} is not valid percent-encoded UTF-8", name) from None


class _Wrong(Exception):  # noqa: N818 (never leaves this module)
    """Says why an event does not count; `field` names what is wrong with it."""

    def __init__(self, reason: str, field: str) -> None:
        super().__init__(reason)
        self.field = field


def _pushed(body: bytes) -> Events:
    if (envelope := _pushed_in(body)) is None:
        raise BodyError(
            400,
            f"this is not a CloudEvent: the header ce-{SPEC} is missing, or Content-Type {ONE} or {BATCH}; nor is it a"
            " message that Pub/Sub pushes",
            f"ce-{SPEC}",
        )
    return _alone(partial(_of_push, envelope, {}))


def _pushed_in(body: bytes) -> dict[str, Any] | None:
    check_values(body, MAX_ITEMS)
    try:
        data = load(body)
    except BodyError:
        return None
    return data if type(data) is dict and "message" in data else None


def _binary(attributes: Mapping[str, str], body: bytes) -> Events:
    if attributes.get("type") == PUBLISHED and (envelope := _pushed_in(body)) is not None:
        return _alone(partial(_of_push, envelope, attributes))
    return _alone(partial(_event, attributes, partial(_of_bytes, body, attributes)), "ce-")


def _structured(body: bytes) -> Events:
    check_values(body, MAX_ITEMS)
    return _alone(partial(_of_object, load(body)))


def _batch(body: bytes) -> Events:
    check_values(body, MAX_ITEMS)
    items = load(body)
    if type(items) is not list:
        raise BodyError(400, f"the body must be an array of events: send one event as {ONE}")
    if not items:
        raise BodyError(400, "the body holds no events")
    if len(items) > MOST_EVENTS:
        raise BodyError(413, f"more than {MOST_EVENTS} events in one request: send several")
    found = Events()
    reasons: dict[int, str] = {}
    for index, item in enumerate(items):
        try:
            found.events.append(_of_object(item, index))
        except _Wrong as wrong:
            reasons[index] = str(wrong)
    found.refuse(reasons)
    if found.batch.increments > MAX_ITEMS:
        raise BodyError(413, f"more than {MAX_ITEMS} increments in one request: send several")
    if not found.events:
        raise none_valid(found)
    return found


def none_valid(found: Events) -> BodyError:
    """The error of a batch whose events were all rejected."""
    error = BodyError(400, f"no event is valid; item {found.rejected[0]['index']}: {found.rejected[0]['reason']}")
    error.items = found.bad
    return error


def _alone(read: Callable[[], Event], prefix: str = "") -> Events:
    """One event. `prefix`: what the names of its attributes begin with."""
    try:
        event = read()
    except _Wrong as wrong:
        name = wrong.field if wrong.field == "data" else f"{prefix}{wrong.field}"
        raise BodyError(400, str(wrong).replace(f"'{wrong.field}'", f"'{name}'"), name) from None
    return Events(batch=event.batch, events=[event])


def _of_object(item: Any, place: int = 0) -> Event:
    """An event in JSON, with its attributes beside its data."""
    if type(item) is not dict:
        raise _Wrong("an event must be a JSON object", "data")
    if item.get("type") == PUBLISHED and type(data := item.get("data")) is dict and "message" in data:
        return _of_push(data, item, place)
    return _event(item, partial(_of_data, item), place)


def _of_push(envelope: Mapping[str, Any], event: Mapping[str, Any], place: int = 0) -> Event:
    """The event that Pub/Sub pushes, in an event of Eventarc or by itself. It counts what the same message on the topic
    would count, and its identity is that of the message: `ce-source` and `ce-id` if it has both.
    """
    message = envelope["message"]
    if type(message) is not dict:
        raise _Wrong("'message' must be an object, as Pub/Sub pushes it", "message")
    attributes = message.get("attributes") or {}
    if type(attributes) is not dict or not all(type(value) is str for value in attributes.values()):
        raise _Wrong("'attributes' of a message must be an object of strings", "attributes")
    source, id_ = attributes.get("ce-source"), attributes.get("ce-id")
    if source == SOURCE or attributes.get("ce-type", "").startswith(OURS):
        raise _Wrong(
            "Countersink published this message: do not push its topic to Countersink, or increments go in circles",
            "data",
        )
    if not (source and id_):
        source = event.get("source") or f"//pubsub.googleapis.com/{envelope.get('subscription')}"
        id_ = event.get("id") or message.get("messageId")
        if not id_:
            raise _Wrong("'messageId' is missing", "messageId")
    try:
        data = base64.b64decode(message.get("data") or "", validate=True)
    except (TypeError, ValueError):
        raise _Wrong("'data' of a message must be a string of Base64", "data") from None
    check_values(data, MAX_ITEMS)
    read = partial(content_of, Message(data, attributes))
    return _event({SPEC: _VERSION, "type": PUBLISHED, **event, "source": source, "id": id_}, read, place)


def _of_data(item: Mapping[str, Any]) -> Content:
    data, coded = item.get("data"), item.get("data_base64")
    if data is not None and coded is not None:
        raise _Wrong("'data_base64' can't be combined with 'data'", "data_base64")
    if type(data) in {dict, list}:
        return content_of_value(data)
    if coded is not None:
        return _of_bytes(_decoded(coded), item)
    if data is not None and type(data) is not str:
        raise _Wrong('\'data\' must be an object such as {"counter": "a", "delta": 1}, or an array of these', "data")
    return _of_bytes((data or "").encode(errors="surrogatepass"), item)


def _decoded(coded: Any) -> bytes:
    try:
        return base64.b64decode(coded, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise _Wrong("'data_base64' must be a string of Base64", "data_base64") from None


def _of_bytes(data: bytes, attributes: Mapping[str, Any]) -> Content:
    check_values(data, MAX_ITEMS)
    if data.strip():
        return content_of(Message(data))
    if "counter" not in attributes:
        raise _Wrong("an event without data needs the attribute 'counter'", "counter")
    said = {}
    for name in _COUNTS:
        if name in attributes:
            value = attributes[name]
            if type(value) is not str and (name == "counter" or type(value) is not int):
                raise _Wrong(f"'{name}' must be {'a string' if name == 'counter' else 'an integer'}", name)
            said[name] = str(value)
    return content_of(Message(b"", said))


def _event(attributes: Mapping[str, Any], read: Callable[[], Content], place: int = 0) -> Event:
    for name in _REQUIRED:
        value = attributes.get(name)
        if value is None or value == "":
            raise _Wrong(f"'{name}' is missing", name)
        if type(value) is not str:
            raise _Wrong(f"'{name}' must be a string", name)
    if attributes[SPEC] != _VERSION:
        raise _Wrong(f"'{SPEC}' must be {_VERSION}", SPEC)
    for name in ("id", "source"):
        if flaw := flaw_of_id(attributes[name]):
            raise _Wrong(f"'{name}' {flaw}", name)
    try:
        sums, counts, keyed, ends = read()
    except UnreadableError as error:
        raise _Wrong(str(error), "data") from None
    batch = Batch(sums, counts, [*keyed], len(sums) + sum(counts.values()) - len(counts) + len(keyed))
    if flaw := _flaw_of(batch):
        raise _Wrong(flaw, "data")
    deltas = [*([] if counts else sums.values()), *ends, *(item.delta for item in keyed)]
    return Event(place, attributes["source"], attributes["id"], batch, (min(deltas), max(deltas)))


def _flaw_of(batch: Batch) -> str | None:
    """Why this can't be one envelope; None if it can."""
    if not batch.increments:
        return "the data holds no increments"
    if batch.entries() > MAX_ENTRIES:
        return f"an event may name at most {MAX_ENTRIES} counters and ids, and this one names {batch.entries()}"
    if sum(abs(item.delta) for item in batch.keyed) > MAX_SUM:
        return f"the deltas of the increments with ids in one event may add up to {MAX_SUM} at most"
    return None
