"""The pairs of broker and store that a fleet runs on, each with a place of its own that is empty at first."""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from google.pubsub_v1 import types

from shared.config.settings import Settings
from shared.model.words import Message
from shared.pubsub.client import TIMEOUT
from shared.pubsub.publisher import REASON, to_wire
from shared.runtime.clock import SystemClock
from shared.sqlite.broker import SqlitePublisher
from shared.sqlite.database import Database
from tests.emulators.datastore_fixtures import Datastore
from tests.emulators.pubsub_fixtures import Pubsub, settings_of

LEASE = 3
"""Seconds. Pub/Sub itself has none below 10; its emulator has, and so a test need not wait for that long."""

RETAINED = 600
"""Seconds that topics retain messages, as `countersink provision` has them do."""


class DeadLetter(NamedTuple):
    """What was buried, and why."""

    data: bytes
    reason: str


class Pair(ABC):
    """What a test needs to know of it, and to do to it behind Countersink's back."""

    settings: dict[str, str]
    """Of all processes."""
    exact: bool
    """Every reading is of all that was answered, whoever took it."""
    instants: bool
    """`as_of` of a reading is by the store's own clock, so that readings of all processes have an order."""

    @abstractmethod
    async def publish(self, messages: Sequence[Message]) -> None:
        """As somebody else. Once: each of the messages is one of the broker's."""

    @abstractmethod
    async def left(self) -> int:
        """Messages that nobody has settled; those on lease can't be seen everywhere."""

    @abstractmethod
    async def dead_letters(self) -> Sequence[DeadLetter]: ...

    @abstractmethod
    async def close(self) -> None: ...


class Embedded(Pair):
    """One SQLite file."""

    exact = True
    instants = False

    def __init__(self, data: Path) -> None:
        self.file = data / "countersink.db"
        self.settings = {"COUNTERSINK_BROKER": f"sqlite:///{self.file}", "COUNTERSINK_LEASE": str(LEASE)}
        self._database = Database(self.file)
        self._publisher = SqlitePublisher(self._database, SystemClock(), Settings().max_pending_bytes)

    async def publish(self, messages: Sequence[Message]) -> None:
        await self._publisher.publish(messages)

    async def left(self) -> int:
        (count,) = self._rows("SELECT count(*) FROM messages WHERE buried IS NULL")[0]
        return int(count)

    async def dead_letters(self) -> Sequence[DeadLetter]:
        return [DeadLetter(*row) for row in self._rows("SELECT data, buried FROM messages WHERE buried IS NOT NULL")]

    async def close(self) -> None:
        await self._database.close()
        assert self._rows("PRAGMA integrity_check") == [("ok",)]

    def _rows(self, query: str) -> list[Any]:
        database = sqlite3.connect(self.file)
        try:
            return database.execute(query).fetchall()
        finally:
            database.close()


@dataclass
class Emulated(Pair):
    """The emulators of Pub/Sub and Datastore."""

    pubsub: Pubsub
    datastore: Datastore
    exact = False
    instants = True

    def __post_init__(self) -> None:
        self.settings = settings_of(self.pubsub, self.datastore) | {"COUNTERSINK_LEASE": str(LEASE)}

    async def publish(self, messages: Sequence[Message]) -> None:
        client = self.pubsub.clients[0]
        await client.publish(self.pubsub.place.topic, [to_wire(message) for message in messages], TIMEOUT)

    async def left(self) -> int:
        client, subscription = self.pubsub.clients[0], self.pubsub.place.subscription
        received = await client.pull(subscription, 1_000, 0.5)
        if received:
            await client.set_deadline(subscription, [one.ack_id for one in received], 0, TIMEOUT)
        return len(received)

    async def dead_letters(self) -> Sequence[DeadLetter]:
        return [DeadLetter(one.data, one.attributes[REASON]) for one in await self.pubsub.dead_letters()]

    async def close(self) -> None:
        await self.pubsub.close()
        for client in self.datastore.clients:
            await client.close()


async def emulated(pubsub_host: str, datastore: Datastore) -> Emulated:
    """With a subscription whose leases are short."""
    pubsub = Pubsub(pubsub_host)
    client, place = pubsub.client(), pubsub.place
    for topic, subscription in (
        (place.topic, place.subscription),
        (place.dead_topic, place.dead_subscription),
        (place.tasks.topic, place.tasks.subscription),
    ):
        made = types.Topic.pb()(name=topic)
        made.message_retention_duration.seconds = RETAINED
        await client.create_topic(made)
        await client.create_subscription(
            types.Subscription.pb()(name=subscription, topic=topic, ack_deadline_seconds=LEASE)
        )
    return Emulated(pubsub, datastore)


def message(counter: str, delta: int, ce_id: str | None = None) -> Message:
    """As the simplest of foreign publishers writes it."""
    attributes = {"ce-source": "fleet", "ce-id": ce_id} if ce_id else {}
    return Message(orjson.dumps({"counter": counter, "delta": delta}), attributes)


def empty(counter: str, delta: int) -> Message:
    """All of it in the attributes."""
    return Message(b"", {"counter": counter, "delta": str(delta)})
