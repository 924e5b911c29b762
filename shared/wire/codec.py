"""Encodes envelopes as messages, and decodes our messages and those of other publishers; the fast schemas of both."""

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
    flaw_of_id,
)
from shared.wire import content
from shared.wire.content import Content

# What JSON must be like so that a schema can read it in place of our own checks, which take several times as long.
# All other JSON is left to those. Pure.


Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_BYTES)]
"""In a text that is plain, and if it is not one of `RESERVED`."""
Id = Annotated[str, Meta(min_length=1, max_length=MAX_ID_BYTES)]
Delta = Annotated[int, Meta(ge=-MAX_DELTA, le=MAX_DELTA)]
RESERVED: Final = frozenset({".", ".."})
"""Names that no counter may have, beside `__…__`."""


class SumOnce(Struct, forbid_unknown_fields=True, gc=False):
    """An increment with an id."""

    counter: Name
    delta: Delta
    id: Id


def is_plain(text: bytes) -> bool:
    """Whether names in it may be counters, and each quote begins or ends a string: ASCII without escapes and without
    DEL holds no controls, as JSON allows no others.
    """
    return not (not text.isascii() or b"\\" in text or b"\x7f" in text or (b"_" in text and b'"__' in text))


def surely_unique(text: bytes, strings: int) -> bool:
    """Whether no name stands twice in an object. The parser would keep the last value without a word. A plain text has
    no more strings than the values that were read.
    """
    return text.count(b'"') == 2 * strings


# Reads the data of our own messages as we write it. Data that is written otherwise is left to `content`. Pure.


class _Data(Struct, forbid_unknown_fields=True, gc=False):
    counters: dict[Name, Annotated[int, Meta(ge=-MAX_SUM, le=MAX_SUM)]]
    created: int
    counts: dict[str, int] | UnsetType = UNSET
    keyed: list[SumOnce] | UnsetType = UNSET
    retried: bool | UnsetType = UNSET


_DATA: Final = Decoder(_Data)


class OwnData(NamedTuple):
    """The data of a message of ours."""

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
"""It also stands in messages of other publishers: it is an extension of CloudEvents."""
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
        sums, counts, keyed, _ = content.of_others(message)
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
    data = content.object_of(message)
    sums, _, keyed, _ = content.of_object(data, MAX_SUM)
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
