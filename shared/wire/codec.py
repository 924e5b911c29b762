"""Encodes envelopes as messages, and decodes our messages and those of other publishers. Knows version 1."""

from typing import Any, Final

import orjson

from shared.model.envelope import Envelope, divided
from shared.model.errors import NewerError, UnreadableError
from shared.model.times import BrokerMillis, WallMillis
from shared.model.words import (
    MAX_ID_BYTES,
    MAX_SUM,
    Delivery,
    Message,
    flaw_of_id,
)
from shared.wire import content
from shared.wire.content import Content
from shared.wire.own_data import OwnData, own_data

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
