"""Publishable keys with the scope read: what a page may read with one, and what a stranger who copies it can do."""

import contextlib
import itertools
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from shared.config.lists import rules_of
from tests.http import test_watch
from tests.http.answer import Answer
from tests.http.both_ways import connected
from tests.http.keys import SHOP, authorization, guarded
from tests.http.service import Service
from tests.meta.checkout import ROOT
from tests.world.manual_clock import ManualClock

READS: Final = {"publishable": True, "scopes": ["read"], "prefixes": ["page:"], "origins": [SHOP]}
ALLOWED: Final = "Access-Control-Allow-Origin"
PAGE: Final = {"Origin": SHOP}
EVIL: Final = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}


@contextlib.asynccontextmanager
async def site(folder: Path, **entry: Any) -> AsyncIterator[tuple[Service, str, ManualClock]]:
    """A service with the counter page:a, a key that may read it, and the clock of the key's rates."""
    clock, settings = ManualClock(), {"windows": rules_of("=day/1y")}
    writes, other = READS | {"scopes": ["write"]}, READS | {"prefixes": ["z:"]}
    async with guarded(folder, settings, clock, all={}, site=READS | entry, writes=writes, other=other) as it:
        for name in ("page:a", "secret"):
            assert (await it.post("all", f"/v1/counters/{name}")).status == 202
        yield it.service, it.keys["site"], clock


async def get(service: Service, target: str, key: str, headers: dict[str, str], client: int = 0) -> Answer:
    join = "&" if "?" in target else "?"
    return await service.ask("GET", f"{target}{join}key={key}", headers=headers, client=client)


@pytest.mark.parametrize(
    "target",
    ["/v1/counters/page:a", "/v1/counters?name=page:a", "/v1/counters?limit=10", "/v1/counters?prefix=page:&limit=10"],
)
async def test_its_pages_read_and_see_the_answer(tmp_path: Path, target: str) -> None:
    async with site(tmp_path) as (service, key, _):
        found = await get(service, target, key, PAGE)
        assert (found.status, found.headers[ALLOWED], found.headers["Vary"]) == (200, SHOP, "Origin")
        read = [found.json] if "name" in found.json else found.json["counters"]
        assert [(one["name"], one["value"]) for one in read] == [("page:a", 1)]
        refused = await get(service, target, key, EVIL)
        assert (refused.status, refused.field) == (403, "Origin")
        assert refused.headers[ALLOWED] == EVIL["Origin"]  # its author sees the reason
        assert set(refused.json) == {"type", "title", "status", "detail", "field"}
        reason = f"pages of https://evil.example may not use the key site: its origins are {SHOP}"
        assert refused.json["detail"] == reason
        unknown = await get(service, target, f"{key}x", EVIL)
        assert (unknown.status, ALLOWED in unknown.headers) == (401, False)


