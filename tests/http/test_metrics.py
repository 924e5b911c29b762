"""Metrics over HTTP: how long requests took by route and status, whichever way they go, and the totals of counters."""

import asyncio
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ingest.api import counters
from ingest.http.fast_path import POST
from ingest.http.router import UNDER_WAY
from shared.model.errors import OverloadedError
from tests.http.both_ways import poll
from tests.http.faults import Gate, failing
from tests.http.keys import guarded
from tests.http.service import Service
from tests.http.test_watch import stream

SECONDS = "countersink_request_seconds"


async def counted(service: Service) -> dict[tuple[str, str], float]:
    """How many requests there were, by route and status."""
    found = await service.scrape()
    return {(labels["route"], labels["status"]): number for labels, number in found.all(f"{SECONDS}_count")}


class Counts:
    """What is counted from one look to the next, without scrapes."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._before: dict[tuple[str, str], float] = {}

    async def added(self) -> dict[tuple[str, str], float]:
        before, self._before = self._before, await counted(self._service)
        more = {route: number - before.get(route, 0) for route, number in self._before.items()}
        return {route: number for route, number in more.items() if number and route[0] != "GET /metrics"}


@pytest.mark.parametrize("headers", [{}, {"TE": "x"}], ids=["either way", "by aiohttp"])
async def test_each_way_through_the_server_counts_the_same(service: Service, headers: dict[str, str]) -> None:
    counts = Counts(service)
    await counts.added()
    for method, target, body, route, status in (
        ("POST", "/v1/counters/a", b"", POST, "2xx"),
        ("POST", "/v1/counters/a?by=2", b"", POST, "2xx"),
        ("POST", "/v1/counters/a", b'{"delta": "x"}', POST, "4xx"),
        ("POST", "/v1/counters/a", b"{", POST, "4xx"),
        ("POST", "/v1/counters/..", b"", POST, "4xx"),
        ("GET", "/v1/counters/a", None, "GET /v1/counters/{name}", "2xx"),
        ("HEAD", "/v1/counters/b", None, "GET /v1/counters/{name}", "2xx"),
        ("PUT", "/v1/counters/a/shards", None, "PUT /v1/counters/{name}/shards", "4xx"),
        ("GET", "/v1/receipts/x", None, "GET /v1/receipts/{id}", "2xx"),
        ("GET", "/healthz", None, "GET /healthz", "2xx"),
        ("GET", "/console/app.js", None, "GET /console", "2xx"),
        *((method, f"/v1/{path}", None, "other", "4xx") for method, path in NOWHERE),
    ):
        await service.ask(method, target, body, headers)
        assert await counts.added() == {(route, status): 1}, target


NOWHERE = (("GET", "nothing"), ("GET", "counters/a/nothing"), ("PATCH", "counters/a"))


async def test_what_is_refused_for_overload_is_counted_as_5xx(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service.parts.publisher, "publish", failing(OverloadedError("there is no room for it")))
    counts = Counts(service)
    await counts.added()
    await service.incr("a")
    assert await counts.added() == {(POST, "5xx"): 1}


async def test_names_and_paths_of_clients_make_no_series(service: Service) -> None:
    await service.incr("a")
    before = await counted(service)
    for number in range(10):
        await service.incr(f"name-{number}")
        await service.get(f"/path-{number}")
        await service.ask("POST", f"/v1/counters/a/part-{number}")
    assert (await counted(service)).keys() - before.keys() <= {("other", "4xx")}


@pytest.mark.parametrize("query", ["", "?timeout=10"])
async def test_requests_that_wait_are_under_way(service: Service, monkeypatch: pytest.MonkeyPatch, query: str) -> None:
    """The first one takes the fast path, the other one does not."""
    gate = Gate(service, monkeypatch)
    waiting = [asyncio.create_task(service.incr("a", None, query)) for _ in range(3)]
    await poll(lambda: UNDER_WAY.requests() == 3)
    found = await service.scrape()
    assert found.sum("countersink_requests_in_flight") == 4  # with the scrape
    gate.open.set()
    assert {(await one).status for one in waiting} == {202}
    assert UNDER_WAY.requests() == 0


async def test_streams_are_counted_apart_and_have_no_duration(service: Service) -> None:
    await service.incr("a")
    before = await counted(service)
    async with stream(service, "/v1/counters/a/watch") as it, stream(service, "/v1/watch?name=a"):
        assert await it.value() == 1
        assert (UNDER_WAY.streams, UNDER_WAY.requests()) == (2, 0)
        found = await service.scrape()
        assert found.sum("countersink_open_streams") == 2
    async with asyncio.timeout(60):
        while UNDER_WAY.streams:  # that a client is gone is noticed with the next event
            await service.incr("a")
    assert {route for route, _ in (await counted(service)).keys() - before.keys()} <= {POST, "GET /metrics"}


def values(text: bytes) -> dict[str, float]:
    """As Prometheus reads them."""
    families = {family.name: family for family in text_string_to_metric_families(text.decode())}
    assert [sample.value for sample in families["countersink_counter_values_exact"].samples] == [1.0]
    return {sample.labels["name"]: sample.value for sample in families["countersink_counter_value"].samples}


async def test_all_totals_with_what_is_pending(service: Service) -> None:
    odd = 'a "b"\\c ß'
    for name in ("page:a", "page:b", odd):
        assert (await service.incr(name, b'{"delta": 2}')).status == 202
    await service.apply()
    await service.incr("page:a", b'{"delta": -5}')
    assert values((await service.get("/metrics/counters")).body) == {"page:a": -3, "page:b": 2, odd: 2}
    assert values((await service.get("/metrics/counters?prefix=page:")).body) == {"page:a": -3, "page:b": 2}
    assert values((await service.get("/metrics/counters?prefix=none")).body) == {}
    assert b"countersink_counter_value" not in (await service.get("/metrics")).body
    await service.ask("DELETE", "/v1/counters/page:a")
    assert values((await service.get("/metrics/counters?prefix=page:")).body) == {"page:b": 2}


async def test_too_many_are_refused(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "MOST_SCRAPED", 2)
    for name in ("a", "b", "p:c"):
        await service.incr(name)
    found = await service.get("/metrics/counters")
    assert (found.status, found.field) == (422, "prefix")
    assert values((await service.get("/metrics/counters?prefix=p:")).body) == {"p:c": 1}


async def test_a_key_shows_its_own(tmp_path: Path) -> None:
    async with guarded(tmp_path, all={}, mine={"scopes": ["read"], "prefixes": ["a:", "b:"]}) as it:
        for name in ("a:x", "b:y", "c:z"):
            await it.post("all", f"/v1/counters/{name}")
        assert values((await it.ask("mine", "GET", "/metrics/counters")).body) == {"a:x": 1, "b:y": 1}
