"""The contract of brokers on the Pub/Sub emulator, and what holds where Pub/Sub can't keep a sentence of it."""

import asyncio

import pytest

from shared.errors import OverloadedError
from shared.google.pubsub_publisher import PubsubPublisher
from shared.google.pubsub_wire import REASON
from shared.words import Message
from tests.contracts.broker import Broker, BrokerContract, message, pull_all
from tests.contracts.leases import LeaseContract
from tests.emulators.pubsub_fixtures import Pubsub, WatchedClient


class TestPubsubBroker(BrokerContract, LeaseContract):
    @pytest.fixture
    async def broker(self, pubsub: Pubsub) -> Broker:
        async def buried() -> list[tuple[bytes, str]]:
            return [(letter.data, letter.attributes[REASON]) for letter in await pubsub.dead_letters()]

        return Broker(
            pubsub.publisher(),
            pubsub.subscription(),
            pubsub.subscription(),
            pubsub.lapse,
            buried,
            pubsub.publisher(max_in_flight_bytes=2_000),
        )

    async def test_a_lapsed_lease_brings_the_message_again_with_another_token(self, broker: Broker) -> None:
        """To another process it is a first attempt: Pub/Sub numbers them only under a dead-letter policy."""
        await broker.publisher.publish([message(1)])
        (first,) = await pull_all(broker.subscription, 1)
        await broker.lapse()
        (again,) = await pull_all(broker.other, 1)
        assert again.message == first.message
        assert again.message_id == first.message_id
        assert again.published == first.published
        assert again.token != first.token
        assert (first.attempt, again.attempt) == (1, 1)
        await broker.lapse()
        (third,) = await pull_all(broker.subscription, 1)
        assert third.attempt == 2

    async def test_what_is_given_back_comes_again_at_once(self, broker: Broker) -> None:
        """The same, with attempts as above."""
        await broker.publisher.publish([message(1), message(2)])
        held = await pull_all(broker.subscription, 2)
        await broker.subscription.give_back([held[0].token])
        (again,) = await pull_all(broker.other, 1)
        assert again.message_id == held[0].message_id
        await broker.other.give_back([again.token])
        (again,) = await pull_all(broker.subscription, 1)
        assert again.message_id == held[0].message_id
        assert again.attempt == 2

    async def test_too_much_that_waits_is_refused_whole_until_it_is_applied(self, broker: Broker) -> None:
        """Until it is published: how much is not applied Pub/Sub does not tell, and it has room for all."""
        half = Message(b" " * 1_200, {"number": "1"})
        client = client_of(broker.tiny)
        client.gate.clear()
        first = asyncio.create_task(broker.tiny.publish([half]))
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError):
            await broker.tiny.publish([half])
        client.gate.set()
        await first
        await broker.tiny.publish([half])
        await pull_all(broker.subscription, 2)
        assert [number for number, _ in client.sent] == [1, 1]

    async def test_check_says_what_a_publish_would_say(self, broker: Broker) -> None:
        client = client_of(broker.tiny)
        await broker.tiny.check()
        client.gate.clear()
        first = asyncio.create_task(broker.tiny.publish([Message(b" " * 2_500, {"number": "1"})]))
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError):
            await broker.tiny.check()
        client.gate.set()
        await first
        await broker.tiny.check()
        assert len(await pull_all(broker.subscription, 1)) == 1


def client_of(publisher: object) -> WatchedClient:
    assert isinstance(publisher, PubsubPublisher)
    assert isinstance(publisher._client, WatchedClient)
    return publisher._client
