"""Making and judging topics and subscriptions."""

import time
from collections.abc import Sequence
from typing import Any

from google.pubsub_v1 import types

from shared.pubsub.client import PubsubClient
from shared.pubsub.setup import costs, losses, provision, strays
from tests.contracts.broker import message, numbers, pull_all
from tests.emulators.pubsub_fixtures import Pubsub

WEEK = 604_800


async def test_it_makes_what_is_missing_and_says_so(empty_pubsub: Pubsub) -> None:
    place = empty_pubsub.place
    assert await provision(empty_pubsub.client(), place, lease=60.0, retention=WEEK) == [
        f"{place.topic}: made, retains messages 7 days",
        f"{place.subscription}: made, leases of 60 s, keeps messages 7 days",
        f"{place.dead_topic}: made, retains messages 7 days",
        f"{place.dead_subscription}: made, leases of 600 s, keeps messages 7 days",
        f"{place.tasks.topic}: made",
        f"{place.tasks.subscription}: made, leases of 60 s, keeps messages 7 days",
    ]
    made = await empty_pubsub.client().get_subscription(place.subscription)
    assert made.HasField("expiration_policy")
    assert not made.expiration_policy.HasField("ttl"), "it would be deleted after 31 days without a pull"
    assert [*strays(made, place.topic), *losses(made), *costs(made)] == []


async def test_done_twice_it_changes_nothing(empty_pubsub: Pubsub) -> None:
    client, place = empty_pubsub.client(), empty_pubsub.place
    await provision(client, place, lease=60.0, retention=WEEK)
    await empty_pubsub.publisher().publish([message(1)])
    counts = (place.topic, place.subscription, place.dead_topic, place.dead_subscription)
    names = (*counts, place.tasks.topic, place.tasks.subscription)
    assert await provision(client, place, lease=60.0, retention=WEEK) == [f"{name}: exists" for name in names]
    assert len(await pull_all(empty_pubsub.subscription(), 1)) == 1


async def test_it_gives_more_time_and_never_less(empty_pubsub: Pubsub) -> None:
    client, place = empty_pubsub.client(), empty_pubsub.place
    await provision(client, place, lease=30.0, retention=86_400)
    topic, changed, *_ = await provision(client, place, lease=60.0, retention=WEEK)
    assert topic == f"{place.topic}: changed, retains messages 7 days"
    assert changed == f"{place.subscription}: changed, leases of 60 s, keeps messages 7 days"
    topic, same, *_ = await provision(client, place, lease=30.0, retention=86_400)
    assert topic == f"{place.topic}: exists"
    assert same == f"{place.subscription}: exists"
    assert (await client.get_topic(place.topic)).message_retention_duration.seconds == WEEK
    assert (await client.get_subscription(place.subscription)).ack_deadline_seconds == 60


async def test_a_topic_without_retention_gets_it(empty_pubsub: Pubsub) -> None:
    client, place = empty_pubsub.client(), empty_pubsub.place
    await client.create_topic(types.Topic.pb()(name=place.topic))
    topic, *_ = await provision(client, place, lease=60.0, retention=WEEK)
    assert topic == f"{place.topic}: changed, retains messages 7 days"


async def test_what_was_published_while_no_subscription_was_there_is_rescued_by_a_seek(empty_pubsub: Pubsub) -> None:
    """The steps that the README gives."""
    client, place = empty_pubsub.client(), empty_pubsub.place
    await provision(client, place, lease=60.0, retention=WEEK)
    await empty_pubsub.publisher().publish([message(1)])
    await empty_pubsub.delete_subscription()
    await empty_pubsub.publisher().publish([message(2)])
    await provision(client, place, lease=60.0, retention=WEEK)
    await empty_pubsub.seek(int(time.time()) - 60)
    assert numbers(await pull_all(empty_pubsub.subscription(), 2)) == [1, 2]


class Cloud(PubsubClient):
    """Updates what the emulator does not: whether a subscription expires."""

    async def update_subscription(self, subscription: Any, fields: Sequence[str]) -> Any:
        if list(fields) != ["expiration_policy"]:
            return await super().update_subscription(subscription, fields)
        there = await self.get_subscription(subscription.name)
        there.expiration_policy.CopyFrom(subscription.expiration_policy)
        return there


async def test_one_that_would_expire_is_to_stay(empty_pubsub: Pubsub) -> None:
    place = empty_pubsub.place
    await empty_pubsub.client().create_topic(types.Topic.pb()(name=place.topic))
    there = types.Subscription.pb()(name=place.subscription, topic=place.topic, ack_deadline_seconds=60)
    there.expiration_policy.ttl.seconds = 2_678_400
    await empty_pubsub.client().create_subscription(there)
    cloud = Cloud(empty_pubsub.host)
    _, changed, *_ = await provision(cloud, place, lease=60.0, retention=WEEK)
    await cloud.close()
    assert changed == f"{place.subscription}: changed, leases of 60 s, keeps messages 7 days"
    _, _, flaw, *_ = await provision(empty_pubsub.client(), place, lease=60.0, retention=WEEK)
    assert "Pub/Sub deletes it after 31 days" in flaw


def test_every_flaw_is_found() -> None:
    bad = types.Subscription.pb()(
        topic="t",
        filter="attributes.a",
        enable_exactly_once_delivery=True,
        enable_message_ordering=True,
        detached=True,
    )
    bad.dead_letter_policy.dead_letter_topic = "d"
    bad.push_config.push_endpoint = "https://example.com"
    bad.expiration_policy.ttl.seconds = 2_678_400
    assert [flaw.split()[1] for flaw in [*strays(bad, "t"), *losses(bad), *costs(bad)]] == [
        "is", "filter", "dead-letter", "pushes,", "delivery", "makes", "deletes",
    ]  # fmt: skip
