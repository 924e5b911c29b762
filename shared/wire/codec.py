"""What an increment is in JSON; and messages: how envelopes are encoded, and how ours and those of others are decoded.

Requests and messages are read alike, with the differences that docs/messages.md lists. What has a usual form is read by
schema, which takes a fraction of the time. Our own checks read all forms, and say what is wrong.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple

import orjson
from msgspec import UNSET, DecodeError, Meta, Struct, UnsetType
from msgspec.json import Decoder

from shared.model.buckets import BrokerMillis, WallMillis
from shared.model.errors import NewerError, UnreadableError
from shared.model.words import (
    MAX_DELTA,
    MAX_ID_BYTES,
    MAX_NAME_BYTES,
    MAX_SUM,
    Delivery,
    Envelope,
    Increment,
    Message,
    divided,
    flaw_of_delta,
    flaw_of_id,
    flaw_of_name,
)
from shared.wire import strict_json
from shared.wire.strict_json import Flaw, flaw_of_fields, or_null

# What JSON must be like so that a schema can read it.


Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_BYTES)]
"""In a text that is plain, and if it is not one of `RESERVED`."""
Id = Annotated[str, Meta(min_length=1, max_length=MAX_ID_BYTES)]
Delta = Annotated[int, Meta(ge=-MAX_DELTA, le=MAX_DELTA)]
RESERVED: Final = frozenset({".", ".."})
"""Names that no counter may have, besides `__…__`."""


class SumOnce(Struct, forbid_unknown_fields=True, gc=False):
    counter: Name
    delta: Delta
    id: Id


def is_plain(text: bytes) -> bool:
    """Whether names in it may be counters, and each quote begins or ends a string: ASCII without escapes and without
    DEL holds no controls, as JSON allows no others.
    """
    return not (not text.isascii() or b"\\" in text or b"\x7f" in text or (b"_" in text and b'"__' in text))


def surely_unique(text: bytes, strings: int) -> bool:
    """Whether no name appears twice in an object. The parser would keep the last value without a word. A plain text has
    no more strings than the values that were read.
    """
    return text.count(b'"') == 2 * strings


# The same in all forms. A message counts as a whole or not at all.


MAX_ITEMS: Final = 100_000
"""Most increments in one request, and in the array or the lines of one message."""
FIELDS: Final[Mapping[str, Flaw]] = {"counter": flaw_of_name, "delta": flaw_of_delta, "id": or_null(flaw_of_id)}
"""What an increment has, and what is wrong with the value of each. Only `counter` is required."""
_LONGEST_TOLD: Final = 100
"""Characters of a bad name that a reason repeats."""


def added(name: str, delta: int, sums: dict[str, int], counts: dict[str, int]) -> bool:
    """Add an increment without an id to sums. False if the sum would be too large for one envelope."""
    there = sums.get(name)
    if there is None:
        sums[name] = delta
    elif -MAX_SUM <= there + delta <= MAX_SUM:
        sums[name] = there + delta
        counts[name] = counts.get(name, 1) + 1
    else:
        return False
    return True


class Content(NamedTuple):
    """Sums of the increments without ids, how many these are where it is not 1, and the increments with ids."""

    sums: dict[str, int]
    counts: dict[str, int]
    keyed: tuple[Increment, ...]
    ends: tuple[int, ...] = ()
    """The least and the largest of the deltas that were summed, if there are any."""


def content_of(message: Message) -> Content:
    """The content of another publisher's message. `UnreadableError` if any increment in it is not valid: nobody could
    be told which were counted, so a publisher could not send the others again.
    """
    if not message.data.strip():
        return _content_of_object(_of_attributes(message.attributes))
    text = message.data.strip(strict_json.SPACE)
    try:
        data = strict_json.loads(text)
    except strict_json.JsonError as error:
        if text.startswith(b"[") or b"\n" not in text or strict_json.is_json(text):
            raise UnreadableError(f"the data is {error}") from None
        _too_many(text.count(b"\n"))
        return _of_items([line for line in text.split(b"\n") if line.strip(strict_json.SPACE)], _of_line)
    return content_of_value(data)


def content_of_value(data: Any) -> Content:
    """The content of data that has been parsed from JSON, as `content_of` reads it."""
    if type(data) is dict:
        return _content_of_object(data)
    if type(data) is list:
        return _of_items(data, _increment)
    raise UnreadableError('the data must be an array of increments, NDJSON of them, or {"counters": {…}}')


def _object_of(message: Message) -> dict[str, Any]:
    """The object that the data of our own message must be."""
    try:
        data = strict_json.loads(message.data)
    except strict_json.JsonError as error:
        raise UnreadableError(f"the data is {error}") from None
    if type(data) is not dict:
        raise UnreadableError("the data must be a JSON object")
    return data


def _content_of_object(data: dict[str, Any], max_sum: int | None = None) -> Content:
    """The content of an object: one increment, or 'counters' and 'keyed'. `max_sum`: deltas in 'counters' are sums, and
    may be as large as this.
    """
    if "counters" not in data and "keyed" not in data:
        item = _increment(data)
        return Content({item.counter: item.delta}, {}, ()) if item.id is None else Content({}, {}, (item,))
    if "counter" in data:
        raise UnreadableError("'counter' can't be combined with 'counters' or 'keyed'")
    sums = data.get("counters", {})
    keyed = data.get("keyed", [])
    if type(sums) is not dict:
        raise UnreadableError("'counters' must be an object of names and deltas")
    if type(keyed) is not list:
        raise UnreadableError("'keyed' must be an array of increments")
    for name, delta in sums.items():
        flaw = flaw_of_delta(delta) if max_sum is None else _flaw_of_sum(delta, max_sum)
        reason = f"the name {bad}" if (bad := flaw_of_name(name)) else flaw and f"the delta {flaw}"
        if reason:
            raise UnreadableError(f"counter {name[:_LONGEST_TOLD]!r}: {reason}")
    items = tuple([_increment(item, f"'keyed' item {index}: ") for index, item in enumerate(keyed)])
    if any(item.id is None for item in items):
        raise UnreadableError("each item of 'keyed' needs an 'id'")
    return Content(sums, {}, items)


def _of_attributes(attributes: Mapping[str, str]) -> dict[str, Any]:
    if "counter" not in attributes:
        raise UnreadableError("a message without data needs the attribute 'counter'")
    data: dict[str, Any] = {"counter": attributes["counter"]}
    if "delta" in attributes:
        try:
            data["delta"] = int(attributes["delta"])
        except ValueError:
            raise UnreadableError("the attribute 'delta' must be an integer") from None
    return data


def _of_items(items: Sequence[Any], read: Callable[[Any, str], Increment]) -> Content:
    _too_many(len(items))
    if not items:
        raise UnreadableError("the data holds no increments")
    return _summed([read(item, f"item {index}: ") for index, item in enumerate(items)])


def _too_many(count: int) -> None:
    if count > MAX_ITEMS:
        raise UnreadableError(f"more than {MAX_ITEMS} increments in one message: send several")


def _summed(items: Sequence[Increment]) -> Content:
    content, keyed = Content({}, {}, ()), []
    for index, item in enumerate(items):
        name, delta, client_id, _ = item
        if client_id is not None:
            keyed.append(item)
        elif not added(name, delta, content.sums, content.counts):
            flaw = f"the deltas of a counter in one message may add up to ±{MAX_SUM} at most"
            raise UnreadableError(f"item {index}: {flaw}: send this increment in another message")
    deltas = [item.delta for item in items]
    return content._replace(keyed=tuple(keyed), ends=(min(deltas), max(deltas)))


def _of_line(line: bytes, where: str) -> Increment:
    try:
        return _increment(strict_json.loads(line), where)
    except strict_json.JsonError as error:
        raise UnreadableError(f"{where}{error}") from None


def _increment(item: Any, where: str = "") -> Increment:
    """One increment. Fields that are not known are ignored, as nobody could be told, and other publishers have some."""
    if type(item) is not dict:
        raise UnreadableError(f"{where}must be an object with 'counter'")
    if found := flaw_of_fields(item, FIELDS, ("counter",), others=True):
        raise UnreadableError(f"{where}{found[1]}")
    return Increment(item["counter"], item.get("delta", 1), item.get("id"))


def _flaw_of_sum(value: object, max_sum: int) -> str | None:
    if type(value) is not int:
        return "must be an integer"
    return None if -max_sum <= value <= max_sum else f"must be between -{max_sum} and {max_sum}"


# Reads the data of our own messages as we write it. Data that is written otherwise is read as that of others.


class _Data(Struct, forbid_unknown_fields=True, gc=False):
    counters: dict[Name, Annotated[int, Meta(ge=-MAX_SUM, le=MAX_SUM)]]
    created: int
    counts: dict[str, int] | UnsetType = UNSET
    keyed: list[SumOnce] | UnsetType = UNSET
    retried: bool | UnsetType = UNSET


_DATA: Final = Decoder(_Data)


class OwnData(NamedTuple):
    content: Content
    created: int
    retried: bool


def own_data(text: bytes) -> OwnData | None:
    """What the text says; None if a schema can't tell."""
    if not is_plain(text):
        return None
    try:
        data = _DATA.decode(text)
    except DecodeError:
        return None
    sums, counts, keyed = data.counters, data.counts or {}, data.keyed or []
    given = (data.counts is not UNSET) + (data.keyed is not UNSET) + (data.retried is not UNSET)
    if not surely_unique(text, 2 + given + len(sums) + len(counts) + 5 * len(keyed)):
        return None
    items = tuple([Increment(item.counter, item.delta, item.id) for item in keyed])
    if not sums.keys().isdisjoint(RESERVED) or not RESERVED.isdisjoint([item.counter for item in keyed]):
        return None
    return OwnData(Content(sums, counts, items), data.created, data.retried is True)


