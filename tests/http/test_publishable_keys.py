"""Publishable keys, which anybody can read in a web page: none of them harms what others count."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.http.answer import Answer
from tests.http.keys import SHOP, keys_file
from tests.http.service import Service, running

SITE: Final = {"publishable": True, "scopes": ["write"], "prefixes": ["page:"], "origins": [SHOP]}


class Pages:
    """A service with keys, and requests as web pages send them."""

    def __init__(self, service: Service, keys: dict[str, str]) -> None:
        self.service = service
        self.keys = keys

    async def ask(
        self, who: str, method: str, target: str, body: Any = None, *, client: int = 0, **headers: str
    ) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named["Authorization"] = f"Bearer {self.keys[who]}"
        if self.keys[who].startswith("cpk") and method == "POST":
            named["Origin"] = SHOP
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        return await self.service.ask(method, target, data, named, client)

    async def post(self, who: str, target: str, body: Any = None, *, client: int = 0, **headers: str) -> Answer:
        return await self.ask(who, "POST", target, body, client=client, **headers)

    async def totals(self) -> dict[str, int]:
        found = (await self.ask("all", "GET", "/v1/counters?max_age=0&limit=1000")).json["counters"]
        return {one["name"]: one["value"] for one in found}


@pytest.fixture(params=[True, False], ids=["short", "long"])
async def pages(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Pages]:
    file, keys = keys_file(
        tmp_path,
        all={},
        shop={"owner": "shop"},
        site=SITE,
        blog=SITE,
        shops=SITE | {"owner": "shop"},
    )
    pixels = ("page:",)
    async with running(tmp_path, short=request.param, keys_file=str(file), pixels=pixels) as service:
        yield Pages(service, keys)


@pytest.mark.parametrize("site", ["site", "shops"])
@pytest.mark.parametrize("victim", ["all", "shop", "blog"])
async def test_no_id_of_a_publishable_key_is_that_of_another_key(pages: Pages, site: str, victim: str) -> None:
    """Who guesses the ids of others and sends them first voids nothing."""
    event = {"ce-specversion": "1.0", "ce-id": "e", "ce-source": "s", "ce-type": "t"}

    async def count(who: str) -> None:
        one = "/v1/counters/page:a"
        for answer in (
            await pages.post(who, one, {"id": "i"}),
            await pages.post(who, one, Idempotency_Key="k"),
            await pages.post(who, one, b"id=form"),
            await pages.post(who, "/v1/increments", [{"counter": "page:a", "id": "j"}]),
            await pages.post(who, "/v1/increments", [{"counter": "page:a"}], Idempotency_Key="k"),
            await pages.post(who, "/v1/events", b'{"counter": "page:a"}', **event),
            await pages.post(who, "/v1/events", {"keyed": [{"counter": "page:a", "id": "n"}]}, **event | {"ce-id": "f"}),
            await pages.ask(who, "GET", "/v1/counters/page:a/pixel.gif?id=p"),
        ):
            assert answer.status in {200, 202}, answer

    await count(site)
    await count(victim)
    assert await pages.totals() == {"page:a": 16}
    await pages.service.apply()
    for who in (site, victim):  # for each of them, an id counts once
        await count(who)
    await pages.service.apply()
    assert await pages.totals() == {"page:a": 16}
