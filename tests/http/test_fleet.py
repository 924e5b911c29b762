"""GET /v1/fleet says which processes the store knows."""

from pathlib import Path

import pytest

from shared.fleet.fleet_view import FleetView
from shared.model.buckets import StoreMillis
from shared.model.errors import TransientError
from shared.ports.store import FleetLook
from tests.http.service import Service, running
from tests.world.manual_clock import ManualClock
from tests.world.memory.fleet import MemoryFleetBook
from tests.world.memory.store import MemoryStore


async def test_a_file_has_no_list(service: Service) -> None:
    answer = await service.get("/v1/fleet")
    assert (answer.status, answer.json["detail"].split(",")[0]) == (404, "this service uses a SQLite file")


async def test_each_process_has_its_state(tmp_path: Path) -> None:
    clock = ManualClock()
    book = MemoryFleetBook(MemoryStore(clock))
    looks = FleetView(book, clock, 0.0)
    async with running(tmp_path, looks=looks) as service:
        assert (await service.get("/v1/fleet")).json["ingests"] == []
        await looks.change(lambda fleet, _: fleet.names("nonce", "redis-1", "redis://secret@r"))
        await looks.change(lambda fleet, _: fleet.joins("b", "topic").joins("a", "topic"))
        await looks.change(lambda fleet, now: fleet.flushes("f", "topic", now))
        answer = await service.get("/v1/fleet")
        assert answer.json["whole"] is True
        joined = {"topic": "topic", "state": "joined", "spool": False, "struck": None}
        assert answer.json["ingests"] == [{"id": "a", **joined}, {"id": "b", **joined}]
        assert answer.json["flushers"] == [{"id": "f", "topic": "topic", "state": "at work", "struck": None}]
        assert b"secret" not in answer.body
        await looks.change(lambda fleet, _: fleet.owes("a", "topic", "spool-1"))
        await looks.change(lambda fleet, _: fleet.strikes("b", StoreMillis(86_400_000)))
        found = (await service.get("/v1/fleet")).json
        assert found["whole"] is False
        assert [(one["state"], one["spool"], one["struck"]) for one in found["ingests"]] == [
            ("apart", True, None),
            ("struck", False, "1970-01-02T00:00:00.000Z"),
        ]
        await looks.change(lambda fleet, now: fleet.stops("b", now, listed=True))
        assert [one["state"] for one in (await service.get("/v1/fleet")).json["ingests"]] == ["apart", "stopped"]


class _Away(MemoryFleetBook):
    async def look(self) -> FleetLook:
        raise TransientError("the store is away")


async def test_it_is_503_while_the_store_does_not_answer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    async with running(tmp_path, looks=FleetView(_Away(MemoryStore(clock)), clock, 0.0)) as service:
        answer = await service.get("/v1/fleet")
    assert (answer.status, "Retry-After" in answer.headers) == (503, True)
    assert "the store is away" in caplog.text