SOURCE: Final = "countersink"
TYPE: Final = "countersink.envelope.v1"
OURS: Final = "countersink."
"""All our types begin with it, in every version. Other publishers must not use it, or our source."""
ATTEMPT: Final = "ce-attempt"
TRACEPARENT: Final = "ce-traceparent"
"""It also appears in messages of other publishers: it is an extension of CloudEvents."""
PATIENT: Final = "ce-patient"
"""Its value is `1`, or it is left out. Publishers of others may send it, too."""
MOST_INCREMENTS: Final = 2**40
"""Increments in one envelope. The tally of a commit with many such envelopes still fits into int64."""
LAST_DATE: Final = 253_402_300_799_999
"""The end of the year 9999 in ms since 1970: the last date that can be shown."""


def encode(envelope: Envelope) -> Message:
    data: dict[str, Any] = {"counters": envelope.sums, "created": envelope.created}
    if envelope.counts:
        data["counts"] = envelope.counts
    if envelope.keyed:
        data["keyed"] = [{"id": item.id, "counter": item.counter, "delta": item.delta} for item in envelope.keyed]
    if envelope.retried:
        data["retried"] = True
    attributes = {
        "ce-specversion": "1.0",
        "ce-id": envelope.id,
        "ce-source": SOURCE,
        "ce-type": TYPE,
        "content-type": "application/json",
    }
    if envelope.attempt:
        attributes[ATTEMPT] = envelope.attempt
    if envelope.traceparent:
        attributes[TRACEPARENT] = envelope.traceparent
    if envelope.patient:
        attributes[PATIENT] = "1"
    once = envelope.id if envelope.retried else None
    return Message(orjson.dumps(data), attributes, once, envelope.increments)


