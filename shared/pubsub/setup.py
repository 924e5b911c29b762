"""Makes topics and subscriptions on Pub/Sub, and checks that they exist and are fit."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from google.pubsub_v1 import types

from shared.config.findings import FAIL, OK, WARN, Finding, too_long
from shared.model.errors import BrokerRejectedError, CountersinkError, TransientError
from shared.model.receipts import DAY_SECONDS
from shared.pubsub.client import DeniedError, ExistsError, NotFoundError, PubsubClient, PubsubPlace

# Makes topics and subscriptions on Pub/Sub, and says what is wrong with existing ones.


EMULATORS_RETENTION: Final = 7 * DAY_SECONDS
DELETED_TOPIC: Final = "_deleted-topic_"
"""What Pub/Sub names as the topic of a subscription whose topic was deleted."""
_ANOTHER: Final = "make another subscription without it, run flushers on both, and delete this one when it is empty"
_WRONG: Final = ": WRONG: "
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
            return f"{name}: exists"
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
    lines = [f"{name}: exists" if now == there else f"{name}: changed, {_said(now)}"]
    lines += [f"{name}{_WRONG}{flaw}" for flaw in (*strays(now, topic), *losses(now))]
    return lines + [f"{name}: {flaw}" for flaw in costs(now)]


async def _make(client: PubsubClient, name: str, topic: str, deadline: int, retention: int) -> str:
    wanted = types.Subscription.pb()(name=name, topic=topic, ack_deadline_seconds=deadline)
    # Without this Pub/Sub deletes a subscription that nobody pulls from for 31 days, with all that is in it.
    wanted.expiration_policy.SetInParent()
    try:
        made = await _with_retention(client.create_subscription, wanted, retention)
    except ExistsError:
        return f"{name}: exists"  # another provision was faster
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
        found.append(f"its topic has been deleted: let flushers empty the subscription, then delete it{_ANEW}")
    elif subscription.topic != topic:
        found.append(f"it belongs to {subscription.topic}, not to {topic}: name another one in COUNTERSINK_BROKER")
    if subscription.detached:
        found.append(f"it is detached from its topic and gets no messages: delete it{_ANEW}")
    return found


def losses(subscription: Any) -> list[str]:
    """Flaws that would leave messages of the topic uncounted that come to it."""
    found = []
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
        found.append("exactly-once delivery makes it slower and is not needed: turn it off")
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


_log = logging.getLogger(__name__)

REACH: Final = 10.0
"""Seconds in which everything has to be looked at."""


class Seen(NamedTuple):
    """What a look at topics and subscriptions saw."""

    there: Mapping[str, Any]
    """What exists, by name, as raw protobuf."""
    missing: list[str]
    hidden: Mapping[str, str]
    """What this account may not look at, with the answer of Pub/Sub."""
    pairs: Sequence[tuple[str, str]]
    """Each subscription, with the topic that it should belong to."""
    tasks: frozenset[str] = frozenset()
    """The topic and subscription of jobs. How long they keep a task does not matter: a job knows how old it may be."""

    def obstacles(self, retention: int) -> list[str]:
        """Reasons not to start, each with what to do. `retention`: seconds; 0 for a process that makes no receipts."""
        found = [f"missing: {', '.join(self.missing)}; run: countersink provision"] if self.missing else []
        for name, topic in self.pairs:
            if name in self.there:
                found += [f"{name}: {flaw}" for flaw in strays(self.there[name], topic)]
        if retention:
            counted = {name: one for name, one in self.there.items() if name not in self.tasks}
            keeps = ((name, int(one.message_retention_duration.seconds)) for name, one in counted.items())
            found += [flaw for name, seconds in keeps if (flaw := too_long(name, seconds, retention))]
        return found


async def look(client: PubsubClient, place: PubsubPlace, *, flushes: bool) -> Seen:
    """Look at topics and subscriptions; if `flushes`, also at those that only flushers need. `TransientError` if
    Pub/Sub cannot be reached in time.
    """
    counts, dead = (place.subscription, place.topic), (place.dead_subscription, place.dead_topic)
    tasks = (place.tasks.subscription, place.tasks.topic)
    pairs = [counts, dead, tasks] if flushes else [counts]
    topics = [place.topic, place.tasks.topic, *([place.dead_topic] if flushes else [])]
    subscriptions = [subscription for subscription, _ in pairs]
    names = [*topics, *subscriptions]
    calls = [*map(client.get_topic, topics), *map(client.get_subscription, subscriptions)]
    try:
        async with asyncio.timeout(REACH):
            answers = await asyncio.gather(*calls, return_exceptions=True)
    except TimeoutError:
        raise TransientError(f"Pub/Sub did not answer within {REACH:g} seconds") from None
    there, missing, hidden = {}, [], {}
    for name, answer in zip(names, answers, strict=True):
        if isinstance(answer, NotFoundError):
            missing.append(name)
        elif isinstance(answer, DeniedError):
            hidden[name] = str(answer)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            there[name] = answer
    return Seen(there, missing, hidden, pairs, frozenset({place.tasks.topic, place.tasks.subscription}))


async def obstacles(client: PubsubClient, place: PubsubPlace, retention: int, flushes: bool) -> list[str]:
    """Reasons not to start. `TransientError` if Pub/Sub cannot be reached in time."""
    seen = await look(client, place, flushes=flushes)
    for name, why in seen.hidden.items():
        _log.warning("%s is not checked: give this account the role Pub/Sub Viewer on it (%s)", name, why)
    return seen.obstacles(retention if flushes else 0)


class PubsubSetup:
    """Provisions and checks the broker on Pub/Sub."""

    def __init__(
        self, client: PubsubClient, place: PubsubPlace, *, lease: float, retention: int, emulator: str
    ) -> None:
        """`retention` in seconds; `emulator` as in PUBSUB_EMULATOR_HOST."""
        self._client = client
        self._place = place
        self._lease = lease
        self._retention = retention
        self._emulator = emulator

    async def provision(self) -> AsyncIterator[Finding]:
        try:
            lines = await provision(self._client, self._place, lease=self._lease, retention=self._retention)
        except TransientError as error:
            yield self._away(error)
            return
        for line in lines:
            yield Finding(FAIL if _WRONG in line else OK, "broker", line)

    async def findings(self) -> AsyncIterator[Finding]:
        try:
            seen = await look(self._client, self._place, flushes=True)
        except CountersinkError as error:
            yield self._away(error)
            return
        if self._emulator:
            said = f"the emulator at {self._emulator} keeps everything in memory: use it only for trials"
            yield Finding(WARN, "broker", said)
        for name in seen.there:
            yield Finding(OK, "broker", f"{name}: exists")
        for obstacle in seen.obstacles(self._retention):
            yield Finding(FAIL, "broker", obstacle)
        for name, why in seen.hidden.items():
            yield Finding(WARN, "broker", f"{name}: not checked; give this account the role Pub/Sub Viewer ({why})")
        for finding in self._flaws(seen):
            yield finding
        if not self._emulator:  # which knows no permissions
            async for finding in self._permissions(seen):
                yield finding

    def _away(self, error: CountersinkError) -> Finding:
        where = f"PUBSUB_EMULATOR_HOST={self._emulator}" if self._emulator else "the network, and credentials"
        return Finding(FAIL, "broker", f"{error}; look at {where}")

    def _flaws(self, seen: Seen) -> list[Finding]:
        """Flaws that do not prevent a start."""
        found = []
        for name, _ in seen.pairs:
            if (one := seen.there.get(name)) is not None:
                found += [Finding(FAIL, "broker", f"{name}: {flaw}") for flaw in losses(one)]
                found += [Finding(WARN, "broker", f"{name}: {flaw}") for flaw in costs(one)]
        return found

    async def _permissions(self, seen: Seen) -> AsyncIterator[Finding]:
        place = self._place
        needed = (
            (place.topic, "pubsub.topics.publish", "Pub/Sub Publisher"),
            (place.subscription, "pubsub.subscriptions.consume", "Pub/Sub Subscriber"),
            (place.dead_topic, "pubsub.topics.publish", "Pub/Sub Publisher"),
            (place.tasks.topic, "pubsub.topics.publish", "Pub/Sub Publisher"),
            (place.tasks.subscription, "pubsub.subscriptions.consume", "Pub/Sub Subscriber"),
        )
        for name, permission, role in needed:
            if name in seen.missing:
                continue
            try:
                may = await self._client.may(name, permission)
            except CountersinkError as error:
                yield Finding(WARN, "broker", f"{name}: permissions can't be checked: {error}")
                continue
            if may:
                yield Finding(OK, "broker", f"{name}: this account has {permission}")
            else:
                yield Finding(FAIL, "broker", f"{name}: this account lacks {permission}: give it the role {role}")
