"""A publisher sends nothing that no subscription would keep, and goes on when one is there."""

import asyncio
from typing import Any

import grpc
import pytest
from google.pubsub_v1 import types

from shared.model.errors import TransientError, UnkeptError
from shared.model.words import Delivery
from shared.pubsub.client import TIMEOUT, PubsubClient
from shared.pubsub.publisher import KeptPublisher
from shared.pubsub.setup import provision
from tests.contracts.broker import message, numbers, pull_all
from tests.emulators.front import Front
from tests.emulators.pubsub_fixtures import LEASE, Pubsub

LONG = 3_600.0


def kept(pubsub: Pubsub, host: str = "", **settings: Any) -> KeptPublisher:
    """Looks before each publish, if nothing else is said."""
    place = pubsub.place
    settings = {"patience": 0.3, "every": 0.0, "again": 0.0} | settings
    return KeptPublisher(pubsub.client(host), place.topic, place.subscription, **settings)


async def test_nothing_is_sent_to_nobody_and_it_goes_on_by_itself(pubsub: Pubsub) -> None:
    publisher = kept(pubsub)
    await publisher.publish([message(1)])
    await pubsub.delete_subscription()
    for step in (publisher.publish([message(2)]), publisher.check()):
        with pytest.raises(UnkeptError, match="it does not exist; run: countersink provision"):
            await step
    await provision(pubsub.client(), pubsub.place, lease=LEASE, retention=604_800)
    await publisher.check()
    await publisher.publish([message(3)])
    found = numbers(await pull_all(pubsub.subscription(), 2))
    assert 3 in found
    assert 2 not in found


async def test_one_whose_topic_was_deleted_and_made_again_gets_nothing(pubsub: Pubsub) -> None:
    await pubsub.change("Publisher/DeleteTopic", types.DeleteTopicRequest.pb()(topic=pubsub.place.topic))
    await pubsub.client().create_topic(types.Topic.pb()(name=pubsub.place.topic))
    with pytest.raises(UnkeptError, match="its topic has been deleted: let flushers empty the subscription"):
        await kept(pubsub).publish([message(1)])


class Detached(PubsubClient):
    """The emulator can't detach a subscription."""

    async def get_subscription(self, subscription: str, timeout: float = TIMEOUT) -> Any:
        found = await super().get_subscription(subscription, timeout)
        found.detached = True
        return found


async def test_one_that_is_detached_gets_nothing(pubsub: Pubsub) -> None:
    client = Detached(pubsub.host)
    with pytest.raises(UnkeptError, match="it is detached"):
        await KeptPublisher(client, pubsub.place.topic, pubsub.place.subscription).publish([message(1)])
    await client.close()


async def test_it_looks_now_and_then(pubsub: Pubsub, before: Front) -> None:
    publisher = kept(pubsub, before.address, every=LONG)
    await publisher.publish([message(1)])
    before.codes["GetSubscription"] = grpc.StatusCode.NOT_FOUND
    await publisher.publish([message(2)])
    assert before.refused == 0


async def test_of_many_publishes_at_once_one_looks(pubsub: Pubsub, before: Front) -> None:
    before.codes["GetSubscription"] = grpc.StatusCode.NOT_FOUND
    publisher = kept(pubsub, before.address, again=LONG)
    ends = await asyncio.gather(*(publisher.publish([message(n)]) for n in range(10)), return_exceptions=True)
    assert {type(end) for end in ends} == {UnkeptError}
    assert before.refused == 1


async def test_after_a_publish_that_failed_it_looks_again(pubsub: Pubsub, before: Front) -> None:
    """Pub/Sub was away, and meanwhile the subscription was deleted."""
    publisher = kept(pubsub, before.address, every=LONG)
    await publisher.publish([message(1)])
    before.codes[""] = grpc.StatusCode.UNAVAILABLE
    with pytest.raises(TransientError):
        await publisher.publish([message(2)])
    before.codes = {"GetSubscription": grpc.StatusCode.NOT_FOUND}
    with pytest.raises(UnkeptError):
        await publisher.publish([message(3)])
    assert numbers(await pull_all(pubsub.subscription(), 1)) == [1]


async def test_who_may_not_look_publishes_and_says_so_once(
    pubsub: Pubsub, before: Front, caplog: pytest.LogCaptureFixture
) -> None:
    before.codes["GetSubscription"] = grpc.StatusCode.PERMISSION_DENIED
    publisher = kept(pubsub, before.address)
    for number in range(3):
        await publisher.publish([message(number)])
    assert caplog.text.count("the role Pub/Sub Viewer on it") == 1


@pytest.mark.parametrize("code", ["UNAVAILABLE", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"])
async def test_that_nobody_can_look_says_nothing(pubsub: Pubsub, before: Front, code: str) -> None:
    publisher = kept(pubsub, before.address)
    before.codes["GetSubscription"] = grpc.StatusCode[code]
    await publisher.publish([message(1)])
    before.codes["GetSubscription"] = grpc.StatusCode.NOT_FOUND
    with pytest.raises(UnkeptError):
        await publisher.publish([message(2)])
    before.codes["GetSubscription"] = grpc.StatusCode[code]
    with pytest.raises(UnkeptError):
        await publisher.publish([message(2)])


async def test_a_dead_letter_that_nobody_would_keep_is_not_acknowledged(pubsub: Pubsub) -> None:
    await pubsub.publisher().publish([message(1)])
    subscription = pubsub.subscription()
    (delivery,) = await pull_all(subscription, 1)
    assert isinstance(delivery, Delivery)
    await pubsub.delete_subscription(pubsub.place.dead_subscription)
    with pytest.raises(UnkeptError, match="dead-letters keeps no published"):
        await subscription.bury(delivery, "because")
    await subscription.give_back([delivery.token])
    assert numbers(await pull_all(subscription, 1)) == [1]
