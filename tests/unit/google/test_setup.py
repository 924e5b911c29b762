"""Permissions and TTL policies, which no emulator has, from servers that answer as Google's do."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import quote

import pytest
from aiohttp import web
from google.pubsub_v1 import types

from shared.config.findings import FAIL, OK, WARN, Finding
from shared.datastore.client import DatastoreClient
from shared.datastore.keys import DatastorePlace, Kinds
from shared.datastore.setup import DatastoreSetup, Ttl, TtlDeniedError, deletion
from shared.model.errors import CountersinkError, TransientError
from shared.pubsub.client import DeniedError, NotFoundError, PubsubClient, PubsubPlace
from shared.pubsub.setup import PubsubSetup, obstacles
from shared.runtime.clock import SystemClock

PLACE = PubsubPlace("p", "topic", "sub")
STORE = DatastorePlace("p", "d", "ns", Kinds(receipt="Receipt/ü"))
KINDS = ("Receipt/ü", "CountersinkBuckets")
FIELD = "/v1/projects/p/databases/d/collectionGroups/Receipt%2F%C3%BC/fields/expires"


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


@dataclass
class Admin:
    """The part of the Firestore Admin API that TTL policies are in."""

    state: str | None = None
    status: int = 200
    body: str = ""
    """What it says instead of an answer."""
    asked: list[tuple[str, str, str, Any]] = field(default_factory=list)
    base: str = ""
    made: set[str] = field(default_factory=set)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.json() if request.can_read_body else None
        self.asked.append((request.method, request.raw_path, request.headers["Authorization"], body))
        if self.body or self.status != 200:
            return web.Response(text=self.body, status=self.status)
        if request.method == "PATCH":
            self.made.add(request.raw_path.partition("?")[0])
            return web.json_response({"name": "projects/p/databases/d/operations/o"})
        state = "CREATING" if request.raw_path in self.made else self.state
        ttl = {"ttlConfig": {"state": state}} if state else {}
        return web.json_response({"name": FIELD, "indexConfig": {}} | ttl)


@asynccontextmanager
async def admin(**what: Any) -> AsyncIterator[Admin]:
    one = Admin(**what)
    runner = web.ServerRunner(web.Server(one.answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    one.base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield one
    finally:
        await runner.cleanup()


@asynccontextmanager
async def of_store(one: Admin) -> AsyncIterator[DatastoreSetup]:
    client = DatastoreClient("p", "d", SystemClock(), "127.0.0.1:1")
    ttls = [Ttl(STORE, kind, one.base, lambda: "secret") for kind in KINDS]
    try:
        yield DatastoreSetup(client, STORE, SystemClock(), ttls, emulator="")
    finally:
        await client.close()


async def test_ttl_policies_are_made_once() -> None:
    async with admin() as one, of_store(one) as setup:
        made = [finding async for finding in setup.provision()]
        there = [finding async for finding in setup.provision()]
    assert [finding.mark for finding in (*made, *there)] == [OK] * 4
    assert "the TTL policy of Receipt/ü is being made" in made[0].said
    assert there[1].said == "Datastore p/d: the TTL policy of CountersinkBuckets is there"
    for kind, asked in zip(KINDS, (one.asked[:2], one.asked[2:4]), strict=True):
        field = FIELD.replace(quote(KINDS[0], safe=""), quote(kind, safe=""))
        get, patch = asked
        assert get == ("GET", field, "Bearer secret", None)
        assert patch == ("PATCH", f"{field}?updateMask=ttlConfig", "Bearer secret", {"ttlConfig": {}})
    assert [method for method, *_ in one.asked] == ["GET", "PATCH"] * 2 + ["GET"] * 2


async def test_the_default_database_has_its_name_in_the_path() -> None:
    async with admin(state="ACTIVE") as one:
        assert await Ttl(DatastorePlace("p"), "CountersinkReceipt", one.base, lambda: "").state() == "ACTIVE"
    assert one.asked[0][1] == "/v1/projects/p/databases/(default)/collectionGroups/CountersinkReceipt/fields/expires"


@pytest.mark.parametrize(
    ("what", "mark", "part"),
    [
        ({"state": "ACTIVE"}, OK, "deletes those that have expired"),
        ({"state": "CREATING"}, WARN, "is CREATING: look again later"),
        ({}, WARN, "has no TTL policy"),
        ({"status": 403, "body": '{"error": {"message": "no"}}'}, WARN, "answered 403: no; give this account the role"),
    ],
)
async def test_what_is_said_of_a_ttl_policy(what: dict[str, Any], mark: str, part: str) -> None:
    async with admin(**what) as one:
        found = await deletion(Ttl(STORE, "K", one.base, lambda: "secret"))
    assert found.mark == mark
    assert part in found.said


@pytest.mark.parametrize(
    ("status", "body", "error", "said"),
    [
        (401, "who?", TtlDeniedError, "answered 401: who?"),
        (403, '{"error": {"message": "no"}}', TtlDeniedError, "answered 403: no; give this account the role"),
        (404, '{"error": {"message": "no database"}}', TransientError, "answered 404: no database"),
        (500, "[]", TransientError, "answered 500: []"),
        (200, "not json", TransientError, "can't be reached"),
    ],
)
async def test_a_policy_that_can_not_be_made_says_why(
    status: int, body: str, error: type[Exception], said: str
) -> None:
    async with admin(status=status, body=body) as one, of_store(one) as setup:
        with pytest.raises(error) as raised:
            _ = [finding async for finding in setup.provision()]
    assert said in str(raised.value)


async def test_a_server_that_is_away_is_said() -> None:
    with pytest.raises(TransientError, match="can't be reached"):
        await Ttl(STORE, "K", "http://127.0.0.1:1", lambda: "").state()
