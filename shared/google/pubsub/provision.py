"""Makes topics and subscriptions on Pub/Sub, and says what is wrong with existing ones."""

from contextlib import suppress
from typing import Any, Final

from google.pubsub_v1 import types

from shared.google.pubsub.client import ExistsError, NotFoundError, PubsubClient, PubsubPlace
from shared.model.errors import BrokerRejectedError
from shared.model.receipts import DAY_SECONDS

EMULATORS_RETENTION: Final = 7 * DAY_SECONDS
DELETED_TOPIC: Final = "_deleted-topic_"
"""What Pub/Sub names as the topic of a subscription whose topic was deleted."""
_ANOTHER: Final = "make another subscription without it, run flushers on both, and delete this one when it is empty"
_ANEW: Final = ", and run: countersink provision"
DEADLINES: Final = (10, 600)
"""Seconds: the shortest and the longest lease that a subscription may give by itself."""


async def provision(client: PubsubClient, place: PubsubPlace, *, lease: float, retention: int) -> list[str]:
    """Make what is missing, and return a line for each resource. A second run changes nothing. `retention`: seconds."""
    deadline = min(max(int(lease), DEADLINES[0]), DEADLINES[1])
    return [
        await _topic(client, place.topic, retention),
        *await _subscription(client, place.subscription, place.topic, deadline, retention),
        await _topic(client, place.dead_topic, retention),
        # No longer than the others: receipts must outlive dead letters, too, which may be replayed.
        *await _subscription(client, place.dead_subscription, place.dead_topic, DEADLINES[1], retention),
        await _topic(client, place.tasks.topic, 0),
        *await _subscription(client, place.tasks.subscription, place.tasks.topic, deadline, retention),
    ]


async def _topic(client: PubsubClient, name: str, retention: int) -> str:
    """A topic that retains messages can give them to a subscription that was deleted and made again. A longer retention
    is kept: somebody chose it.
    """
    wanted = types.Topic.pb()(name=name)
    if retention:
        wanted.message_retention_duration.seconds = retention
    try:
        await client.create_topic(wanted)
    except ExistsError:
        there = await client.get_topic(name)
        if there.message_retention_duration.seconds >= retention:
            return f"{name}: is there"
        await client.update_topic(wanted, ["message_retention_duration"])
        return f"{name}: changed{_retains(retention)}"
    return f"{name}: made{_retains(retention)}"


def _retains(retention: int) -> str:
    return f", retains messages {retention / DAY_SECONDS:g} days" if retention else ""


async def _subscription(client: PubsubClient, name: str, topic: str, deadline: int, retention: int) -> list[str]:
    try:
        there = await client.get_subscription(name)
    except NotFoundError:
        return [await _make(client, name, topic, deadline, retention)]
    now = await _mend(client, there, deadline, retention)
    lines = [f"{name}: is there" if now == there else f"{name}: changed, {_said(now)}"]
    lines += [f"{name}: WRONG: {flaw}" for flaw in losses(now, topic)]
    return lines + [f"{name}: {flaw}" for flaw in costs(now)]


async def _make(client: PubsubClient, name: str, topic: str, deadline: int, retention: int) -> str:
    wanted = types.Subscription.pb()(name=name, topic=topic, ack_deadline_seconds=deadline)
    # Without this Pub/Sub deletes a subscription that nobody pulls from for 31 days, with all that is in it.
    wanted.expiration_policy.SetInParent()
    try:
        made = await _with_retention(client.create_subscription, wanted, retention)
    except ExistsError:
        return f"{name}: is there"  # another provision was faster
    return f"{name}: made, {_said(made)}"


async def _mend(client: PubsubClient, there: Any, deadline: int, retention: int) -> Any:
    """Raise values that are too low, and return the result. Higher values stay: somebody chose them."""
    wanted = types.Subscription.pb()(name=there.name, topic=there.topic, ack_deadline_seconds=deadline)
    fields = []
    if there.ack_deadline_seconds < deadline:
        fields.append("ack_deadline_seconds")
    if there.message_retention_duration.seconds < retention:
        fields.append("message_retention_duration")
    now = there
    if fields:
        now = await _with_retention(lambda one: client.update_subscription(one, fields), wanted, retention)
    if _expires(now):
        wanted.expiration_policy.SetInParent()
        with suppress(BrokerRejectedError):  # the emulator cannot do that; the caller reports it
            now = await client.update_subscription(wanted, ["expiration_policy"])
    return now


async def _with_retention(call: Any, wanted: Any, retention: int) -> Any:
    """The emulator keeps messages 7 days at most, and refuses more."""
    wanted.message_retention_duration.seconds = retention
    try:
        return await call(wanted)
    except BrokerRejectedError:
        if retention <= EMULATORS_RETENTION:
            raise
        wanted.message_retention_duration.seconds = EMULATORS_RETENTION
        return await call(wanted)


def strays(subscription: Any, topic: str) -> list[str]:
    """Flaws that keep messages of the topic from it."""
    found = []
    if subscription.topic == DELETED_TOPIC:
        found.append(f"its topic has been deleted: have flushers empty it, then delete it{_ANEW}")
    elif subscription.topic != topic:
        found.append(f"it is one of {subscription.topic}, not of {topic}: name another in COUNTERSINK_BROKER")
    if subscription.detached:
        found.append(f"it is detached from its topic and gets nothing any more: delete it{_ANEW}")
    return found


def losses(subscription: Any, topic: str) -> list[str]:
    """Flaws that would leave messages uncounted."""
    found = strays(subscription, topic)
    if subscription.filter:
        found.append(f"its filter {subscription.filter!r} drops messages uncounted: {_ANOTHER}")
    if subscription.HasField("dead_letter_policy"):
        found.append("its dead-letter policy takes healthy messages away in an outage: remove it (the topic is enough)")
    if subscription.push_config.push_endpoint:
        found.append("it pushes, and Countersink pulls: remove the endpoint")
    return found


def costs(subscription: Any) -> list[str]:
    """Flaws that cost throughput, or may cause trouble later."""
    found = []
    if subscription.enable_exactly_once_delivery:
        found.append("exactly-once delivery costs rate and is not needed: turn it off")
    if subscription.enable_message_ordering:
        found.append(f"ordering makes messages wait for one another: {_ANOTHER}")
    if _expires(subscription):
        days = subscription.expiration_policy.ttl.seconds / DAY_SECONDS
        found.append(
            f"Pub/Sub deletes it after {days:g} days without a pull: run countersink provision to remove the expiry"
        )
    return found


def _expires(subscription: Any) -> bool:
    """Whether Pub/Sub deletes it when nobody pulls for long, with all that is in it."""
    return bool(subscription.HasField("expiration_policy") and subscription.expiration_policy.ttl.seconds)


def _said(subscription: Any) -> str:
    days = subscription.message_retention_duration.seconds / DAY_SECONDS
    return f"leases of {subscription.ack_deadline_seconds} s, keeps messages {days:g} days"
