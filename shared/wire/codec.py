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
    Increment,
    Message,
    flaw_of_delta,
    flaw_of_id,
    flaw_of_name,
)
from shared.wire import strict_json

SOURCE: Final = "countersink"
TYPE: Final = "countersink.envelope.v1"
OURS: Final = "countersink."
"""All our types begin with it, in every version. Other publishers must not use it, or our source."""
ATTEMPT: Final = "ce-attempt"
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
    data = _data(message)
    if ours:
        envelope_id, retried = _own_id(message), data.get("retried") is True
        attempt = _own_attempt(message)
    else:
        envelope_id, retried = _foreign_id(delivery, topic)
        attempt = f"{delivery.message_id}:{delivery.published}"
        for name in ("created", "counts"):
            data.pop(name, None)
    sums, keyed = _increments(data, MAX_SUM if ours else None)
    whole = Envelope(
        id=envelope_id,
        sums=sums,
        counts=_counts(data.get("counts", {}), sums),
        keyed=keyed,
        created=_created(data.get("created", delivery.published)),
        retried=retried,
        attempt=attempt if retried else "",
        foreign=not ours,
    )
    return divided(whole)


def increments_of(message: Message) -> int:
    """The number of increments in any message; 0 if it is unreadable."""
    if message.increments is not None:
        return message.increments
    try:
        return sum(envelope.increments for envelope in decode(Delivery("", message, "", BrokerMillis(0)), ""))
    except (UnreadableError, NewerError):
        return 0


def _data(message: Message) -> dict[str, Any]:
    if not message.data.strip():
        return _of_attributes(message)
    try:
        data = strict_json.loads(message.data)
    except strict_json.JsonError as error:
        raise UnreadableError(f"the data is {error}") from None
    if type(data) is not dict:
        raise UnreadableError("the data must be a JSON object")
    return data


def _of_attributes(message: Message) -> dict[str, Any]:
    if "counter" not in message.attributes:
        raise UnreadableError("a message without data needs the attribute 'counter'")
    data: dict[str, Any] = {"counter": message.attributes["counter"]}
    if "delta" in message.attributes:
        try:
            data["delta"] = int(message.attributes["delta"])
        except ValueError:
            raise UnreadableError("the attribute 'delta' must be an integer") from None
    return data


def _increments(data: dict[str, Any], max_sum: int | None) -> tuple[dict[str, int], tuple[Increment, ...]]:
    if "counter" in data:
        if "counters" in data or "keyed" in data:
            raise UnreadableError("'counter' can't stand beside 'counters' or 'keyed'")
        item = _increment(data, "")
        return ({item.counter: item.delta}, ()) if item.id is None else ({}, (item,))
    if "counters" not in data and "keyed" not in data:
        raise UnreadableError("the data needs 'counter' or 'counters'")
    sums = data.get("counters", {})
    keyed = data.get("keyed", [])
    if type(sums) is not dict or type(keyed) is not list:
        raise UnreadableError("'counters' must be an object and 'keyed' an array")
    for name, delta in sums.items():
        if flaw := flaw_of_name(name):
            raise UnreadableError(f"a name in 'counters' {flaw}")
        flaw = flaw_of_delta(delta) if max_sum is None else _flaw_of_sum(delta, max_sum)
        if flaw:
            raise UnreadableError(f"'counters': the delta of {name!r} {flaw}")
    items = tuple(_increment(item, f"'keyed' item {index}: ") for index, item in enumerate(keyed))
    if any(item.id is None for item in items):
        raise UnreadableError("each item of 'keyed' needs an 'id'")
    return sums, items


def _increment(item: Any, where: str) -> Increment:
    if type(item) is not dict:
        raise UnreadableError(f"{where}must be an object")
    counter, delta, client_id = item.get("counter"), item.get("delta", 1), item.get("id")
    for name, flaw in (
        ("counter", flaw_of_name(counter)),
        ("delta", flaw_of_delta(delta)),
        ("id", client_id is not None and flaw_of_id(client_id)),
    ):
        if flaw:
            raise UnreadableError(f"{where}'{name}' {flaw}")
    return Increment(counter, delta, client_id)  # type: ignore[arg-type] # checked: flaw_of_name


def _flaw_of_sum(value: object, max_sum: int) -> str | None:
    if type(value) is not int:
        return "must be an integer"
    return None if -max_sum <= value <= max_sum else f"must be between -{max_sum} and {max_sum}"


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
