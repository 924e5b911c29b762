"""Jobs: something is done to each counter under a prefix, once."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from countersink_server.serve.run import _flush
from shared.config.settings import Settings
from shared.model.buckets import BrokerMillis, StoreMillis
from shared.model.dead_letters import with_body
from shared.model.jobs import EXPIRE, KINDS, RUNNING
from shared.model.words import DEAD, Commit, Envelope, Receipt, View
from shared.runtime.retry import Stop
from shared.sqlite.broker import SqliteOverlay
from shared.sqlite.database import connect_to
from shared.sqlite.jobs import SqliteJobs
from tests.http.answer import Answer
from tests.http.service import Service, running


async def start(service: Service, **body: Any) -> Answer:
    asked = {"kind": "add", "prefix": "p:", "delta": 10} | body
    return await service.post("/v1/jobs", orjson.dumps({name: it for name, it in asked.items() if it is not None}))


async def counted(service: Service, *names: str) -> None:
    for number, name in enumerate(names):
        await service.incr(name, b'{"delta": %d}' % (number + 1))
    await service.apply()


@contextlib.asynccontextmanager
async def cut_off(service: Service) -> AsyncIterator[None]:
    """A worker of the job `j` visits a page, and is killed before it has kept what it did. In the end, all is done."""
    (lease,) = await service.parts.tasks.pull(1, 0)
    standing = await service.parts.jobs.get("j")
    assert standing is not None
    await service._worker._visit(standing.job, lease.task)
    yield
    await service.parts.tasks.give_back([lease.token])
    await service.work()


async def job(service: Service, id_: str) -> Any:
    answer = await service.get(f"/v1/jobs/{id_}")
    assert answer.status == 200, answer
    return answer.json


async def test_each_counter_under_the_prefix_gets_it_once(service: Service) -> None:
    await counted(service, "p:a", "p:b/\u00e9", "q", "p", "P:a")
    begun = await start(service)
    assert (begun.status, begun.json["state"], begun.json["open"]) == (202, RUNNING, 1)
    id_ = begun.json["id"]
    assert begun.headers["Location"] == f"/v1/jobs/{id_}"
    await service.work()
    assert await service.totals() == {"p:a": 11, "p:b/\u00e9": 12, "q": 3, "p": 4, "P:a": 5}
    done = await job(service, id_)
    assert done["finished"] >= done["started"]
    assert done == done | {"kind": "add", "prefix": "p:", "delta": 10, "state": "done", "failed": 0, "open": 0}
    assert (done["visited"], done["changed"]) == (2, 2)
    assert (done["tasks"], done["depth"], done["share"], done["reason"], done["examples"]) == (1, 1, 1.0, None, [])


async def test_many_pages_are_visited(service: Service) -> None:
    names = [f"p:{number:04}" for number in range(4_950)]
    await service.post("/v1/increments", orjson.dumps({"counters": dict.fromkeys(names, 1)}))
    await service.apply()
    id_ = (await start(service)).json["id"]
    await service.work()
    assert await service.totals() == dict.fromkeys(names, 11)
    done = await job(service, id_)
    assert (done["state"], done["visited"], done["changed"]) == ("done", 4_950, 4_950)
    assert done["tasks"] >= 5
    assert done["depth"] >= 2


async def test_the_same_again_is_answered_as_it_is_and_happens_once(service: Service) -> None:
    await counted(service, "p:a")
    first = await start(service, id="Mine-1")
    again = await start(service, id="Mine-1")
    assert (first.status, again.status) == (202, 200)
    await service.work()
    after = await start(service, id="Mine-1")
    assert (after.status, after.json["state"], after.json["changed"]) == (200, "done", 1)
    await service.work()
    assert await service.totals() == {"p:a": 11}
    assert (await start(service, id="Mine-2")).status == 202
    await service.work()
    assert await service.totals() == {"p:a": 21}


async def test_an_idempotency_key_stands_for_an_id(service: Service) -> None:
    await counted(service, "p:a")
    body = b'{"kind": "add", "prefix": "p:", "delta": 1}'
    answers = [await service.post("/v1/jobs", body, Idempotency_Key="k / \xe9") for _ in range(2)]
    assert [answer.status for answer in answers] == [202, 200]
    assert len({answer.json["id"] for answer in answers}) == 1
    named = b'{"kind": "add", "prefix": "p:", "delta": 1, "id": "mine"}'
    assert (await service.post("/v1/jobs", named, Idempotency_Key="k / \xe9")).json["id"] == "mine"


@pytest.mark.parametrize("other", [{"delta": 11}, {"prefix": "p"}, {"prefix": ""}])
async def test_another_job_of_that_id_is_refused(service: Service, other: dict[str, Any]) -> None:
    await counted(service, "p:a")
    await start(service, id="j")
    refused = await start(service, id="j", **other)
    assert (refused.status, refused.field) == (409, "id")
    await service.work()
    assert await service.totals() == {"p:a": 11}


@pytest.mark.parametrize(
    ("names", "asked", "totals"),
    [
        (["a", "\U0001f600"], {"prefix": ""}, {"a": 11, "\U0001f600": 12}),
        (["p:a"], {"delta": -(2**53) + 1}, {"p:a": 2 - 2**53}),
        ([], {}, {}),
    ],
    ids=["to all under no prefix", "less than nothing", "to nothing"],
)
async def test_it_is_added(service: Service, names: list[str], asked: dict[str, Any], totals: dict[str, int]) -> None:
    await counted(service, *names)
    id_ = (await start(service, **asked)).json["id"]
    await service.work()
    assert await service.totals() == totals
    done = await job(service, id_)
    assert (done["state"], done["visited"], done["tasks"]) == ("done", len(names), 1)


@pytest.mark.parametrize("kind", ["reset", "delete"])
async def test_each_is_set_to_nothing_once_whatever_is_pending(service: Service, kind: str) -> None:
    await counted(service, "p:a", "p:b", "p:c", "q")
    await service.incr("p:a", b'{"delta": 100}')
    await service.ask("DELETE", "/v1/counters/p%3Ac")
    id_ = (await service.post("/v1/jobs", orjson.dumps({"kind": kind, "prefix": "p:"}))).json["id"]
    leases = await service.parts.tasks.pull(10, 0)
    await service._worker.work(leases[0].task)
    assert await service.totals() == {"q": 4} | ({"p:a": 0, "p:b": 0} if kind == "reset" else {})
    await service.incr("p:b", b'{"delta": 7}')
    await service.parts.tasks.give_back([lease.token for lease in leases])
    await service.work()
    assert (await service.read("p:b"))["value"] == 7
    await service.apply()
    assert (await service.read("p:a"))["value"] == 0
    done = await job(service, id_)
    assert (done["state"], done["visited"], done["changed"], done["failed"]) == ("done", 2, 2, 0)
    assert "delta" not in done


async def pages_of(service: Service, id_: str) -> list[bytes]:
    """The pages of the export."""
    pages: list[bytes] = []
    token = ""
    while True:
        answer = await service.get(f"/v1/jobs/{id_}/export?page_token={token}")
        assert answer.status == 200
        pages.append(answer.body)
        if "Next-Page-Token" not in answer.headers:
            return pages
        token = answer.headers["Next-Page-Token"]


NEW = [f"p:{number:04}" for number in range(1_250)]


async def accepted(service: Service) -> None:
    """Many new counters of which nothing is applied, among others that are in the store."""
    await counted(service, "p:0000", "p:0700", "p:1249", "q")
    assert (await service.post("/v1/increments", orjson.dumps({"counters": dict.fromkeys(NEW, 1)}))).status == 202


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != EXPIRE])
async def test_counters_that_are_only_pending_are_visited(service: Service, kind: str) -> None:
    await accepted(service)
    before = await service.totals()
    body = {"kind": kind, "prefix": "p:", "id": "j"} | {"add": {"delta": 10}, "compact": {"shards": 1}}.get(kind, {})
    assert (await service.post("/v1/jobs", orjson.dumps(body))).status == 202
    await service.work()
    done = await job(service, "j")
    assert (done["state"], done["visited"], done["failed"], done["sees_pending"]) == ("done", 1_250, 0, True)
    if kind == "export":
        lines = b"".join(await pages_of(service, "j")).splitlines()
        assert [*map(orjson.loads, lines)] == [
            {"name": name, "value": value} for name, value in sorted(before.items()) if name != "q"
        ]
    for _ in range(2):  # as it is now, and when all is applied
        change = {"add": {name: before[name] + 10 for name in NEW}, "reset": dict.fromkeys(NEW, 0), "delete": {}}.get(
            kind, {name: before[name] for name in NEW}
        )
        assert await service.totals() == change | {"q": 4}
        await service.apply()
        await service.remove()


async def test_deleted_counters_stay_deleted_whether_they_were_applied_or_only_pending(service: Service) -> None:
    await counted(service, "p:applied", "p:stays")
    await service.incr("p:pending")
    for name in ("p:applied", "p:pending"):
        assert (await service.ask("DELETE", f"/v1/counters/{name}")).status == 200
    await service.incr("p:there")
    id_ = (await start(service)).json["id"]
    await service.work()
    assert (await job(service, id_))["visited"] == 2
    for _ in range(2):
        assert await service.totals() == {"p:stays": 12, "p:there": 11}
        await service.apply()


async def test_a_retry_that_is_pending_brings_no_deleted_counter_back(service: Service) -> None:
    """What it says was counted, deleted and removed: nothing of it counts again."""

    async def count() -> None:
        assert (await service.incr("p:id", b'{"id": "i", "delta": 5}')).status == 202
        body = b'{"counters": {"p:key": 3}}'
        assert (await service.post("/v1/increments", body, Idempotency_Key="k")).status == 202

    await count()
    await service.apply()
    for name in ("p:id", "p:key"):
        await service.ask("DELETE", f"/v1/counters/{name}")
    await service.remove()
    await count()
    assert not (await service.read("p:id"))["exists"]
    await start(service)
    await service.work()
    await service.apply()
    assert await service.totals() == {}


@pytest.mark.parametrize("by_job", [False, True])
async def test_a_delete_holds_though_what_is_pending_sums_to_nothing(service: Service, *, by_job: bool) -> None:
    """Its mark must not go before what it found pending has come."""
    await service.incr("p:a", b'{"delta": 5}')
    await service.incr("p:a", b'{"delta": -5}')
    if by_job:
        await service.post("/v1/jobs", b'{"kind": "delete", "prefix": "p:"}')
        await service.work()
    else:
        await service.ask("DELETE", "/v1/counters/p%3Aa")
    await service.remove()
    assert await service.totals() == {}
    await start(service)
    await service.work()
    await service.apply()
    assert await service.totals() == {}


async def test_a_job_adds_to_what_is_only_in_the_dead_letters(service: Service) -> None:
    """They are pending, and listed."""
    envelope = Envelope("e", {"p:dead": 1})
    dead = with_body(Receipt(envelope.key, StoreMillis(1), DEAD), envelope, "refused", BrokerMillis(0))
    await service.parts.store.apply(Commit((dead,), ()))
    await start(service)
    await service.work()
    assert await service.totals() == {"p:dead": 11}


async def test_a_visit_that_was_cut_off_is_not_repeated_where_it_was_done(service: Service) -> None:
    """Before its record: receipts tell."""
    await counted(service, *(f"p:{number}" for number in range(5)))
    await service.post("/v1/jobs", b'{"kind": "reset", "prefix": "p:", "id": "j"}')
    async with cut_off(service):
        await service.incr("p:3", b'{"delta": 9}')
    assert await service.totals() == {"p:0": 0, "p:1": 0, "p:2": 0, "p:3": 9, "p:4": 0}
    assert (await job(service, "j"))["changed"] == 5


async def grown(service: Service, **numbers: int) -> None:
    """Under the prefix, each of the value 1."""
    await counted(service, *(f"p:{name}" for name in numbers))
    for name, number in numbers.items():
        await service.ask("PUT", f"/v1/counters/p%3A{name}/shards", b'{"shards": %d}' % number)


async def test_counters_are_brought_down_to_so_many_shards(service: Service) -> None:
    await grown(service, a=9, b=1, c=3, d=40)
    await service.ask("DELETE", "/v1/counters/p%3Ad")
    before = await service.totals()
    begun = await service.post("/v1/jobs", b'{"kind": "compact", "prefix": "p:", "shards": 2, "id": "j"}')
    assert begun.status == 202
    await service.work()
    done = await job(service, "j")
    assert done == done | {"kind": "compact", "shards": 2, "state": "done", "visited": 3, "changed": 2, "failed": 0}
    assert "delta" not in done
    assert await service.totals() == before
    assert [(await service.read(f"p:{name}"))["shards"] for name in "abc"] == [2, 1, 2]


async def test_a_compaction_that_was_cut_off_counts_what_it_did(service: Service) -> None:
    await grown(service, a=9, b=3)
    await service.post("/v1/jobs", b'{"kind": "compact", "prefix": "p:", "shards": 1, "id": "j"}')
    async with cut_off(service):
        await service.ask("PUT", "/v1/counters/p%3Ab/shards", b'{"shards": 4}')
    assert (await job(service, "j"))["changed"] == 2
    assert (await service.read("p:b"))["shards"] == 1


async def test_beside_an_ndb_application_nothing_is_compacted(tmp_path: Path) -> None:
    async with running(tmp_path, ndb_writers="yes") as service:
        refused = await service.post("/v1/jobs", b'{"kind": "compact", "prefix": "", "shards": 1, "id": "j"}')
        assert refused.status == 409
        assert "COUNTERSINK_NDB_WRITERS" in refused.json["detail"]
        assert (await service.get("/v1/jobs/j")).status == 404


async def test_an_export_has_a_line_for_each_in_order(service: Service) -> None:
    names = [f"p:{number:05}" for number in range(5_000)]
    await service.post("/v1/increments", orjson.dumps({"counters": dict.fromkeys(names, 3)}))
    await counted(service, "p:\U0001f600", 'p:"', "o")
    await service.incr('p:"', b'{"delta": 40}')
    await service.ask("DELETE", "/v1/counters/p%3A00007")
    begun = await service.post("/v1/jobs", b'{"kind": "export", "prefix": "p:", "id": "j"}')
    assert begun.status == 202
    early = await service.get("/v1/jobs/j/export")
    assert early.status == 409
    await service.work()
    pages = await pages_of(service, "j")
    found = [tuple(orjson.loads(line).values()) for page in pages for line in page.splitlines()]
    expected = dict.fromkeys(names, 3) | {"p:\U0001f600": 1, 'p:"': 42}
    del expected["p:00007"]
    assert found == sorted(expected.items(), key=lambda one: one[0].encode())
    assert len(pages) > 1
    done = await job(service, "j")
    assert (done["visited"], done["changed"]) == (5_001, 0)


async def before(service: Service, id_: str = "j") -> dict[str, int]:
    """What the job took away of each counter, by its result."""
    lines = [orjson.loads(line) for line in b"".join(await pages_of(service, id_)).splitlines()]
    names = [line["name"] for line in lines]
    assert names == sorted(set(names))
    return {line["name"]: line["before"] for line in lines}


@pytest.mark.parametrize("kind", ["reset", "delete"])
async def test_what_a_job_took_away_is_its_result_though_a_worker_was_killed(service: Service, kind: str) -> None:
    """Each counter stands there once, also if it is gone when the page is visited again."""
    names = ["p:a", "p:a+", "p:b c", 'p:"', "p:\u00e9", "p:\U0001f600"]
    await counted(service, *names, "q")
    for _ in range(2):
        await service.ask("PUT", "/v1/counters/p%3Aa", b'{"value": 9007199254740991}')
        await service.post("/v1/jobs", b'{"kind": "add", "prefix": "p:a", "delta": 9007199254740991}')
        await service.work()
    await service.incr("p:b c", b'{"delta": 100}')
    counts = await service.totals()
    await service.post("/v1/jobs", orjson.dumps({"kind": kind, "prefix": "p:", "id": "j"}))
    async with cut_off(service):
        early = await service.get("/v1/jobs/j/export")
        assert early.status == 409
        assert early.json["detail"] == (
            f"this job has no result: it is of kind '{kind}' and running. Only export, reset, delete and expire have"
            " one, once they have ended; an export that failed has none"
        )
        await service.ask("DELETE", "/v1/counters/p%3A%22")
        await service.apply()
        await service.remove()
        await service.incr("p:b c", b'{"delta": 7}')
    assert await before(service) == {name: counts[name] for name in names}
    assert await service.totals() == {"q": 7, "p:b c": 7} | (
        dict.fromkeys(set(names) - {"p:b c", 'p:"'}, 0) if kind == "reset" else {}
    )


async def test_a_result_of_many_counters_has_pages_and_a_stopped_job_tells_what_it_took(service: Service) -> None:
    await service.post("/v1/increments", orjson.dumps({"counters": dict.fromkeys(NEW, 3)}))
    await service.post("/v1/jobs", b'{"kind": "reset", "prefix": "p:", "id": "j"}')
    (lease,) = await service.parts.tasks.pull(1, 0)
    await service._worker.work(lease.task)
    await service.ask("DELETE", "/v1/jobs/j")
    assert await before(service) == dict.fromkeys(NEW[:1_000], 3)
    await service.post("/v1/jobs", b'{"kind": "reset", "prefix": "p:", "id": "k"}')
    service._worker._running.clear()
    await service.work()
    assert await before(service, "k") == dict.fromkeys(NEW[:1_000], 0) | dict.fromkeys(NEW[1_000:], 3)
    assert len(await pages_of(service, "k")) == 2
    assert await before(service) == dict.fromkeys(NEW[:1_000], 3)


async def test_a_result_whose_receipts_expire_is_not_read(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would look complete."""
    await counted(service, "p:a")
    await service.post("/v1/jobs", b'{"kind": "reset", "prefix": "p:", "id": "j"}')
    await service.work()
    standing = await service.parts.jobs.get("j")
    assert standing is not None
    later = asyncio.Future[int]()
    later.set_result(standing.job.until() + 1)
    monkeypatch.setattr(service.parts.store, "now", lambda: later)
    expired = await service.get("/v1/jobs/j/export")
    assert (expired.status, expired.json["detail"]) == (409, "the result of this job has expired")


