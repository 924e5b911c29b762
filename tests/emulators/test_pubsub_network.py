"""Publishes, acks and pulls whose answers are lost, and connections that are cut."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from google.pubsub_v1 import types

from shared.model.buckets import BrokerMillis, Instant
from shared.model.errors import TransientError
from shared.model.words import Delivery, Envelope
from shared.ports.broker import Subscription
from shared.wire.codec import decode, encode
from tests.contracts.broker import LONG, message, numbers, pull, pull_all, tokens
from tests.emulators.proxy import Proxy, proxy
from tests.emulators.pubsub_fixtures import Pubsub

SHORT = 0.3
"""Seconds of patience."""


@pytest.fixture
async def network(pubsub: Pubsub) -> AsyncIterator[Proxy]:
    async with proxy(pubsub.host) as network:
        yield network


async def test_a_publish_whose_answer_was_lost_is_one_envelope(pubsub: Pubsub, network: Proxy) -> None:
    """It is sent again, and both copies are of one id, so that one receipt is for both."""
    publisher = pubsub.publisher(pubsub.client(network.address))
    await publisher.check()
    network.lose_answers()
    publishing = asyncio.create_task(publisher.publish([encode(Envelope("e-1", {"a": 1}))]))
    subscription = pubsub.subscription()
    held = await pull_all(subscription, 1)
    assert not publishing.done()
    network.cut()
    await publishing
    held += await pull_all(subscription, 1)
    assert len({delivery.message_id for delivery in held}) == 2
    assert {decode(delivery, "t")[0].id for delivery in held} == {"e-1"}


async def test_a_publish_that_nobody_answers_fails_in_time_and_may_have_happened(
    pubsub: Pubsub, network: Proxy
) -> None:
    publisher = pubsub.publisher(pubsub.client(network.address), patience=SHORT)
    await publisher.check()
    network.lose_answers()
    with pytest.raises(TransientError, match="DEADLINE_EXCEEDED") as caught:
        await publisher.publish([message(1)])
    assert caught.value.__cause__ is not None
    assert numbers(await pull_all(pubsub.subscription(), 1)) == [1]


async def test_an_ack_whose_answer_was_lost_is_done(pubsub: Pubsub, network: Proxy) -> None:
    subscription = pubsub.subscription(pubsub.client(network.address))
    await pubsub.publisher().publish([message(number) for number in range(5)])
    held = await pull_all(subscription, 5)
    network.lose_answers()
    acking = asyncio.create_task(subscription.ack(tokens(held), floor=Instant(1)))
    await asyncio.sleep(0)
    network.cut()
    await acking
    await pubsub.lapse()
    assert await pull(pubsub.subscription()) == []


async def test_an_ack_that_nobody_answers_fails_in_time(pubsub: Pubsub, network: Proxy) -> None:
    subscription = pubsub.subscription(pubsub.client(network.address), patience=SHORT)
    await pubsub.publisher().publish([message(1)])
    held = await pull_all(subscription, 1)
    network.lose_answers()
    with pytest.raises(TransientError):
        await subscription.ack(tokens(held), floor=Instant(1))
    network.cut()


async def test_after_a_cut_connection_all_goes_on(pubsub: Pubsub, network: Proxy) -> None:
    """The pull that was outstanding fails, and says so. The emulator may still answer it, so leases are short."""
    await shorten_leases(pubsub)
    client = pubsub.client(network.address)
    subscription, publisher = pubsub.subscription(client, lease=1.0, linger=5.0), pubsub.publisher(client)
    pulling = asyncio.create_task(pull(subscription, wait=LONG))
    await publisher.check()
    network.cut()
    with pytest.raises(TransientError, match="UNAVAILABLE") as caught:
        await pulling
    assert caught.value.__cause__ is not None
    await publisher.publish([message(1)])
    assert numbers(await pull_patiently(subscription)) == [1]


async def test_messages_of_a_pull_whose_answer_was_lost_come_again(pubsub: Pubsub, network: Proxy) -> None:
    """When the lease has run out that nobody knows of."""
    await shorten_leases(pubsub)
    subscription = pubsub.subscription(pubsub.client(network.address), lease=1.0, linger=60.0)
    assert await pull(subscription) == []
    network.lose_answers()
    await pubsub.publisher().publish([message(number) for number in range(3)])
    held = await pull_all(pubsub.subscription(lease=1.0), 3)
    network.cut()
    assert numbers(held) == [0, 1, 2]


async def test_a_broker_that_is_away_is_an_error_in_time(pubsub: Pubsub) -> None:
    async with proxy(pubsub.host) as network:
        client = pubsub.client(network.address)
    publisher, subscription = pubsub.publisher(client, patience=SHORT), pubsub.subscription(client, patience=SHORT)
    for call in (
        publisher.check(),
        publisher.publish([message(1)]),
        subscription.pull(1, 1, LONG),
        subscription.give_back(["t"]),
        subscription.bury(Delivery("t", message(1), "1", BrokerMillis(1)), "because"),
    ):
        with pytest.raises(TransientError, match="UNAVAILABLE"):
            await call


async def shorten_leases(pubsub: Pubsub) -> None:
    """Use another subscription, with leases of a second, which Pub/Sub does not allow and its emulator does."""
    pubsub.place = replace(pubsub.place, subscription_id=f"{pubsub.place.subscription_id}-1")
    await pubsub.client().create_subscription(
        types.Subscription.pb()(name=pubsub.place.subscription, topic=pubsub.place.topic, ack_deadline_seconds=1)
    )


async def pull_patiently(subscription: Subscription) -> list[Delivery]:
    """What a flusher does, until something comes."""
    async with asyncio.timeout(30):
        while True:
            try:
                if held := await pull(subscription, wait=LONG):
                    return held
            except TransientError:
                await asyncio.sleep(0.01)
