"""The service in memory of `countersink.testing` answers as the real one does: both get the same requests."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from countersink import Client, Counter, RejectedError
from countersink.testing import Service as InMemory
from tests.http.service import Service, running
from tests.world.series import ALL_KEPT

Sent = tuple[str, str, bytes, Mapping[str, str]]
KEY: Final = "Idempotency-Key"
WHEN: Final = {"applied", "pending", "as_of", "updated_at"}
VARIES: Final = WHEN | {"receipt", "detail", "reason", "title", "type", "shards", "generation"}
"""Fields whose values may differ: when an increment is applied, and how an error is worded, is not promised."""
REQUESTS: Final[list[Sent]] = [
    ("POST", "/v1/counters/a", b"", {}),
    ("POST", "/v1/counters/a?by=3", b"", {}),
    ("POST", "/v1/counters/a?by=x", b"", {}),
    ("POST", "/v1/counters/a", b'{"delta":2,"id":"x"}', {}),
    ("POST", "/v1/counters/a", b'{"delta":2,"id":"x"}', {}),
    ("POST", "/v1/counters/a", b'{"delta":3,"id":"x"}', {}),
    ("POST", "/v1/counters/b", b'{"id":"x"}', {}),
    ("POST", "/v1/counters/a", b"", {KEY: "y"}),
    ("POST", "/v1/counters/a", b"", {KEY: "y"}),
    ("POST", "/v1/counters/a", b"[]", {}),
    ("POST", "/v1/counters/a", b'{"dalta":1}', {}),
    ("POST", "/v1/counters/a", b'{"delta":1.5}', {}),
    ("POST", "/v1/counters/__a__", b"", {}),
    ("POST", "/v1/counters/zero", b'{"delta":0}', {}),
    ("POST", "/v1/counters/a?return=value", b"", {}),
    ("POST", "/v1/counters/a?wait=applied", b"", {}),
    ("POST", "/v1/increments", '{"counters":{"a":1,"c d/é":4}}'.encode(), {KEY: "k"}),
    ("POST", "/v1/increments", '{"counters":{"a":1,"c d/é":4}}'.encode(), {KEY: "k"}),
    ("POST", "/v1/increments", b'{"counters":{"a":2}}', {KEY: "k"}),
    ("POST", "/v1/increments", b'[{"counter":"a"},{"counter":"b","id":"m"}]', {KEY: "l"}),
    ("POST", "/v1/increments", b'[{"counter":"a"},{"counter":"b","id":"n"}]', {KEY: "l"}),
    ("POST", "/v1/increments?return=value", b'[{"counter":"a"},{"counter":"b","delta":-2,"id":"y"}]', {}),
    ("POST", "/v1/increments?return=value", b'{"counter":"a"}\n{"counter":"a","id":"z"}\n{"counter":"a","id":"z"}', {}),
    ("POST", "/v1/increments?wait=applied", b'{"counter":"a"}', {}),
    ("POST", "/v1/increments", b'[{"counter":""},{"counter":"b","delta":"1"},{"delta":1},3,{"counter":"a"}]', {}),
    ("POST", "/v1/increments", b'{"counters":{"":1,"a":1}}', {}),
    ("POST", "/v1/increments", b'{"counters":{"":1}}', {}),
    ("POST", "/v1/increments", b"", {}),
    ("POST", "/v1/increments", b"{", {}),
    ("POST", "/v1/increments", b"3", {}),
    ("POST", "/v1/increments", b"[]", {}),
    ("GET", "/v1/counters/a", b"", {}),
    ("GET", "/v1/counters/never", b"", {}),
    ("GET", "/v1/counters/%ff", b"", {}),
    ("GET", "/v1/counters?name=b&name=never&name=a", b"", {}),
    ("GET", "/v1/counters?prefix=c", b"", {}),
    ("GET", "/v1/counters?limit=x", b"", {}),
    ("GET", "/v1/counters?contains=d/", b"", {}),
    ("GET", "/v1/counters?order=value&limit=2", b"", {}),
    ("GET", "/v1/counters?order=value&page_token=YQ==", b"", {}),
    ("GET", "/v1/counters?order=value&contains=d", b"", {}),
    ("PUT", "/v1/counters/a", b'{"value":7}', {KEY: "s"}),
    ("PUT", "/v1/counters/a", b'{"value":7}', {KEY: "s"}),
    ("PUT", "/v1/counters/a", b'{"value":8}', {KEY: "s"}),
    ("GET", "/v1/counters/a/series?by=day&from=2020-01-01T00:00:00.5Z&to=2040-01-01T01:00:00%2B02:00", b"", {}),
    ("GET", "/v1/counters/a/series?by=hour&from=2026-01-01T00:00:00Z&to=2026-02-01T00:00:00Z", b"", {}),
    ("GET", "/v1/counters/a/series?by=hour&to=2026-02-01T00:00:01Z", b"", {}),
    ("GET", "/v1/counters/never/series?by=day", b"", {}),
    ("GET", "/v1/counters/a/series?by=minute&from=2020-01-01T00:00:00Z", b"", {}),
    ("GET", "/v1/counters/a/series?by=day&from=2026-02-01T00:00:00Z&to=2026-01-01T00:00:00Z", b"", {}),
    ("GET", "/v1/counters/a/series?by=day&from=2026-02-01T00:00:00", b"", {}),
    ("GET", "/v1/counters/a/series?by=day&to=today", b"", {}),
    ("GET", "/v1/counters/a/series?by=week", b"", {}),
    ("GET", "/v1/counters/a/series", b"", {}),
    ("PUT", "/v1/counters/a", b"{}", {}),
    ("POST", "/v1/counters/b/reset", b"", {}),
    ("DELETE", "/v1/counters/a", b"", {}),
    ("GET", "/v1/counters/a", b"", {}),
    ("GET", "/v1/counters", b"", {}),
    ("POST", "/v1/counters/a", b'{"delta":2,"id":"x"}', {}),
    ("POST", "/v1/counters/a", b"", {}),
    ("GET", "/v1/counters/a", b"", {}),
]


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running(tmp_path, windows=ALL_KEPT) as service:
        yield service


@pytest.fixture
def memory() -> Iterator[InMemory]:
    with InMemory() as service:
        yield service


def promised(found: Any) -> Any:
    """What an answer says, without what may differ."""
    if isinstance(found, dict):
        return {name: "…" if name in VARIES else promised(value) for name, value in found.items()}
    return [promised(one) for one in found] if isinstance(found, list) else found


@pytest.mark.usefixtures("in_one_minute")
async def test_both_answer_alike(service: Service, memory: InMemory) -> None:
    real_address = service.url
    async with service.applying():
        for sent in REQUESTS:
            service.url = real_address
            real = await service.ask(*sent)
            service.url = memory.url
            ours = await service.ask(*sent)
            assert (ours.status, promised(ours.json)) == (real.status, promised(real.json)), sent


def use(url: str) -> list[Any]:
    """What a program sees that counts and reads with the client."""
    seen: list[Any] = []
    with Client(url) as counters:
        for number in range(7):
            counters.incr(f"page:{number}", by=number)
            counters.incr("orders", id=f"order-{number % 3}")
        seen += [counters.flush(), counters.dropped, *map(shown, counters.list(page=2))]
        batch = counters.increment_many({"page:1": 5, "": 1}, key="batch")
        again = counters.increment_many({"page:1": 5, "": 1}, key="batch")
        seen += [batch.accepted, len(batch.rejected), batch.duplicates, again.duplicates]
        one = counters.increment("page:2", id="one", want_value=True)
        seen += [one.value, one.exact, counters.increment("page:2", id="one", wait=10).duplicates]
        hours = counters.series("page:2", "hour")
        seen += [hours.name, hours.by, bool(hours.points), hours.total, hours.exact]
        seen += [counters.get(name, max_age=0).updated_at is None for name in ("page:2", "no")]
        before = counters.get("page:2").generation
        seen += [counters.set("page:2", 40, key="s"), counters.set("page:2", 40, key="s")]
        seen += [counters.delete("page:3", key="d"), counters.get("page:2").generation != before]
        found = [*counters.get_many(["page:2", "page:3", "no"]), *counters.top("page:", 3)]
        seen += map(shown, [*found, *counters.list(contains=":2")])
        with pytest.raises(RejectedError) as refused:
            counters.increment("page:2", 2, id="one")
        seen.append((refused.value.status, refused.value.field))
    return seen


def shown(counter: Counter) -> tuple[str, int, bool, bool]:
    return counter.name, counter.value, counter.exact, counter.exists


@pytest.mark.usefixtures("in_one_minute")
async def test_a_client_sees_the_same(service: Service, memory: InMemory) -> None:
    async with service.applying():
        assert await asyncio.to_thread(use, memory.url) == await asyncio.to_thread(use, service.url)
    assert memory.values() == await service.totals()