class Blind(SqliteOverlay):
    """Sees nothing exactly."""

    async def view(self, counters: Sequence[str]) -> Mapping[str, View]:
        return {name: replace(view, exact=False) for name, view in (await super().view(counters)).items()}


@pytest.mark.parametrize("kind", ["add", "reset", "delete", "export"])
async def test_what_can_not_be_read_exactly_is_not_begun(service: Service, kind: str) -> None:
    service.parts.overlay.__class__ = Blind
    body = {"kind": kind, "prefix": "", "id": "j"} | ({"delta": 1} if kind == "add" else {})
    refused = await service.post("/v1/jobs", orjson.dumps(body))
    assert refused.status == 503
    assert "COUNTERSINK_OVERLAY" in refused.json["detail"]
    assert (await service.get("/v1/jobs/j")).status == 404


async def test_what_is_done_is_told_whether_or_not_anything_can_be_read(service: Service) -> None:
    await counted(service, "p:a")
    body = b'{"kind": "reset", "prefix": "p:", "id": "j"}'
    assert (await service.post("/v1/jobs", body)).status == 202
    await service.work()
    service.parts.overlay.__class__ = Blind
    again = await service.post("/v1/jobs", body)
    assert (again.status, again.json["state"], again.json["changed"]) == (200, "done", 1)


