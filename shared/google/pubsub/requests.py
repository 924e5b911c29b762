"""Converts messages to and from those of Pub/Sub, and divides them into requests that fit. Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from google.pubsub_v1 import types

from shared.model.batches import batches
from shared.model.errors import TooLargeError
from shared.model.times import BrokerMillis
from shared.model.words import Delivery, Letter, Message

MOST_MESSAGES: Final = 1_000
MOST_BYTES: Final = 10_000_000 - 1_000
"""Bytes of messages in a publish request; the rest of 10 MB is for the topic's name."""
MOST_ACK_IDS: Final = 1_000
MOST_ACK_BYTES: Final = 500_000
"""Bytes of ids in a request; the rest of 512 KiB is for the subscription's name."""
MOST_ATTRIBUTES: Final = 100
MOST_VALUE_BYTES: Final = 1_024
_FRAME: Final = 8
"""Bytes that each item adds to a request at most: its tag and its length."""

REASON: Final = "countersink-reason"
MESSAGE_ID: Final = "countersink-message-id"
PUBLISHED: Final = "countersink-published"
TOPIC: Final = "countersink-topic"
CUT: Final = "countersink-cut"
"""The original size of the data, if it was cut to fit beside the reason."""
_READ: Final = ("ce-", "content-type", "counter", "delta", "countersink-")
"""How the names of attributes begin that Countersink reads."""

_NUMBER: Final = re.compile("[0-9]{1,18}")

_Message: Final = types.PubsubMessage.pb()


def to_wire(message: Message) -> Any:
    return _Message(data=message.data, attributes=message.attributes)


def from_wire(ack_id: str, message: Any, attempt: int) -> Delivery:
    return Delivery(
        token=ack_id,
        message=Message(message.data, dict(message.attributes)),
        message_id=message.message_id,
        published=published(message),
        attempt=attempt,
    )


def published(message: Any) -> BrokerMillis:
    """Milliseconds since 1970."""
    time = message.publish_time
    return BrokerMillis(time.seconds * 1000 + time.nanos // 1_000_000)


def requests(messages: Sequence[Any]) -> list[tuple[list[Any], int]]:
    """Divide messages, in order, into as few requests as possible, each with its size in bytes. `TooLargeError` if one
    message alone is too large.
    """
    made = [*batches(messages, lambda message: message.ByteSize() + _FRAME, MOST_BYTES, MOST_MESSAGES)]
    for _, size in made:
        if size > MOST_BYTES:
            raise TooLargeError(f"a message of {size} bytes is more than Pub/Sub takes ({MOST_BYTES})")
    return made


def ack_batches(ack_ids: Sequence[str]) -> Iterator[list[str]]:
    for batch, _ in batches(ack_ids, lambda ack_id: len(ack_id) + _FRAME, MOST_ACK_BYTES, MOST_ACK_IDS):
        yield batch


def dead_letter(delivery: Delivery, reason: str, topic: str) -> Message:
    """The message as it was, with its id, its time, its topic and the reason as attributes.

    Only a foreign one can be so large that this does not fit. Then attributes that Countersink does not read are left
    out, and the end of the data is cut off. So every message that could be published can be buried.
    """
    ours = {
        REASON: _short(reason),
        MESSAGE_ID: delivery.message_id,
        PUBLISHED: str(delivery.published),
        TOPIC: _short(topic),
    }
    theirs = {key: value for key, value in delivery.message.attributes.items() if key not in ours}
    whole = Message(delivery.message.data, theirs | ours)
    if len(whole.attributes) <= MOST_ATTRIBUTES and to_wire(whole).ByteSize() + _FRAME <= MOST_BYTES:
        return whole
    read = [key for key in theirs if key.startswith(_READ)][: MOST_ATTRIBUTES - len(ours) - 1]
    kept = {key: theirs[key] for key in read} | ours | {CUT: str(len(delivery.message.data))}
    room = MOST_BYTES - to_wire(Message(b"", kept)).ByteSize() - 2 * _FRAME
    return Message(delivery.message.data[:room], kept)


def letter_of(ack_id: str, message: Any, topic: str) -> Letter:
    """The letter in a message, with the id and the time that the message had when it was buried."""
    attributes = dict(message.attributes)
    reason = attributes.pop(REASON, "")
    whole = from_wire(ack_id, message, 1)
    its_id, its_time, its_topic = (attributes.pop(name, "") for name in (MESSAGE_ID, PUBLISHED, TOPIC))
    cut = attributes.pop(CUT, str(len(message.data)))
    if not its_id or not _NUMBER.fullmatch(its_time):
        return Letter(whole, reason, "it was not put here by a flusher")
    flaw = None
    if its_topic != _short(topic):
        flaw = f"it is of another topic: {its_topic}"
    elif cut != str(len(message.data)):
        flaw = f"only {len(message.data)} of {cut} bytes fitted beside the reason"
    delivery = Delivery(ack_id, Message(message.data, attributes), its_id, BrokerMillis(int(its_time)))
    return Letter(delivery, reason, flaw)


def _short(text: str) -> str:
    return text.encode(errors="replace")[:MOST_VALUE_BYTES].decode(errors="ignore")
