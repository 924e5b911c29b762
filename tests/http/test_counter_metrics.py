"""The totals of counters for Prometheus."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ingest.api import counters
from tests.http.keys import keys_file
from tests.http.service import Service, running


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


async def test_a_deleted_counter_has_none(service: Service) -> None:
    await service.incr("a")
    await service.ask("DELETE", "/v1/counters/a")
    assert values((await service.get("/metrics/counters")).body) == {}


async def test_too_many_are_refused(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "MOST_SCRAPED", 2)
    for name in ("a", "b", "p:c"):
        await service.incr(name)
    found = await service.get("/metrics/counters")
    assert (found.status, found.field) == (422, "prefix")
    assert values((await service.get("/metrics/counters?prefix=p:")).body) == {"p:c": 1}


async def test_a_key_shows_its_own(tmp_path: Path) -> None:
    file, keys = keys_file(tmp_path, all={}, mine={"scopes": ["read"], "prefixes": ["a:", "b:"]})
    async with running(tmp_path, keys_file=str(file)) as service:
        for name in ("a:x", "b:y", "c:z"):
            await service.ask("POST", f"/v1/counters/{name}", headers={"Authorization": f"Bearer {keys['all']}"})
        headers = {"Authorization": f"Bearer {keys['mine']}"}
        assert values((await service.ask("GET", "/metrics/counters", headers=headers)).body) == {"a:x": 1, "b:y": 1}
