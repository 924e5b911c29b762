"""Checks that topics and subscriptions on Pub/Sub exist and are fit, for the start, provision and doctor."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from shared.config.findings import FAIL, OK, WARN, Finding, too_long
from shared.google.pubsub.client import DeniedError, NotFoundError, PubsubClient, PubsubPlace
from shared.google.pubsub.provision import costs, losses, provision, strays
from shared.model.errors import CountersinkError, TransientError

_log = logging.getLogger(__name__)

REACH: Final = 10.0
"""Seconds in which everything has to be looked at."""
_WRONG: Final = ": WRONG: "


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
    """Those of jobs. How long they keep a task does not matter, because a job knows how old it may be."""

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
            yield Finding(OK, "broker", f"{name}: is there")
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
        for name, topic in seen.pairs:
            if (one := seen.there.get(name)) is not None:
                lost = [flaw for flaw in losses(one, topic) if flaw not in strays(one, topic)]
                found += [Finding(FAIL, "broker", f"{name}: {flaw}") for flaw in lost]
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
