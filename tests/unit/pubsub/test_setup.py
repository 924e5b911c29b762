"""Permissions, which no emulator has, from a server that answers as Google's does."""

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from google.pubsub_v1 import types

from shared.config.findings import FAIL, OK, WARN, Finding
from shared.model.errors import CountersinkError, TransientError
from shared.pubsub.client import DeniedError, NotFoundError, PubsubClient, PubsubPlace
from shared.pubsub.setup import PubsubSetup, obstacles

PLACE = PubsubPlace("p", "topic", "sub")


@dataclass
class Rights:
    """Pub/Sub, to an account that may do only so much."""

    look: bool = True
    permissions: set[str] = field(default_factory=lambda: {"pubsub.topics.publish", "pubsub.subscriptions.consume"})
    broken: CountersinkError | None = None
    missing: str = ""

    async def get_topic(self, topic: str) -> Any:
        self._check(topic)
        return types.Topic.pb()(name=topic)

    async def get_subscription(self, name: str) -> Any:
        self._check(name)
        topics = {PLACE.dead_subscription: PLACE.dead_topic, PLACE.tasks.subscription: PLACE.tasks.topic}
        topic = topics.get(name, PLACE.topic)
        return types.Subscription.pb()(name=name, topic=topic)

    def _check(self, name: str) -> None:
        if name == self.missing:
            raise NotFoundError("it is not there")
        if not self.look:
            raise DeniedError("Pub/Sub answered PERMISSION_DENIED")

    async def may(self, resource: str, permission: str) -> bool:
        if self.broken is not None:
            raise self.broken
        return permission in self.permissions


async def of_broker(rights: Rights) -> list[Finding]:
    client = cast("PubsubClient", rights)
    setup = PubsubSetup(client, PLACE, lease=60, retention=604_800, emulator="")
    return [finding async for finding in setup.findings()]


def of_mark(findings: list[Finding], mark: str) -> list[str]:
    return [finding.said for finding in findings if finding.mark == mark]


async def test_all_permissions_are_looked_at() -> None:
    findings = await of_broker(Rights())
    assert not of_mark(findings, FAIL) + of_mark(findings, WARN)
    assert sum("this account has" in said for said in of_mark(findings, OK)) == 5


async def test_a_permission_that_is_lacking_fails_and_names_the_role() -> None:
    failed = of_mark(await of_broker(Rights(permissions={"pubsub.topics.publish"})), FAIL)
    assert failed == [
        f"{name}: this account lacks pubsub.subscriptions.consume: give it the role Pub/Sub Subscriber"
        for name in (PLACE.subscription, PLACE.tasks.subscription)
    ]


async def test_an_account_that_may_not_look_is_warned_and_may_start(caplog: pytest.LogCaptureFixture) -> None:
    rights = Rights(look=False)
    findings = await of_broker(rights)
    assert not of_mark(findings, FAIL)
    assert len([said for said in of_mark(findings, WARN) if "the role Pub/Sub Viewer" in said]) == 6
    assert await obstacles(cast("PubsubClient", rights), PLACE, 604_800, True) == []
    assert caplog.text.count("the role Pub/Sub Viewer") == 6


async def test_permissions_that_can_not_be_asked_for_are_a_warning() -> None:
    findings = await of_broker(Rights(broken=TransientError("away"), missing=PLACE.topic))
    assert len(of_mark(findings, FAIL)) == 1
    assert of_mark(findings, WARN) == [
        f"{name}: permissions can't be checked: away"
        for name in (PLACE.subscription, PLACE.dead_topic, PLACE.tasks.topic, PLACE.tasks.subscription)
    ]
