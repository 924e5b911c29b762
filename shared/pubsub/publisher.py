"""Publishes on Pub/Sub: in requests within its limits, several at once, each retried for a while; counts only while a
subscription keeps them; and the events of the feed.
"""

import asyncio
import json
import logging
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from google.pubsub_v1 import types

from shared.model.buckets import BrokerMillis
from shared.model.errors import (
    CountersinkError,
    OverloadedError,
    StoodStillError,
    TooLargeError,
    TransientError,
    UnkeptError,
)
from shared.model.feed import CHANGED, Event
from shared.model.words import Delivery, Letter, Message, batches
from shared.ports.broker import Check, at_any_time
from shared.pubsub.client import RETRY_FOR, DeniedError, NotFoundError, PubsubClient, SetupError, patiently
from shared.pubsub.setup import strays
from shared.runtime import metrics
from shared.runtime.retry import Drain, all_of

# Converts messages to and from those of Pub/Sub, and divides them into requests that fit. Pure.


MOST_PUBLISHED: Final = 1_000
MOST_BYTES_PUBLISHED: Final = 10_000_000 - 1_000
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
    time = message.publish_time
    return BrokerMillis(time.seconds * 1000 + time.nanos // 1_000_000)


def requests(messages: Sequence[Any]) -> list[tuple[list[Any], int]]:
    """Divide messages, in order, into as few requests as possible, each with its size in bytes. `TooLargeError` if one
    message alone is too large.
    """
    made = [*batches(messages, lambda message: message.ByteSize() + _FRAME, MOST_BYTES_PUBLISHED, MOST_PUBLISHED)]
    for _, size in made:
        if size > MOST_BYTES_PUBLISHED:
            raise TooLargeError(f"a message has {size} bytes, and Pub/Sub takes at most {MOST_BYTES_PUBLISHED}")
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
    theirs = {key: value for key, value in delivery.message.attributes.items() if key not in {*ours, CUT}}
    whole = Message(delivery.message.data, theirs | ours)
    if len(whole.attributes) <= MOST_ATTRIBUTES and to_wire(whole).ByteSize() + _FRAME <= MOST_BYTES_PUBLISHED:
        return whole
    read = [key for key in theirs if key.startswith(_READ)][: MOST_ATTRIBUTES - len(ours) - 1]
    kept = {key: theirs[key] for key in read} | ours | {CUT: str(len(delivery.message.data))}
    room = MOST_BYTES_PUBLISHED - to_wire(Message(b"", kept)).ByteSize() - 2 * _FRAME
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
        flaw = f"it was published to another topic: {its_topic}"
    elif cut != str(len(message.data)):
        flaw = f"only {len(message.data)} of {cut} bytes fitted here; the store may have all, as another letter"
    delivery = Delivery(ack_id, Message(message.data, attributes), its_id, BrokerMillis(int(its_time)))
    return Letter(delivery, reason, flaw)


def _short(text: str) -> str:
    return text.encode(errors="replace")[:MOST_VALUE_BYTES].decode(errors="ignore")


SIDE_BY_SIDE: Final = 8
FRESH: Final = 1.0
"""Seconds after a success in which the next publish is expected to succeed, too."""


class PubsubPublisher:
    """Pub/Sub does not say how much is unapplied, so this refuses only what would be too much in flight."""

    def __init__(
        self, client: PubsubClient, topic: str, max_in_flight_bytes: int = 2**26, patience: float = RETRY_FOR
    ) -> None:
        self._client = client
        self._topic = topic
        self._max_in_flight_bytes = max_in_flight_bytes
        self._patience = patience
        self._in_flight_bytes = 0
        self._drain = Drain(max_in_flight_bytes / 4)
        self._slots = asyncio.Semaphore(SIDE_BY_SIDE)
        self._good = float("-inf")

    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
        """Retry for `patience` seconds, so an error means that something is wrong. Only what was never sent is reported
        as not taken: an error may follow an earlier try that was taken and not answered.
        """
        batches = requests([to_wire(message) for message in messages])
        size = sum(size for _, size in batches)
        self._admit(size)
        if self._in_flight_bytes <= self._max_in_flight_bytes // 2:
            self._drain.begins(asyncio.get_running_loop().time())
        self._in_flight_bytes += size
        try:
            await all_of(self._send(batch, check) for batch, _ in batches)
        finally:
            self._in_flight_bytes -= size
            self._drain.left(size, asyncio.get_running_loop().time())
        self._good = asyncio.get_running_loop().time()

    async def _send(self, batch: Sequence[Any], check: Check) -> None:
        unanswered: TransientError | None = None

        async def send(timeout: float) -> None:
            nonlocal unanswered
            try:
                check()
            except StoodStillError as error:
                raise unanswered or error from None
            try:
                await self._client.publish(self._topic, batch, timeout)
            except TransientError as error:
                unanswered = error
                raise

        async with self._slots:
            await patiently(send, self._patience)

    async def check(self) -> None:
        """Get the topic, unless a publish has just succeeded. Only if this account may not get it, ask whether it may
        publish: the emulator knows no permissions.
        """
        self._admit(1)
        if asyncio.get_running_loop().time() - self._good < FRESH:
            return
        try:
            await self._client.get_topic(self._topic)
        except NotFoundError:
            raise
        except SetupError:
            if not await self._client.may(self._topic, "pubsub.topics.publish"):
                raise
        self._good = asyncio.get_running_loop().time()

    def _admit(self, size: int) -> None:
        if self._in_flight_bytes and self._in_flight_bytes + size > self._max_in_flight_bytes:
            raise OverloadedError(
                f"{self._in_flight_bytes} bytes are on their way to Pub/Sub, and at most"
                f" {self._max_in_flight_bytes} may be: is Pub/Sub slow or unavailable?",
                self._drain.seconds(size, asyncio.get_running_loop().time()),
            )


# Publishes only while a subscription keeps the messages: without one, Pub/Sub drops them silently.


_log = logging.getLogger(__name__)

EVERY: Final = 10.0
"""Seconds between two looks at the subscription. Pub/Sub allows about 6,000 looks a minute in a project."""
AGAIN: Final = 2.0
"""Seconds between two looks while the subscription is missing, or Pub/Sub is unavailable."""
LOOK_REACH: Final = 2.0
"""Seconds that a look may take."""
ADVICE: Final = "run: countersink provision, then see 'When a subscription is deleted' in docs/google-cloud-outages.md"


class KeptPublisher:
    """A `PubsubPublisher` that looks at the subscription before it publishes, unless it has just done so.

    It raises `UnkeptError` if the subscription is missing, detached, or belongs to another topic; nothing was sent
    then. It publishes again as soon as a look finds the subscription. If a look tells nothing, because Pub/Sub is
    unavailable or this account may not look, the result before it holds; the first one is assumed to be good.
    """

    def __init__(
        self,
        client: PubsubClient,
        topic: str,
        subscription: str,
        *,
        patience: float = RETRY_FOR,
        every: float = EVERY,
        again: float = AGAIN,
        of: str = "counts",
    ) -> None:
        """`of`: what it publishes, for the metric."""
        self._client = client
        self._topic = topic
        self._subscription = subscription
        self._publisher = PubsubPublisher(client, topic, patience=patience)
        self._every = every
        self._again = again
        self._missing = metrics.UNKEPT.labels(of)
        self._flaw: str | None = None
        self._next = float("-inf")
        """When the next look is due, by the loop's clock."""
        self._warned = False
        self._looking = asyncio.Lock()

    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
        await self._look()
        try:
            await self._publisher.publish(messages, check)
        except TransientError:
            self._next = float("-inf")  # it may have been deleted while we could not see it
            raise

    async def check(self) -> None:
        await self._publisher.check()
        await self._look()

    async def _look(self) -> None:
        """Look at the subscription if that is due; raise `UnkeptError` if it is unfit. Callers share one look."""
        async with self._looking:
            now = asyncio.get_running_loop().time()
            if now >= self._next:
                self._next = now + (self._every if await self._sees() and self._flaw is None else self._again)
        if self._flaw is not None:
            raise UnkeptError(self._flaw)

    async def _sees(self) -> bool:
        """Look at the subscription, and return whether the look told anything."""
        try:
            found = await self._client.get_subscription(self._subscription, LOOK_REACH)
            flaws = strays(found, self._topic)
        except NotFoundError:
            flaws = ["it does not exist"]
        except DeniedError as error:
            flaws = []
            if not self._warned:
                _log.warning(
                    "this account may not look at %s: if it is deleted, increments are lost silently; give the"
                    " account the role Pub/Sub Viewer on it: %s",
                    self._subscription,
                    error,
                )
            self._warned = True
        except TransientError:
            return False
        self._flaw = f"{self._subscription} keeps no published messages: {flaws[0]}; {ADVICE}" if flaws else None
        self._missing.set(bool(flaws))
        return True


# Publishes the events of the feed on a topic.


TOLD_WITHIN: Final = 5.0
"""Seconds for which a publish of events is tried. After that, the feed puts them off."""


class PubsubReceiver:
    """It took an event if Pub/Sub has it on disk."""

    def __init__(self, client: PubsubClient, topic: str, source: str) -> None:
        self._client = client
        self._publisher = PubsubPublisher(client, topic, patience=TOLD_WITHIN)
        self._source = source

    async def tell(self, events: Sequence[Event]) -> Sequence[str]:
        try:
            await self._publisher.publish([message_of(event, self._source) for event in events])
        except CountersinkError as error:
            return [str(error)] * len(events)
        return [""] * len(events)

    async def close(self) -> None:
        await self._client.close()


def message_of(event: Event, source: str) -> Message:
    """A CloudEvent in binary mode. What changed has the fields by which BigQuery keeps the greatest sequence."""
    attributes = {f"ce-{name}": value for name, value in event.attributes(source).items() if name != "datacontenttype"}
    data = event.data
    if event.type == CHANGED:
        data = data | {"_CHANGE_TYPE": "UPSERT", "_CHANGE_SEQUENCE_NUMBER": f"{data['sequence']:016x}"}
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return Message(text.encode(), attributes | {"content-type": "application/json"})
