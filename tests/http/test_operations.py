"""The shards of a counter, the processes of the fleet, and what operators ask for."""

from pathlib import Path

import pytest

from shared.fleet import FleetView
from shared.model.buckets import StoreMillis
from shared.model.errors import TransientError
from shared.model.words import SHARD_FULL, Commit, ShardAdd
from tests.http import contract
from tests.http.answer import Answer
from tests.http.faults import failing
from tests.http.service import Service, running
from tests.world.manual_clock import ManualClock
from tests.world.memory.fleet import MemoryFleetBook
from tests.world.memory.store import MemoryStore


async def test_shards_are_raised_and_never_lowered(service: Service) -> None:
    await service.incr("a/b", b'{"delta": 5}')
    await service.apply()
    for asked, expected in ((4, 4), (2, 4), (4, 4), (1, 4), (100, 100)):
        answer = await service.ask("PUT", "/v1/counters/a%2Fb/shards", b'{"shards": %d}' % asked)
        assert (answer.status, answer.json) == (200, {"name": "a/b", "shards": expected})
        assert (await service.read("a/b"))["shards"] == expected
    assert await service.value("a/b") == 5


async def test_the_most_shards_are_a_setting(tmp_path: Path) -> None:
    async with running(tmp_path, max_shards=3) as service:
        assert (await service.ask("PUT", "/v1/counters/c/shards", b'{"shards": 3}')).status == 200
        assert (await service.ask("PUT", "/v1/counters/c/shards", b'{"shards": 4}')).status == 422


async def ask_shards(service: Service, number: int, *, compact: bool = True, name: str = "c") -> Answer:
    body = b'{"shards": %d, "compact": %b}' % (number, b"true" if compact else b"false")
    return await service.ask("PUT", f"/v1/counters/{name}/shards", body)


async def test_compaction_has_to_be_asked_for_and_keeps_the_total(service: Service) -> None:
    await ask_shards(service, 9, compact=False)
    assert (await service.read("c"))["exists"]
    for _ in range(30):
        await service.incr("c")
        await service.apply()
    assert await service.value("c") == 30
    assert (await ask_shards(service, 2, compact=False)).json == {"name": "c", "shards": 9}
    await service.incr("c")
    asked = (await service.scrape()).sum("countersink_compactions_total", why="asked")
    assert (await ask_shards(service, 2)).json == {"name": "c", "shards": 2}
    assert (await service.scrape()).sum("countersink_compactions_total", why="asked") == asked + 1
    assert (await service.read("c"))["value"] == 31
    await service.apply()
    counter = await service.read("c")
    assert (counter["value"], counter["shards"]) == (31, 2)
    assert (await ask_shards(service, 5)).json == {"name": "c", "shards": 5}
    assert (await ask_shards(service, 3, name="new")).json == {"name": "new", "shards": 3}


async def test_no_shard_goes_beside_an_ndb_application(tmp_path: Path) -> None:
    async with running(tmp_path, ndb_writers="yes") as service:
        await ask_shards(service, 5, compact=False)
        refused = await ask_shards(service, 1)
        assert refused.status == 409
        assert "COUNTERSINK_NDB_WRITERS" in refused.json["detail"]
        assert (await service.read("c"))["shards"] == 5


async def test_what_does_not_fit_into_fewer_is_said(service: Service) -> None:
    adds = tuple(ShardAdd("c", shard, SHARD_FULL, 3) for shard in range(3))
    await service.parts.store.apply(Commit((), adds))
    refused = await ask_shards(service, 1)
    assert (refused.status, "holds too much for 1 shard" in refused.json["detail"]) == (409, True)
    assert (await service.read("c"))["value"] == 3 * SHARD_FULL


async def test_alive_ready_and_version_say_so(service: Service) -> None:
    assert (await service.get("/healthz")).json == {"status": "alive"}
    assert (await service.get("/readyz")).json == {"status": "ready"}
    assert (await service.get("/version")).json == {"version": contract.VERSION}
    assert (await service.get("/healthz?probe=1")).status == 200


async def test_a_broker_that_is_away_makes_it_unready_and_takes_neither_life_nor_reads(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    await service.incr("a")
    assert [(await service.get(path)).status for path in ("/readyz", "/healthz")] == [200, 200]
    for method in ("publish", "check"):
        monkeypatch.setattr(service.parts.publisher, method, failing(TransientError("the broker is away for now")))
    assert [(await service.get(path)).status for path in ("/readyz", "/healthz")] == [503, 200]
    assert (await service.incr("a")).status == 503
    assert await service.value("a") == 1


async def test_metrics_count_what_was_accepted_rejected_and_applied(service: Service) -> None:
    names = [f"countersink_{what}_increments_total" for what in ("accepted", "rejected", "applied", "deduplicated")]
    before = await service.scrape()
    await service.incr("c", b'{"id": "x"}')
    await service.incr("c", b'{"id": "x"}')
    await service.post("/v1/increments", b'[{"counter": "c", "delta": 9}, {"counter": ""}]')
    await service.incr("c", b'{"delta": 0.5}')
    await service.apply()
    after = await service.scrape()
    assert [int(after.sum(name) - before.sum(name)) for name in names] == [3, 2, 2, 1]
    answer = await service.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    assert b"# TYPE countersink_accepted_increments_total counter" in answer.body


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


async def test_it_is_503_while_the_store_does_not_answer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    book = MemoryFleetBook(MemoryStore(clock))
    book.look = failing(TransientError("the store is away"))  # type: ignore[method-assign,assignment]
    async with running(tmp_path, looks=FleetView(book, clock, 0.0)) as service:
        answer = await service.get("/v1/fleet")
    assert (answer.status, "Retry-After" in answer.headers) == (503, True)
    assert "the store is away" in caplog.text