async def test_a_job_that_is_stopped_goes_no_further(service: Service) -> None:
    names = [f"p:{number:04}" for number in range(3_000)]
    await service.post("/v1/increments", orjson.dumps({"counters": dict.fromkeys(names, 1)}))
    await service.apply()
    await start(service, id="j")
    (lease,) = await service.parts.tasks.pull(1, 0)
    await service._worker.work(lease.task)
    await service.parts.tasks.ack([lease.token])
    stopped = await service.ask("DELETE", "/v1/jobs/j")
    assert (stopped.status, stopped.json["state"], stopped.json["changed"]) == (200, "failed", 1_000)
    assert "stopped" in stopped.json["reason"]
    service._worker._running.clear()  # it looks again after a while
    await service.work()
    assert sorted((await service.totals()).values()) == [1] * 2_000 + [11] * 1_000
    assert (await service.ask("DELETE", "/v1/jobs/j")).json == stopped.json
    assert (await start(service, id="j")).json == stopped.json


async def exported(service: Service, id_: str) -> None:
    assert (await start(service, kind="export", delta=None, id=id_)).status == 202
    await service.work()
    assert (await job(service, id_))["state"] == "done"


async def test_exports_have_a_limit_and_deleting_one_makes_room(tmp_path: Path) -> None:
    async with running(tmp_path, max_exports=3) as service:
        await counted(service, "p:a")
        for number in range(3):
            await exported(service, f"e{number}")
        for number in range(300):
            refused = await start(service, kind="export", delta=None, id=f"more{number}")
            assert refused.status == 429
        assert "COUNTERSINK_MAX_EXPORTS allows 3 exports, and 3 are kept" in refused.json["detail"]
        assert refused.json["detail"].endswith("until the oldest one expires, in 8 days")
        assert 7 * 86_400 < int(refused.headers["Retry-After"]) <= 8 * 86_400 + 1
        assert (await start(service, id="another-kind")).status == 202
        assert (await start(service, kind="export", delta=None, id="e1")).status == 200
        deleted = await service.ask("DELETE", "/v1/jobs/e1")
        assert (deleted.json["state"], deleted.json["reason"]) == ("failed", "somebody deleted it, and its result")
        assert (await service.get("/v1/jobs/e1/export")).status == 409
        await exported(service, "e3")
        assert (await service.get("/v1/jobs/e3/export")).body == b'{"name":"p:a","value":11}\n'


