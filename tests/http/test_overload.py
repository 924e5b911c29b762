"""Overload and full disks: requests are refused early, refused increments never count, and service resumes."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from shared.model.errors import DoubtfulError, OverloadedError, StorageFullError, TransientError
from shared.sqlite.store import SqliteStore
from tests.http.faults import Gate
from tests.http.service import Service, running

TINY = 1_024


async def _fill(service: Service) -> int:
    """Until it is refused; how many were accepted."""
    accepted = 0
    while (answer := await service.incr("c")).status == 202:
        accepted += 1
        assert accepted < 100
    assert answer.status == 503
    assert "COUNTERSINK_MAX_PENDING_BYTES" in answer.json["detail"]
    return accepted


async def test_pending_bytes_beyond_the_limit_are_503_and_a_flusher_helps(tmp_path: Path) -> None:
    async with running(tmp_path, max_pending_bytes=TINY) as service:
        accepted = 0
        for _ in range(3):
            more = await _fill(service)
            assert more > 0
            accepted += more
            for target, body in (
                ("/v1/counters/c", None),
                ("/v1/counters/c?wait=applied", b'{"id": "x"}'),
                ("/v1/increments", b'[{"counter": "c"}, {"counter": "d", "id": "x"}]'),
            ):
                assert (await service.post(target, body)).status == 503
            assert (await service.get("/healthz")).status == 200
            assert await service.totals() == {"c": accepted}
            await service.apply()
            assert await service.totals() == {"c": accepted}
            assert (await service.get("/readyz")).status == 200


async def test_an_id_refused_for_overload_counts_when_sent_again(tmp_path: Path) -> None:
    async with running(tmp_path, max_pending_bytes=TINY) as service:
        accepted = await _fill(service)
        cases: tuple[tuple[bytes | None, dict[str, Any]], ...] = (
            (b'{"id": "x"}', {}),
            (None, {"Idempotency_Key": "y"}),
        )
        for body, headers in cases:
            assert (await service.incr("c", body, **headers)).status == 503
        assert (await service.post("/v1/increments", b'{"counters": {"c": 1}}', Idempotency_Key="k")).status == 503
        await service.apply()
        for _ in range(2):
            assert (await service.incr("c", b'{"id": "x"}')).status == 202
            assert (await service.post("/v1/increments", b'{"counters": {"c": 1}}', Idempotency_Key="k")).status == 202
            await service.apply()
        assert await service.value("c") == accepted + 2


async def test_an_envelope_larger_than_the_limit_is_taken_when_nothing_is_pending(tmp_path: Path) -> None:
    async with running(tmp_path, max_pending_bytes=TINY) as service:
        body = b'{"counters": {%s}}' % b", ".join(b'"c%03d": 1' % number for number in range(200))
        assert (await service.post("/v1/increments", body)).status == 202
        assert (await service.post("/v1/increments", body)).status == 503
        assert sum((await service.totals()).values()) == 200


@pytest.mark.parametrize(
    ("error", "status", "retry_after"),
    [
        (StorageFullError("the disk of x is full: free some space"), 507, "10"),
        (TransientError("the broker does not answer"), 503, "1"),
        (OverloadedError("too much waits to be applied", retry_after=2.5), 503, "3"),
        (DoubtfulError(OverloadedError("the spool has all that is allowed", retry_after=2.5)), 503, "3"),
        (DoubtfulError(StorageFullError("the disk of x is full: free some space")), 507, "10"),
    ],
)
async def test_a_publish_that_failed_is_said_and_not_counted(
    unharmed: Service, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, retry_after: str
) -> None:
    gate = Gate(unharmed, monkeypatch)
    gate.open.set()
    gate.error = error
    for target, body in (
        ("/v1/counters/c", None),
        ("/v1/counters/c?wait=applied", None),
        ("/v1/increments", b'[{"counter": "c"}, {"counter": "c", "id": "x"}]'),
    ):
        answer = await unharmed.post(target, body)
        assert (answer.status, answer.headers["Retry-After"]) == (status, retry_after)
        assert answer.json["detail"] == str(error)
    assert (await unharmed.get("/readyz")).status == status
    assert (await unharmed.incr("c", None, "?ack=none")).json["durable"] is False  # no promise, and not kept
    gate.error = None
    assert (await unharmed.get("/readyz")).status == 200


@pytest.mark.parametrize("headers", [{}, {"TE": "x"}], ids=["fast path", "aiohttp"])
async def test_what_waits_and_what_is_on_its_way_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, headers: dict[str, Any]
) -> None:
    """One client gets half of it, and a second one a part of the rest; beyond all of it it is 503 to anybody."""
    async with running(tmp_path, max_waiting=8) as service:
        gate = Gate(service, monkeypatch)
        statuses: list[list[int]] = [[], []]
        answered = asyncio.Semaphore(0)

        async def one(client: int, number: int) -> None:
            answer = await service.incr(f"c{client}-{number}", client=client, **headers)
            statuses[client].append(answer.status)
            answered.release()

        async def refused(count: int) -> None:
            for _ in range(count):
                await answered.acquire()

        async with asyncio.TaskGroup() as tasks:
            for number in range(20):
                tasks.create_task(one(0, number))
            await refused(16)
            for number in range(20):
                tasks.create_task(one(1, number))
            await refused(18)
            assert service.ingest.publishing.admission.held == 6
            batch = await service.post("/v1/increments", b'{"counters": {"a": 9, "b": 1, "c": 1}}')
            gate.open.set()
        assert batch.status == 503
        assert [sorted(some) for some in statuses] == [[202] * 4 + [429] * 16, [202] * 2 + [429] * 18]
        assert sum((await service.totals()).values()) == 6
        assert (await service.incr("c")).status == 202
        assert service.ingest.publishing.admission.held == 0


async def test_a_batch_under_a_key_is_taken_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone it gets in, however much it is; and of what is refused beside it nothing counts, with an id or without."""
    async with running(tmp_path, max_waiting=100) as service:
        gate = Gate(service, monkeypatch)

        def body(first: int) -> bytes:
            items = (b'{"counter": "keyed", "id": "%d"}' % number for number in range(first, first + 60))
            return b'[{"counter": "plain"}, %b]' % b", ".join(items)

        async with asyncio.TaskGroup() as tasks:
            alone = tasks.create_task(service.post("/v1/increments", body(0), Idempotency_Key="k1"))
            await gate.reached.wait()
            assert service.ingest.publishing.admission.held == 61, "each of them once"
            refused = await service.post("/v1/increments", body(60), Idempotency_Key="k2")
            gate.open.set()
        assert (alone.result().status, refused.status) == (202, 503)
        assert await service.totals() == {"plain": 1, "keyed": 60}
        assert (await service.post("/v1/increments", body(60), Idempotency_Key="k2")).status == 202
        assert await service.totals() == {"plain": 2, "keyed": 120}
        assert service.ingest.publishing.admission.held == 0


