"""The Pub/Sub emulator: started once per test run, shared by its workers; each test has a topic of its own."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest
from google.pubsub_v1 import types

from shared.pubsub.client import TIMEOUT, PubsubClient, PubsubPlace
from shared.pubsub.publisher import PubsubPublisher
from shared.pubsub.setup import provision
from shared.pubsub.subscription import LONGEST, PubsubSubscription
from tests.emulators.datastore_fixtures import Datastore, shared_emulator
from tests.emulators.front import Front, front
from tests.once import folder_of_run

PUBSUB = ("beta", "emulators", "pubsub", "start")
LEASE = 10
"""The shortest that Pub/Sub has."""


class WatchedClient(PubsubClient):
    """Knows what it has leased."""

    def __init__(self, emulator: str) -> None:
        super().__init__(emulator)
        self.leased: set[str] = set()
        self.asked: list[int] = []
        """Messages that each pull asked for."""
        self.cancelled = 0
        """Pulls that were."""
        self.sent: list[tuple[int, int]] = []
        """Messages and bytes of each publish."""
        self.gate = asyncio.Event()
        """A publish waits for it."""
        self.deadlines: list[tuple[int, int]] = []
        """Messages and seconds of each change of leases."""
        self.gate.set()

    async def pull(self, subscription: str, most: int, wait: float) -> Sequence[Any]:
        self.asked.append(most)
        try:
            received = await super().pull(subscription, most, wait)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.leased |= {one.ack_id for one in received}
        return received

    async def publish(self, topic: str, messages: Sequence[Any], timeout: float) -> None:
        self.sent.append((len(messages), sum(message.ByteSize() for message in messages)))
        await self.gate.wait()
        await super().publish(topic, messages, timeout)

    async def set_deadline(self, subscription: str, ack_ids: Sequence[str], seconds: int, timeout: float) -> None:
        self.deadlines.append((len(ack_ids), seconds))
        await super().set_deadline(subscription, ack_ids, seconds, timeout)
        if seconds in {0, LONGEST}:
            self.leased -= set(ack_ids)


@dataclass
class Pubsub:
    """A topic and a subscription of the emulator, empty at first, and any number of processes at them."""

    host: str
    place: PubsubPlace = field(
        default_factory=lambda: PubsubPlace("countersink-test", f"t-{uuid4().hex}", f"s-{uuid4().hex}")
    )
    clients: list[WatchedClient] = field(default_factory=list)
    subscriptions: list[PubsubSubscription] = field(default_factory=list)

    def client(self, host: str = "") -> WatchedClient:
        client = WatchedClient(host or self.host)
        self.clients.append(client)
        return client

    def publisher(self, client: PubsubClient | None = None, **settings: Any) -> PubsubPublisher:
        return PubsubPublisher(client or self.client(), self.place.topic, **settings)

    def subscription(self, client: PubsubClient | None = None, **settings: Any) -> PubsubSubscription:
        """Of a process that does not linger, so that what it does not hold is free at once."""
        settings = {"lease": LEASE, "linger": 0.2, "hold": 0.05} | settings
        subscription = PubsubSubscription(client or self.client(), self.place, **settings)
        self.subscriptions.append(subscription)
        return subscription

    async def change(self, method: str, request: Any) -> None:
        """A call that Countersink never makes, as "Subscriber/DeleteSubscription"."""
        call = self.client()._channel.unary_unary(
            f"/google.pubsub.v1.{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=bytes,
        )
        await call(request)

    async def delete_subscription(self, name: str = "") -> None:
        request = types.DeleteSubscriptionRequest.pb()(subscription=name or self.place.subscription)
        await self.change("Subscriber/DeleteSubscription", request)

    async def seek(self, instant: int, name: str = "") -> None:
        """What was published since then, in seconds since 1970, comes again: `gcloud pubsub subscriptions seek`."""
        request = types.SeekRequest.pb()(subscription=name or self.place.subscription)
        request.time.FromSeconds(instant)
        await self.change("Subscriber/Seek", request)

    async def put_schema(self) -> None:
        """On the topic: it takes no envelope of ours then."""
        parent, name = f"projects/{self.place.project}", f"s-{uuid4().hex}"
        definition = '{"type":"record","name":"A","fields":[{"name":"x","type":"string"}]}'
        schema = types.Schema.pb()(type_=types.Schema.Type.AVRO, definition=definition)
        request = types.CreateSchemaRequest.pb()(parent=parent, schema_id=name, schema=schema)
        await self.change("SchemaService/CreateSchema", request)
        topic = types.Topic.pb()(name=self.place.topic)
        topic.schema_settings.schema = f"{parent}/schemas/{name}"
        topic.schema_settings.encoding = types.Encoding.JSON
        await self.client().update_topic(topic, ["schema_settings"])

    async def take_schema_off(self) -> None:
        await self.client().update_topic(types.Topic.pb()(name=self.place.topic), ["schema_settings"])

    async def lapse(self) -> None:
        """Let all leases run out but those that have the longest there is; the emulator's clock can't be turned."""
        for client in self.clients:
            leased = sorted(client.leased)
            if leased:
                await client.set_deadline(self.place.subscription, leased, 0, TIMEOUT)

    async def dead_letters(self) -> Sequence[Any]:
        """All of them: those that were looked at before come again."""
        client = self.client()
        received: list[Any] = []
        while some := await client.pull(self.place.dead_subscription, 1_000, 0.05):
            received += some
        client.leased.clear()
        if received:
            await client.set_deadline(self.place.dead_subscription, [one.ack_id for one in received], 0, TIMEOUT)
        return [one.message for one in received]

    async def close(self) -> None:
        for subscription in self.subscriptions:
            await subscription.close()
        for client in self.clients:
            await client.close()


@pytest.fixture(scope="session")
def pubsub_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with shared_emulator(folder_of_run(tmp_path_factory), "pubsub", PUBSUB) as host:
        yield host


@pytest.fixture
async def empty_pubsub(pubsub_host: str) -> AsyncIterator[Pubsub]:
    """Nothing is provisioned."""
    pubsub = Pubsub(pubsub_host)
    yield pubsub
    await pubsub.close()


@pytest.fixture
async def pubsub(empty_pubsub: Pubsub) -> Pubsub:
    await provision(empty_pubsub.client(), empty_pubsub.place, lease=LEASE, retention=604_800)
    return empty_pubsub


@pytest.fixture
async def before(pubsub: Pubsub) -> AsyncIterator[Front]:
    """What stands before Pub/Sub."""
    async with front(pubsub.host) as one:
        yield one


def settings_of(pubsub: Pubsub, datastore: Datastore) -> dict[str, str]:
    """Of processes on both emulators, without a spool."""
    place, store = pubsub.place, datastore.place
    return {
        "COUNTERSINK_BROKER": f"pubsub://{place.project}/{place.topic_id}?subscription={place.subscription_id}",
        "COUNTERSINK_STORE": f"datastore://{store.project}?namespace={store.namespace}",
        "COUNTERSINK_SPOOL": "off",
        "PUBSUB_EMULATOR_HOST": pubsub.host,
        "DATASTORE_EMULATOR_HOST": datastore.host,
    }
