"""What the probes of an orchestrator see while the broker is away."""

import pytest

from shared.model.errors import TransientError
from tests.http.service import Service


async def test_a_broker_that_is_away_makes_it_unready_and_takes_neither_life_nor_reads(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise TransientError("the broker is away for now")

    await service.incr("a")
    assert [(await service.get(path)).status for path in ("/readyz", "/healthz")] == [200, 200]
    for method in ("publish", "check"):
        monkeypatch.setattr(service.parts.publisher, method, away)
    assert [(await service.get(path)).status for path in ("/readyz", "/healthz")] == [503, 200]
    assert (await service.incr("a")).status == 503
    assert await service.value("a") == 1