async def test_a_body_that_can_never_be_taken_is_413_also_while_something_waits(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(service, monkeypatch)
    head = b"Host: h\r\nContent-Length: 60000000\r\nConnection: close\r\n\r\n"
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(service.incr("c", client=1))
        await gate.reached.wait()
        easy = service.ingest.publishing.admission.easy
        for path in (b"counters/c", b"increments"):
            answer = await service.raw(b"POST /v1/%b HTTP/1.1\r\n" % path + head)
            assert answer.status == 413
            assert "Retry-After" not in answer.headers
        assert service.ingest.publishing.admission.easy == easy > 0, "nobody is counted for its sake"
        gate.open.set()


async def test_a_full_disk_is_507_and_reads_go_on(tmp_path: Path) -> None:
    async with running(tmp_path) as service:
        assert (await service.incr("there", b'{"delta": 7}')).status == 202
        assert isinstance(service.parts.store, SqliteStore)
        database = service.parts.store.database

        def limit(pages: int) -> Any:
            return lambda db: db.execute(f"PRAGMA max_page_count = {pages}").fetchone()

        def used(db: sqlite3.Connection) -> int:
            (pages,) = db.execute("PRAGMA page_count").fetchone()
            return int(pages)

        await database.write(limit(await database.write(used)))
        large = b'{"counters": {%s}}' % b", ".join(b'"%0200d": 1' % number for number in range(900))
        for headers in (dict[str, Any](), {"Idempotency_Key": "k"}):
            answer = await service.post("/v1/increments", large, **headers)
            assert answer.status == 507
            assert "full" in answer.json["detail"]
        assert await service.totals() == {"there": 7}
        await database.write(limit(2**30))
        answer = await service.post("/v1/increments", large, Idempotency_Key="k")
        assert (answer.status, answer.json["accepted"]) == (202, 900)
        await service.apply()
        assert sum((await service.totals()).values()) == 907