def decode(delivery: Delivery, topic: str) -> tuple[Envelope, ...]:
    """The envelopes of a message on the topic: one, or several if it is too large for one commit.

    Raises `UnreadableError` with what is wrong, or `NewerError` if it is ours in an unknown version. Treated as another
    publisher's message, that would have another receipt, and count twice.
    """
    message = delivery.message
    type_ = message.attributes.get("ce-type", "")
    ours = type_ == TYPE
    if not ours and (type_.startswith(OURS) or message.attributes.get("ce-source") == SOURCE):
        raise NewerError(
            f"it is of another version of Countersink (ce-type {type_!r}, here {TYPE!r}): run that version, too"
        )
    if ours:
        envelope_id, attempt = _own_id(message), _own_attempt(message)
        (sums, counts, keyed, _), created, retried = own_data(message.data) or _other_own_data(message, delivery)
        counts = _counts(counts, sums)
    else:
        envelope_id, retried = _foreign_id(delivery, topic)
        attempt = f"{delivery.message_id}:{delivery.published}"
        sums, counts, keyed, _ = content_of(message)
        created = delivery.published
    whole = Envelope(
        id=envelope_id,
        sums=sums,
        counts=counts,
        keyed=keyed,
        created=_created(created),
        retried=retried,
        attempt=attempt if retried else "",
        foreign=not ours,
        traceparent=message.attributes.get(TRACEPARENT, ""),
        patient=message.attributes.get(PATIENT) == "1",
    )
    return divided(whole)


