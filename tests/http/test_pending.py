"""What is pending costs a bounded part of the memory, keeps nobody waiting, and is shared by those who send it."""

import asyncio
import gc
import time
import tracemalloc
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from shared.counters.reader import AllNames
from shared.model.errors import OverloadedError
from shared.model.words import Envelope, Increment
from shared.wire.codec import encode
from tests.http.service import Service, running

TIMES: Final = 8
Kind = Callable[[int], Envelope]


def names(number: int) -> Envelope:
    return Envelope(f"e{number}", {f"{1_000 * number + item}": 1 for item in range(1_000)}, created=1)


def ids(number: int) -> Envelope:
    return Envelope(f"e{number}", {}, keyed=tuple([Increment("c", 1, f"{number}.{item}") for item in range(1_000)]))


def ids_of_names(number: int) -> Envelope:
    return Envelope(f"e{number}", {}, keyed=tuple([Increment(f"{number}.{item}", 1, "x") for item in range(1_000)]))


def singles(number: int) -> Envelope:
    return Envelope(f"e{number}", {f"{number}": 1}, created=1)


def hot(number: int) -> Envelope:
    return Envelope(f"e{number}", {"c": 1}, created=1)


async def fill(service: Service, kind: Kind) -> int:
    """Publish until nothing more is taken. How many envelopes were."""
    for number in count():
        try:
            await service.parts.publisher.publish([encode(kind(20 * number + item)) for item in range(20)])
        except OverloadedError:
            return 20 * number
    raise AssertionError


@pytest.mark.parametrize(
    ("kind", "limit"),
    [(names, 1_000_000), (ids, 1_000_000), (ids_of_names, 1_000_000), (singles, 500_000), (hot, 500_000)],
)
async def test_what_is_pending_takes_at_most_8_times_the_setting(tmp_path: Path, kind: Kind, limit: int) -> None:
    async with running(tmp_path, max_pending_bytes=limit) as service:
        assert await fill(service, kind) >= 20
        gc.collect()
        tracemalloc.start()
        try:
            await service.read("c")
            assert (await service.get("/v1/counters?limit=1")).status == 200
            gc.collect()
            now, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert 0 < now < TIMES * limit
        await service.apply()
        assert await service.parts.overlay.names("") == []
        await fill(service, kind)


@pytest.mark.parametrize(("kind", "limit"), [(names, 4_000_000), (ids, 4_000_000), (hot, 2_000_000)])
async def test_reads_and_lists_of_much_that_is_pending_let_others_have_a_turn(
    tmp_path: Path, kind: Kind, limit: int
) -> None:
    """Each step of the event loop is short: what it holds up is a part of what the whole takes."""
    async with running(tmp_path, max_pending_bytes=limit) as service:
        await fill(service, kind)
        turns, done = 0, False

        async def others() -> None:
            nonlocal turns
            while not done:
                turns += 1
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(others())
            await service.parts.overlay.view(["c"])
            assert turns >= 20
            turns = 0
            listed = await service.parts.overlay.names("", "", 2)
            assert turns > (20 if kind is names else 0)
            assert len(listed) == (2 if kind is names else 1)
            turns = 0
            (reading,) = await service.ingest.reader.read(["c"], 0)
            assert turns > (10 if kind is ids else 0)
            assert reading.exact
            done = True


async def test_a_page_of_names_does_not_take_longer_for_all_that_is_pending(tmp_path: Path) -> None:
    async with running(tmp_path, max_pending_bytes=2_000_000) as service:
        listed = AllNames(service.parts.store, service.parts.overlay)
        await fill(service, names)
        first, _ = await listed.under([""], 2)
        begun = time.thread_time()
        for _ in range(100):
            page, _ = await listed.under([""], 2, first[0])
        assert (page[:1], len(page) > 1) == (["1"], True)
        assert time.thread_time() - begun < 1.0


LIMIT: Final = 2**20


async def many_ids(service: Service, number: int) -> int:
    body = b"[%b]" % b",".join([b'{"counter":"f","id":"%d.%d"}' % (number, item) for item in range(200)])
    return (await service.post("/v1/increments", body, client=1)).status


async def many_names(service: Service, number: int) -> int:
    body = b'{"counters":{%b}}' % b",".join([b'"%d.%d":1' % (number, item) for item in range(3_000)])
    return (await service.post("/v1/increments", body, client=1)).status


async def keyed(service: Service, number: int) -> int:
    body = b'{"counters":{%b}}' % b",".join([b'"%d.%d":1' % (number, item) for item in range(500)])
    return (await service.post("/v1/increments", body, client=1, Idempotency_Key=f"{number}")).status


async def unread(service: Service, number: int) -> int:
    return (await service.incr(f"{number:0390}", b'{"id": "%0990d"}' % number, "?ack=none", client=1)).status


@pytest.mark.parametrize("flood", [many_ids, many_names, keyed, unread])
async def test_a_client_that_floods_leaves_room_for_others(tmp_path: Path, flood: object) -> None:
    async with running(tmp_path, max_pending_bytes=LIMIT) as service:
        assert callable(flood)
        publisher = service.parts.publisher
        for _ in range(2):
            number, status = 0, 202
            while status == 202:
                number += 1
                status = await flood(service, number)
                assert number < 3_000
            assert status == 429
            for number in range(50):
                assert (await service.incr(f"polite{number % 3}", client=2)).status == 202
                assert (await service.incr("polite", b'{"id": "%d"}' % number, client=2)).status == 202
                await flood(service, 10_000 + number)
            pending, most = publisher.pending()  # type: ignore[attr-defined] # it is of SQLite here
            assert most // 3 < pending < most
            answer = await service.post("/v1/increments", b'{"counters":{"a":1}}', client=1, Idempotency_Key="z")
            if answer.status == 429:
                assert "COUNTERSINK_MAX_PENDING_BYTES" in answer.json["detail"]
            await service.apply()
            assert await flood(service, 20_000) in {202, 200}
            await service.apply()


async def test_what_is_applied_no_longer_counts_against_its_sender(tmp_path: Path) -> None:
    async with running(tmp_path, max_pending_bytes=LIMIT) as service:
        for number in range(40):
            if await many_ids(service, number) == 429:
                await service.apply()
                assert await many_ids(service, number) == 202
        shares = service.ingest.publishing._shares
        assert shares is not None
        await service.apply()
        assert (await service.incr("c")).status == 202
        assert shares._published.held == sum(shares._published.holders.values()) < LIMIT // 8