async def test_exports_have_a_size_and_deleting_one_shrinks_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"p:{'x' * 300}{number:04}" for number in range(2_000)]
    async with running(tmp_path, max_export_bytes=1_000_000) as service:
        await service.post("/v1/increments", orjson.dumps({"counters": dict.fromkeys(names, 1)}))
        await service.apply()
        await exported(service, "first")
        before = await settled_size(service)
        assert (await start(service, kind="export", delta=None, id="second")).status == 202
        await service.work()
        second = await job(service, "second")
        assert second["state"] == "failed"
        assert "job second has failed" in caplog.text
        caplog.clear()
        assert "COUNTERSINK_MAX_EXPORT_BYTES" in second["reason"]
        assert (await service.get("/v1/jobs/second/export")).status == 409
        assert await service.parts.jobs.sweep(StoreMillis(0), 500) > 0  # what it had written
        await service.ask("DELETE", "/v1/jobs/first")
        assert await settled_size(service) < before - 600_000
        await exported(service, "third")
        assert await settled_size(service) > before - 600_000
        while await service.parts.jobs.sweep(StoreMillis(2**60), 500):  # all have expired
            pass
        assert await settled_size(service) < before - 600_000


async def settled_size(service: Service) -> int:
    """The size of the file without its log."""
    (database,) = service.parts._files
    with closing(connect_to(database.path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return database.path.stat().st_size


async def test_an_export_that_is_being_deleted_is_not_read_in_part(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer would look complete."""
    await counted(service, "p:a")
    await exported(service, "e")
    chunks = SqliteJobs.chunks

    async def meanwhile(self: SqliteJobs, job: str, after: str, limit: int) -> Sequence[tuple[str, bytes]]:
        await self.discard(job, 1, "deleted", 10)
        return await chunks(self, job, after, limit)

    monkeypatch.setattr(SqliteJobs, "chunks", meanwhile)
    assert (await service.get("/v1/jobs/e/export")).status == 409


async def test_a_job_that_is_done_can_not_be_stopped_and_one_that_is_not_there_is_404(service: Service) -> None:
    assert (await service.get("/v1/jobs")).json == {"jobs": []}
    await start(service, id="j")
    await service.work()
    assert (await service.ask("DELETE", "/v1/jobs/j")).json["state"] == "done"
    for method, path, status in (
        *(("DELETE", "none", 404), ("DELETE", "a%2Fb", 422), ("DELETE", "j/export", 405), ("DELETE", "j?now=1", 422)),
        *(("GET", "none", 404), ("GET", "a%2Fb", 422), ("GET", "", 422), ("PUT", "none", 405)),
        *(("GET", "j/export", 409), ("GET", "none/export", 404), ("GET", "j/import", 404)),
        ("GET", "j/export?page_token=%2B", 422),
    ):
        assert (await service.ask(method, f"/v1/jobs/{path}")).status == status, (method, path)


async def test_a_publish_that_was_lost_is_mended_by_asking_again(service: Service) -> None:
    await counted(service, "p:a")
    await start(service, id="j")
    await service.parts.tasks.ack([lease.token for lease in await service.parts.tasks.pull(10, 0)])
    await service.work()
    assert (await job(service, "j"))["state"] == RUNNING
    await start(service, id="j")
    await service.work()
    assert (await job(service, "j"))["state"] == "done"
    assert await service.totals() == {"p:a": 11}


async def test_running_flushers_do_jobs(tmp_path: Path) -> None:
    async with running(tmp_path) as service:
        await counted(service, *(f"p:{number}" for number in range(30)))
        settings = Settings(broker=f"sqlite:///{tmp_path / 'countersink.db'}", drain_timeout=1.0)
        stop = Stop()
        flushing = asyncio.create_task(_flush(service.parts, settings, stop))
        id_ = (await start(service)).json["id"]
        async with asyncio.timeout(60):
            while (await job(service, id_))["state"] == RUNNING:
                await asyncio.sleep(0.01)
        assert (await job(service, id_))["changed"] == 30
        stop.set()
        await flushing


def age(folder: Path, days: int, *names: str) -> None:
    """What was applied of these counters was applied so many days earlier."""
    with closing(sqlite3.connect(folder / "countersink.db")) as db, db:
        for name in names:
            db.execute("UPDATE shards SET updated = updated - ? WHERE counter = ?", (days * 86_400_000, name))


async def test_only_what_was_not_changed_for_long_expires(service: Service, tmp_path: Path) -> None:
    await counted(service, "p:new", "p:old", "p:counted", "p:younger", "q:old")
    age(tmp_path, 400, "p:old", "p:counted", "q:old")
    age(tmp_path, 399, "p:younger")
    await service.incr("p:counted", b'{"delta": 7}')
    await service.incr("p:pending")
    before = await service.totals()
    begun = await service.post("/v1/jobs", b'{"kind": "expire", "prefix": "p:", "days": 400, "id": "j"}')
    assert (begun.status, begun.json["days"]) == (202, 400)
    await service.work()
    done = await job(service, "j")
    assert done == done | {"kind": "expire", "days": 400, "state": "done", "visited": 1, "changed": 1, "failed": 0}
    del before["p:old"]
    assert await service.totals() == before
    await service.apply()
    assert await service.totals() == before


async def test_what_is_counted_while_it_expires_is_kept(service: Service, tmp_path: Path) -> None:
    """Each counter is deleted with what it had, or left alone; and each increment that comes meanwhile counts once."""
    names = [f"p:{number:03}" for number in range(100)]
    await counted(service, *names)
    counts = await service.totals()
    age(tmp_path, 500, *names)
    await service.post("/v1/jobs", b'{"kind": "expire", "prefix": "p:", "days": 400, "id": "j"}')

    async def count() -> None:
        for name in names[::3]:
            await service.incr(name, b'{"delta": 100000}')
            await service.apply()

    await asyncio.gather(service.work(), count())
    await service.apply()
    totals, taken = await service.totals(), await before(service)
    assert set(names) - set(names[::3]) <= set(taken)
    for name in names:
        more = 100_000 if name in names[::3] else 0
        assert totals.get(name, 0) + taken.get(name, 0) == counts[name] + more
        assert taken.get(name, counts[name]) in {counts[name], counts[name] + more}
    assert (await job(service, "j"))["failed"] == 0