async def test_a_browser_may_ask_whether_it_may_read(tmp_path: Path) -> None:
    async with site(tmp_path) as (service, _, _):
        for path in ("/v1/counters/page:a", "/v1/counters", "/v1/counters/page:a/series", "/v1/watch"):
            asks = {"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "authorization"}
            found = await service.ask("OPTIONS", path, headers=PAGE | asks)
            assert (found.status, found.headers[ALLOWED]) == (204, SHOP)
            assert found.headers["Access-Control-Allow-Methods"] == "GET"
            assert (await service.ask("OPTIONS", path, headers=EVIL | asks)).status == 401
        for path in ("/metrics", "/v1/jobs", "/v1/receipts/x", "/v1/fleet"):
            assert (await service.ask("OPTIONS", path, headers=PAGE | asks)).status == 401


async def test_a_page_follows_a_stream(tmp_path: Path) -> None:
    async with site(tmp_path) as (service, key, _), connected(service) as client:
        head = f"GET /v1/counters/page:a/watch?key={key} HTTP/1.1\r\nHost: h\r\nOrigin: {SHOP}\r\n\r\n"
        await client.ask(head.encode())
        await client.until(lambda: b'"value":1' in client.seen)
        assert f"{ALLOWED}: {SHOP}".encode() in client.seen


async def test_a_request_that_counts_without_an_origin_is_told_so(tmp_path: Path) -> None:
    async with site(tmp_path, scopes=["write", "read"]) as (service, key, _):
        refused = await service.ask("POST", f"/v1/counters/page:a?key={key}")
        assert refused.status == 403
        assert "may only count and read counters, from pages of its origins. This request" in refused.json["detail"]
        assert f"names no origin: with curl, add -H 'Origin: {SHOP}'" in refused.json["detail"]
        none = await service.ask("POST", "/v1/counters/page:a")
        assert none.json["detail"] == "send a key: Authorization: Bearer csk_…, or ?key=cpk_… in the URL"
        assert "?key" not in (await service.ask("GET", "/v1/jobs")).json["detail"]
    async with site(tmp_path, scopes=["read"]) as (service, key, _):  # it may not count from any origin
        refused = await service.ask("POST", f"/v1/counters/page:a?key={key}")
        assert refused.json["detail"].endswith("may only read counters, from pages of its origins")


async def test_an_answer_says_how_long_it_may_be_kept(tmp_path: Path) -> None:
    async with site(tmp_path) as (service, key, _):
        for target, kept in (
            ("/v1/counters/page:a", "no-store"),
            ("/v1/counters/page:a?max_age=0.5", "no-store"),
            ("/v1/counters/page:a?max_age=10", "public, max-age=10"),
            ("/v1/counters?name=page:a&max_age=5.9", "public, max-age=5"),
            ("/v1/counters/page:a?max_age=1000000", "public, max-age=60"),
        ):
            assert (await get(service, target, key, PAGE)).headers["Cache-Control"] == kept, target
        for origin in (PAGE, {}):  # of a page of its own site, a browser names none
            for target in ("/v1/counters/page:a?max_age=10", "/v1/counters?name=page:a&max_age=10"):
                mine = await service.ask("GET", target, headers=origin | authorization(key))
                assert (mine.status, mine.headers["Vary"]) == (200, "Origin")
                assert mine.headers["Cache-Control"] == "private, max-age=10"
                shared = await get(service, target, key, origin)
                assert (shared.status, shared.headers["Vary"]) == (200, "Origin"), "no cache gives it to another page"


async def test_each_client_may_read_so_many_counters_a_second(tmp_path: Path) -> None:
    async with site(tmp_path) as (service, key, clock):
        ten = "/v1/counters?" + "&".join(f"name=page:{number}" for number in range(10))
        for _ in range(9):
            assert (await get(service, ten, key, PAGE)).status == 200
        for _ in range(10):
            assert (await get(service, "/v1/counters/page:a", key, PAGE)).status == 200
        over = await get(service, "/v1/counters/page:a", key, PAGE)
        assert (over.status, over.headers["Retry-After"]) == (429, "1")
        assert (await get(service, "/v1/counters/page:a", key, PAGE, client=1)).status == 200
        clock.turn(1)
        assert (await get(service, ten, key, PAGE)).status == 200


@pytest.mark.parametrize(
    ("query", "rate", "times"),
    [
        ("contains=a", 300, 1),
        ("prefix=page:&contains=zzz&limit=1", 300, 1),
        ("order=value", 300, 3),
        ("prefix=page:&order=value&limit=10", 300, 3),
        ("prefix=page:&order=value&limit=150", 300, 2),
        ("prefix=page:&order=value&limit=10", 50, 1),
    ],
)
async def test_what_looks_at_all_counters_counts_for_more(tmp_path: Path, query: str, rate: int, times: int) -> None:
    async with site(tmp_path, rate=float(rate), client_rate=float(rate)) as (service, key, _):
        for _ in range(times):
            assert (await get(service, f"/v1/counters?{query}", key, PAGE)).status == 200
        assert (await get(service, f"/v1/counters?{query}", key, PAGE)).status == 429


async def test_one_request_reads_no_more_than_a_second_s_worth(tmp_path: Path) -> None:
    async with site(tmp_path, rate=20.0, client_rate=20.0) as (service, key, _):
        for target in ("/v1/counters", "/v1/counters?limit=21", "/v1/counters?limit=1000"):
            found = await get(service, target, key, PAGE)
            assert (found.status, found.field) == (422, "limit")
        assert (await get(service, "/v1/counters?limit=20", key, PAGE)).status == 200


async def test_all_clients_of_a_key_have_one_rate_and_reading_takes_nothing_from_counting(tmp_path: Path) -> None:
    async with site(tmp_path, rate=20.0, client_rate=20.0, scopes=["write", "read"]) as (service, key, clock):
        assert (await get(service, "/v1/counters?limit=15", key, PAGE)).status == 200
        assert (await get(service, "/v1/counters?limit=15", key, PAGE, client=1)).status == 429
        for _ in range(20):
            assert (await service.ask("POST", f"/v1/counters/page:a?key={key}", headers=PAGE)).status == 202
        assert (await service.ask("POST", f"/v1/counters/page:a?key={key}", headers=PAGE)).status == 429
        assert (await get(service, "/v1/counters/page:a", key, PAGE)).status == 200
        clock.turn(1)
        assert (await get(service, "/v1/counters?limit=20", key, PAGE, client=1)).status == 200


TABLE: Final = (ROOT / "docs" / "live-number.md").read_text().partition("| somebody with the key | can do it? |")[2]
STRANGER: Final[dict[str, list[tuple[str, str, int]] | Callable[..., object]]] = {
    "reads counters, lists, streams and counts by time under `page:`": [
        ("GET", "/v1/counters/page:a", 200),
        ("GET", "/v1/counters?prefix=page:", 200),
        ("GET", "/v1/counters/page:a/series?by=day", 200),
    ],
    "reads another counter, or learns its name": [
        ("GET", "/v1/counters/secret", 403),
        ("GET", "/v1/counters?name=page:a&name=secret", 403),
        ("GET", "/v1/counters/secret/series?by=day", 403),
        ("GET", "/v1/counters/secret/watch", 403),
    ],
    "uses the key in pages of another site": test_its_pages_read_and_see_the_answer,
    "counts": [("POST", "/v1/counters/page:a", 403), ("POST", "/v1/increments", 403)],
    "changes, deletes or exports counters, sees jobs, receipts or metrics": [
        ("PUT", "/v1/counters/page:a", 403),
        ("POST", "/v1/counters/page:a/reset", 403),
        ("DELETE", "/v1/counters/page:a", 403),
        ("POST", "/v1/jobs", 403),
        ("GET", "/v1/jobs", 403),
        ("GET", "/v1/receipts/x", 403),
        ("GET", "/metrics", 403),
        ("GET", "/metrics/counters", 403),
        ("GET", "/openapi.json", 403),
    ],
    "reads very often": test_each_client_may_read_so_many_counters_a_second,
    "reads many counters at once": test_one_request_reads_no_more_than_a_second_s_worth,
    "keeps others from counting by reading": (
        test_all_clients_of_a_key_have_one_rate_and_reading_takes_nothing_from_counting
    ),
    "opens streams until no more fit": test_watch.test_a_client_has_a_share_and_others_the_rest,
}
"""For each row of the page: requests with their answers, or the test that does it."""


async def test_what_a_stranger_with_the_key_can_do(tmp_path: Path) -> None:
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", TABLE.partition("\n\n")[0], re.MULTILINE)
    assert rows == [*STRANGER]
    async with site(tmp_path, rate=1e3, client_rate=1e3) as (service, key, _):
        asked = (does for does in STRANGER.values() if isinstance(does, list))
        for method, target, status in itertools.chain(*asked):
            found = await service.ask(method, f"{target}{'&' if '?' in target else '?'}key={key}", headers=PAGE)
            assert found.status == status, target
        assert (await get(service, "/v1/counters?prefix=secret&limit=9", key, PAGE)).json["counters"] == []
