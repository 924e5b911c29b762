"""Thousands of requests that wait with ?wait=applied: they cost little, are limited, and end with their clients."""

import asyncio
import resource
import socket
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

import pytest

from shared.model.errors import DamagedError, TransientError
from shared.model.words import Receipts
from tests.http.both_ways import connected, poll, post
from tests.http.faults import failing
from tests.http.service import Service, running

WAITS: Final = post(name=b"c?wait=applied&timeout=60")
MANY: Final = 2_400
AT_ONCE: Final = 200
"""Connections that are opened before the server gets a turn."""
FREEZE: Final = 1.0
"""Seconds of the event loop's processor time within which another client is served. It was 6 and more once."""


@pytest.fixture
def open_files() -> Iterator[None]:
    """Each connection takes two files of this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * MANY + 1_000
    if before[1] < needed:
        pytest.skip(f"{needed} open files are needed, {before[1]} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(needed, before[0]), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def _flood(service: Service, count: int) -> list[socket.socket]:
    """So many clients that wait, without a task for each in this process."""
    clients = []
    for number in range(count):
        clients.append(client := socket.create_connection(service.address))
        client.sendall(WAITS)
        if number % AT_ONCE == 0:
            await asyncio.sleep(0.01)
    await poll(lambda: service.ingest.waits.places.held == count)
    return clients


async def _longest(service: Service, seconds: float) -> float:
    """The most work that the event loop has done before another client had its answer."""
    loop = asyncio.get_running_loop()
    longest, until = 0.0, loop.time() + seconds
    async with connected(service) as client:
        while loop.time() < until:
            begun = time.thread_time()
            await client.ask(post(name=b"polite"))
            longest = max(longest, time.thread_time() - begun)
            await asyncio.sleep(0.01)
    return longest


@pytest.mark.usefixtures("open_files")
async def test_thousands_that_wait_leave_another_client_in_peace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as service:
        store, calls = service.parts.store, 0
        receipts = store.receipts

        async def counted(keys: Collection[str]) -> Receipts:
            nonlocal calls
            calls += 1
            return await receipts(keys)

        monkeypatch.setattr(store, "receipts", counted)
        clients = await _flood(service, MANY)
        assert await _longest(service, 2.0) < FREEZE
        assert calls == 0  # the overlay knows that all of them are pending
        polite = asyncio.create_task(_longest(service, 2.0))
        await service.apply()
        await poll(lambda: not service.ingest.waits.places.held)
        assert calls <= 20
        assert await polite < FREEZE
        for client in clients:
            assert client.recv(17) == b"HTTP/1.1 200 OK\r\n"
            client.close()
        await service.apply()
        assert (await service.totals())["c"] == MANY


@pytest.mark.parametrize("reset", [True, False])
async def test_a_client_that_hangs_up_frees_its_place_at_once(service: Service, reset: bool) -> None:
    clients = await _flood(service, 20)
    for client in clients[5:]:
        if reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        client.close()
    await poll(lambda: service.ingest.waits.places.held == 5)
    for client in clients[:5]:
        client.close()
    await poll(lambda: not service.ingest.waits.places.held)
    assert service.ingest.waits._watcher is None
    assert await service.value("c") == 20


async def test_a_client_has_a_share_of_the_places_and_others_the_rest(service: Service) -> None:
    service.ingest.waits.places.limit = 8
    clients = await _flood(service, 4)
    answer = await service.incr("c", None, "?wait=applied")
    assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
    assert "wait=applied" in answer.json["detail"]
    answer = await service.post("/v1/increments?wait=applied", b'{"counters": {"c": 1}}')
    assert answer.status == 429
    async with asyncio.TaskGroup() as tasks:
        others = [
            tasks.create_task(service.incr("d", None, "?wait=applied&timeout=60", client=1 + number))
            for number in range(4)
        ]
        await poll(lambda: service.ingest.waits.places.held == 8)
        answer = await service.incr("d", None, "?wait=applied", client=5)
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        assert (await service.incr("c")).status == 202
        await service.apply()
    assert {other.result().status for other in others} == {200}
    for client in clients:
        client.close()
    assert await service.totals() == {"c": 5, "d": 4}


async def test_while_the_store_cannot_be_asked_requests_wait_on(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, away = service.parts.store, 3
    receipts = store.receipts

    async def flaky(keys: Collection[str]) -> Receipts:
        nonlocal away
        if away:
            away -= 1
            raise TransientError("away")
        return await receipts(keys)

    monkeypatch.setattr(store, "receipts", flaky)
    async with service.applying():
        answer = await service.incr("c", None, "?wait=applied&timeout=60")
    assert (answer.status, answer.json["value"], away) == (200, 1, 0)


async def test_an_error_that_stays_reaches_those_that_wait(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(service.parts.store, "receipts", failing(DamagedError("damaged")))
        async with service.applying():
            answer = await service.incr("c", None, "?wait=applied&timeout=60")
            assert (answer.status, service.ingest.waits.places.held) == (503, 0)
    async with service.applying():
        assert (await service.incr("c", None, "?wait=applied&timeout=60")).status == 200


async def test_a_service_that_stops_answers_those_that_wait(tmp_path: Path) -> None:
    """Their increments are accepted, and no flusher may run that would apply them."""
    async with running(tmp_path, drain_timeout=2.0) as service, connected(service) as client:
        client.writer.write(WAITS)
        await poll(service.ingest.waits.any)
        await service.ingest.stop()
        await client.until(lambda: client.closed)
        assert client.seen.startswith(b"HTTP/1.1 202 ")
        assert client.answers() == 1