def _other_own_data(message: Message, delivery: Delivery) -> OwnData:
    """As `own_data`, in all forms."""
    data = _object_of(message)
    sums, _, keyed, _ = _content_of_object(data, MAX_SUM)
    found = Content(sums, data.get("counts", {}), keyed)
    return OwnData(found, data.get("created", delivery.published), data.get("retried") is True)


def increments_of(message: Message) -> int:
    """The number of increments in any message; 0 if it is unreadable."""
    if message.increments is not None:
        return message.increments
    try:
        return sum(envelope.increments for envelope in decode(Delivery("", message, "", BrokerMillis(0)), ""))
    except (UnreadableError, NewerError):
        return 0


def _counts(counts: Any, sums: dict[str, int]) -> dict[str, int]:
    if type(counts) is not dict or any(name not in sums or type(n) is not int or n < 0 for name, n in counts.items()):
        raise UnreadableError("'counts' must say of names in 'counters' how many increments they stand for")
    if sum(counts.values()) > MOST_INCREMENTS:
        raise UnreadableError(f"'counts' must not say more than {MOST_INCREMENTS} increments together")
    return counts


def _created(value: Any) -> WallMillis:
    if type(value) is not int or not 0 <= value <= LAST_DATE:
        raise UnreadableError("'created' must be milliseconds since 1970, and before the year 10000")
    return value


def _own_id(message: Message) -> str:
    envelope_id = message.attributes.get("ce-id", "")
    if not envelope_id:
        raise UnreadableError("an envelope needs the attribute 'ce-id'")
    if flaw := flaw_of_id(envelope_id):
        raise UnreadableError(f"the attribute 'ce-id' {flaw}")
    return envelope_id


def _own_attempt(message: Message) -> str:
    attempt = message.attributes.get(ATTEMPT, "")
    if len(attempt) > MAX_ID_BYTES:
        raise UnreadableError(f"the attribute {ATTEMPT!r} must have at most {MAX_ID_BYTES} characters")
    return attempt


def _foreign_id(delivery: Delivery, topic: str) -> tuple[str, bool]:
    """The id of another publisher's message, and whether a second publish of it has the same id.

    That is so for the publisher's own id. Without one it is the broker's, which differs.
    """
    attributes = delivery.message.attributes
    source, its_id = attributes.get("ce-source"), attributes.get("ce-id")
    if source and its_id:
        return f"ce:{len(source)}:{source}{its_id}", True
    return f"msg:{topic}:{delivery.message_id}:{delivery.published}", False
