"""TTL policies, which no emulator has, from a server that answers as Google's does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import web

from shared.config.findings import OK, WARN
from shared.datastore.client import DatastoreClient
from shared.datastore.keys import DatastorePlace, Kinds
from shared.datastore.setup import DatastoreSetup, Ttl, TtlDeniedError, deletion
from shared.model.errors import TransientError
from shared.runtime.clock import SystemClock
from tests.world.serving import serving

STORE = DatastorePlace("p", "d", "ns", Kinds(receipt="Receipt/ü"))
KINDS = ("Receipt/ü", "CountersinkBuckets")
FIELD = "/v1/projects/p/databases/d/collectionGroups/Receipt%2F%C3%BC/fields/expires"


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
    async with serving(web.ServerRunner(web.Server(one.answer))) as port:
        one.base = f"http://127.0.0.1:{port}"
        yield one


@asynccontextmanager
async def of_store(one: Admin) -> AsyncIterator[DatastoreSetup]:
    client = DatastoreClient(STORE, SystemClock(), "127.0.0.1:1")
    ttls = [Ttl(STORE, kind, one.base, lambda: "secret") for kind in KINDS]
    try:
        yield DatastoreSetup(client, ttls, emulator="")
    finally:
        await client.close()


async def test_ttl_policies_are_made_once() -> None:
    async with admin() as one, of_store(one) as setup:
        made = [finding async for finding in setup.provision()]
        there = [finding async for finding in setup.provision()]
    assert [finding.mark for finding in (*made, *there)] == [OK] * 4
    assert "the TTL policy of Receipt/ü is being created" in made[0].said
    assert there[1].said == "Datastore p/d: the TTL policy of CountersinkBuckets exists"
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
        ({"state": "ACTIVE"}, OK, "deletes K entities that have expired"),
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
