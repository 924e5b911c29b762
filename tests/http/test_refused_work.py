"""Work that is refused: it costs who sends it, and keeps nobody else waiting."""

import asyncio
import gzip
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from ingest.http import bodies
from ingest.http.bodies import MOST_TENANTS, PER_ITEM, RATE, RefusedWork
from ingest.parsing import parse
from shared.model.errors import ShareError
from shared.model.words import Deltas
from tests.http.service import Service, running

LIMIT: Final = 400_000


@pytest.fixture
async def strict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Service]:
    """A sender has hardly anything to spend."""
    monkeypatch.setattr(bodies, "RATE", 1)
    async with running(tmp_path, max_body_bytes=LIMIT) as it:
        yield it


def packed(size: int, begin: bytes = b"[", end: bytes = b"]") -> bytes:
    return gzip.compress(begin + b"1," * ((size - len(begin + end)) // 2 - 1) + b"1" + end)


async def test_a_sender_whose_bodies_are_refused_must_slow_down_and_others_are_served(strict: Service) -> None:
    bad = packed(99_000)
    statuses = []
    for _ in range(30):
        answer = await strict.post("/v1/increments", bad, client=1, Content_Encoding="gzip")
        statuses.append(answer.status)
    assert statuses == [400] * statuses.count(400) + [429] * statuses.count(429)
    assert 1 <= statuses.count(400) <= 8
    assert int(answer.headers["Retry-After"]) >= 1
    good = gzip.compress(b'[{"counter":"a","delta":1}]')
    assert (await strict.post("/v1/increments", good, client=1, Content_Encoding="gzip")).status == 429
    assert (await strict.incr("a", b'{"delta": 1}', client=1)).status == 202
    assert (await strict.post("/v1/increments", b'{"counters":{"a":1}}', client=1)).status == 202
    assert (await strict.post("/v1/increments", good, client=2, Content_Encoding="gzip")).status == 202
    assert await strict.totals() == {"a": 3}


async def test_rejected_items_of_a_batch_that_counts_are_refused_work_too(strict: Service) -> None:
    bad = packed(99_000, b'[{"counter":"a"},')
    statuses = [(await strict.post("/v1/increments", bad, Content_Encoding="gzip")).status for _ in range(10)]
    assert statuses == [202] * statuses.count(202) + [429] * statuses.count(429)
    assert await strict.totals() == {"a": statuses.count(202)}
    assert 1 <= statuses.count(202) <= 4


async def test_good_bodies_are_not_charged(strict: Service) -> None:
    good = gzip.compress(b"[" + b",".join([b'{"counter":"a","delta":1}'] * 3_000) + b"]")
    for _ in range(20):
        assert (await strict.post("/v1/increments", good, Content_Encoding="gzip")).status == 202
    assert strict.ingest.bodies._refused._debts == {}


@pytest.mark.parametrize(("size", "status"), [(99_000, 202), (101_000, 413), (350_000, 413)])
async def test_a_body_may_become_only_so_many_times_as_large(tmp_path: Path, size: int, status: int) -> None:
    """Beyond a quarter of the largest body, which increments of one counter may reach."""
    async with running(tmp_path, max_body_bytes=LIMIT) as service:
        body = gzip.compress(b'[{"counter":"a"}' + b" " * size + b"]")
        assert len(body) < 1_000
        answer = await service.post("/v1/increments", body, Content_Encoding="gzip")
        assert answer.status == status
        varied = b",".join([b'{"counter":"%d"}' % (7919 * number % 1_000_003) for number in range(size // 20)])
        answer = await service.post("/v1/increments", gzip.compress(b"[%b]" % varied), Content_Encoding="gzip")
        assert answer.status == 202


async def test_compressed_bodies_take_room_for_what_they_may_become(tmp_path: Path) -> None:
    """They are kept apart while they wait for their turn, so one client cannot fill the queue with small ones."""
    async with running(tmp_path, max_body_bytes=LIMIT) as service:
        body = gzip.compress(b'[{"counter":"a"}' + b" " * 99_000 + b"]")
        lock = service.ingest.bodies._lock
        async with lock.of("other"), asyncio.TaskGroup() as tasks:
            sent = [
                tasks.create_task(service.post("/v1/increments", body, client=1, Content_Encoding="gzip"))
                for _ in range(100)
            ]
            while sum(one.done() for one in sent) < 80:
                await asyncio.sleep(0.01)
            assert {one.result().status for one in sent if one.done()} == {429}
            assert 1_500_000 <= service.ingest.bodies.held <= 8 * LIMIT
            lock._pass_on()
        assert {one.result().status for one in sent} == {202, 429}
        assert service.ingest.bodies.held == 0


async def test_what_may_take_long_is_parsed_off_the_loop(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, threads, items = threading.current_thread(), list[threading.Thread](), parse._items

    def noted(some: list[Any], allowed: Deltas) -> parse.Parsed:
        threads.append(threading.current_thread())
        return items(some, allowed)

    monkeypatch.setattr(parse, "_items", noted)
    for body, off in (
        (b"[" + b"1," * 2_100 + b"1]", True),
        ('{"counter":"é"}\n'.encode() * 300, True),
        ('[{"counter":"é","id":"x"}'.encode() + b" " * 5_000 + b"]", True),
        (b'[{"counter":"a","delta":1}' + b" " * 70_000 + b"]", True),
        (b'[{"counter":"a","delta":1}' + b" " * 60_000 + b"]", False),
        (b'[{"counter":"a","id":"x"}' + b" " * 60_000 + b"]", False),
        (b'{"counter":"a"}\n' * 4_000, False),
        ('[{"counter":"é","id":"x"}'.encode() + b" " * 3_000 + b"]", False),
    ):
        for packed in (False, True):
            headers: dict[str, Any] = {"Content_Encoding": "gzip"} if packed else {}
            threads.clear()
            answer = await service.post("/v1/increments", gzip.compress(body) if packed else body, **headers)
            assert answer.status in {202, 400}
            assert all((one is not loop) == off for one in threads), (body[:40], packed)
            assert threads or body.isascii()


def test_a_debt_shrinks_with_time_and_the_oldest_is_forgotten() -> None:
    now = 0.0
    work = RefusedWork(RATE, lambda: now)
    work.charge("a", RATE)
    work.check("a")
    work.charge("a", RATE, 10)
    with pytest.raises(ShareError) as caught:
        work.check("a")
    assert caught.value.retry_after == pytest.approx(1 + 10 * PER_ITEM / RATE)
    work.check("b")
    now = 1.1
    work.check("a")
    for number in range(MOST_TENANTS - 1):
        work.charge(f"t{number}", 2_000)
    work.charge("a", 2_000)
    work.charge("z", 2_000)
    assert len(work._debts) == MOST_TENANTS
    assert [*work._debts][-2:] == ["a", "z"]
    assert "t0" not in work._debts


async def test_bad_bodies_keep_nobody_waiting(service: Service) -> None:
    """Many at once, each as bad as can be."""
    bad = gzip.compress(b'{"counter":"a"}\n' + b"{\n" * 90_000)
    done = asyncio.Event()

    async def flood() -> None:
        while not done.is_set():
            await service.post("/v1/increments", bad, client=1, Content_Encoding="gzip")
            await asyncio.sleep(0.01)

    longest = 0.0
    async with asyncio.TaskGroup() as tasks:
        for _ in range(8):
            tasks.create_task(flood())
        for _ in range(40):
            begun = time.thread_time()
            assert (await service.incr("polite")).status == 202
            longest = max(longest, time.thread_time() - begun)
        done.set()
    assert longest < 1.0
