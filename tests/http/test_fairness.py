"""Floods, and a broker that is slow: whoever asks for little is served in time, and nothing is lost or left behind."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import orjson
import pytest

from ingest.api.counters import READS, ReadRoutes
from ingest.api.pages import ServiceRoutes
from ingest.api.receipts import MOST_IN_RECEIPT
from ingest.parsing.events import MOST_EVENTS
from ingest.parsing.parse import MOST_IN_BATCH
from ingest.service import Ingest
from shared.config.lists import rules_of
from shared.http.shares import FairLock
from shared.model.words import Message
from shared.ports.broker import Check
from tests.http.answer import Answer
from tests.http.both_ways import poll
from tests.http.service import Service, running

SLOW: Final = 0.1
"""Seconds of a publish."""
POLITE: Final = 10
"""Increments that the other client sends, one after the other."""
MOST_FLIGHTS: Final = 10
"""Publishes within which each of them must be answered. Behind a client that may fill the row it would be told 503."""
ROOM: Final = 100


def slow_down(service: Service, monkeypatch: pytest.MonkeyPatch) -> list[Check]:
    """Returns a list that grows with each publish."""
    publish, begun = service.parts.publisher.publish, list[Check]()

    async def slowly(messages: Sequence[Message], check: Check) -> None:
        begun.append(check)
        await asyncio.sleep(SLOW)
        await publish(messages, check)

    monkeypatch.setattr(service.parts.publisher, "publish", slowly)
    return begun


Flood = Callable[[Service, int, int], Awaitable[Answer]]
"""One request of a flood, by its number and its client."""


async def ids(service: Service, number: int, client: int) -> Answer:
    return await service.incr("hot", b'{"id": "%d"}' % number, client=client)


async def batches(service: Service, number: int, client: int) -> Answer:
    body = b"[%b]" % b",".join(b'{"counter":"f%d.%d"}' % (number, item) for item in range(20))
    return await service.post("/v1/increments", body, client=client)


async def by_aiohttp(service: Service, number: int, client: int) -> Answer:
    """Batches with a key. The fast path leaves a request with the header TE to aiohttp."""
    body, key = b'{"counters":{"k":1}}', f"k{number}"
    return await service.post("/v1/increments", body, client=client, Idempotency_Key=key, TE="x")


async def unread(service: Service, number: int, client: int) -> Answer:
    """Nobody waits for the end of these, so that nothing holds the client back."""
    return await service.incr(f"u{number}", None, "?ack=none", client=client)


@pytest.mark.parametrize("flood", [ids, by_aiohttp, batches, unread])
async def test_a_client_that_floods_does_not_starve_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flood: Flood
) -> None:
    async with running(tmp_path, max_waiting=ROOM) as service:
        publishes = slow_down(service, monkeypatch)
        done = asyncio.Event()
        seen: list[Answer] = []
        admission = service.ingest.publishing.admission

        async def flooder(first: int) -> None:
            number = first
            while not done.is_set():
                seen.append(await flood(service, number, 1))
                assert admission.held <= ROOM
                number += 1_000
                await asyncio.sleep(SLOW / 2)  # all of this is one process

        flights: list[int] = []
        async with asyncio.TaskGroup() as tasks:
            for first in range(80):
                tasks.create_task(flooder(first))
            await poll(lambda: any(answer.status == 429 for answer in seen))
            for _ in range(POLITE):
                before = len(publishes)
                answer = await service.incr("polite")
                flights.append(len(publishes) - before)
                assert answer.status == 202, answer
            done.set()
        assert max(flights) <= MOST_FLIGHTS, flights
        assert {answer.status for answer in seen} == {202, 429}
        await poll(lambda: not admission.held)
        assert (admission._tenants.holders, admission._counters.holders) == ({}, {})
        accepted = sum(answer.json.get("accepted", 0) for answer in seen)
        assert sum((await service.totals()).values()) == POLITE + accepted


async def test_a_counter_that_everybody_floods_leaves_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, max_waiting=40) as service:
        slow_down(service, monkeypatch)

        async def hot(number: int) -> tuple[int, str]:
            answer = await service.incr("hot", b'{"id": "%d"}' % number, client=number % 9)
            return answer.status, answer.json.get("detail", "")

        async with asyncio.TaskGroup() as tasks:
            floods = [tasks.create_task(hot(number)) for number in range(36)]
            while not any(flood.done() for flood in floods):
                await asyncio.sleep(0)
            cold = tasks.create_task(service.incr("cold", client=3))
        assert cold.result().status == 202
        refused = [detail for status, detail in (flood.result() for flood in floods) if status == 429]
        assert refused
        assert all("the counter 'hot'" in detail for detail in refused)


LIMIT: Final = 500_000


async def test_large_bodies_of_one_client_leave_room_and_turns_for_anothers(tmp_path: Path) -> None:
    async with running(tmp_path, max_body_bytes=LIMIT) as service:
        bodies = service.ingest.bodies
        most = 0

        def large(number: int) -> bytes:
            return b'[{"counter":"c%d","delta":1}%b]' % (number, b" " * (LIMIT - 100))

        async def send(number: int, client: int) -> int:
            nonlocal most
            answer = await service.post("/v1/increments", large(number), client=client)
            most = max(most, bodies.held)
            return answer.status

        async with asyncio.TaskGroup() as tasks:
            many = [tasks.create_task(send(number, 1)) for number in range(40)]
            while bodies.held < LIMIT:
                await asyncio.sleep(0)
            few = [await send(number, 2) for number in range(3)]
        assert few == [202] * 3
        statuses = [one.result() for one in many]
        assert {*statuses} == {202, 429}
        assert 0 < most <= 8 * LIMIT
        assert bodies.held == 0
        assert sum((await service.totals()).values()) == statuses.count(202) + 3


@pytest.mark.parametrize("announced", [True, False])
async def test_uploads_that_never_end_leave_room_for_small_bodies(tmp_path: Path, announced: bool) -> None:
    """Also if they say nothing of their size, and grow a little at a time."""
    start = b"POST /v1/increments HTTP/1.1\r\nHost: h\r\n"
    if announced:
        upload = start + b"Content-Length: %d\r\n\r\n[" % LIMIT
    else:
        upload = start + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % LIMIT + b" " * (LIMIT - 1)
    async with running(tmp_path, max_body_bytes=LIMIT) as service, asyncio.timeout(60):
        bodies = service.ingest.bodies
        clients = [
            await asyncio.open_connection(*service.address, local_addr=(f"127.0.0.{2 + number}", 0))
            for number in range(9)
        ]
        for _, writer in clients[:7]:
            writer.write(upload)
        await poll(lambda: bodies.held >= 7 * (LIMIT - 1))
        reader, writer = clients[7]
        writer.write(upload)
        assert (await reader.readline()).startswith(b"HTTP/1.1 503 ")
        before = bodies.held
        reader, writer = clients[8]
        writer.write(b"POST /v1/counters/c HTTP/1.1\r\nHost: h\r\nContent-Length: 12\r\n\r\n")
        await poll(lambda: bodies.held >= before + 12)
        writer.write(b'{"delta": 1}')
        assert (await reader.readline()).startswith(b"HTTP/1.1 202 ")
        for _, writer in clients:
            writer.transport.abort()
        await poll(lambda: not bodies.held)


async def test_a_flood_of_reads_does_not_starve_counting(tmp_path: Path) -> None:
    """Each of them is of many counters that nobody has read before."""
    async with running(tmp_path) as service:
        done = asyncio.Event()
        request = b"GET /v1/counters?%b HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"

        async def reader(first: int) -> None:
            number = first
            while not done.is_set():
                names = "&".join(f"name=r{number}.{item}" for item in range(200))
                assert b"HTTP/1.1 200 " in await service.send(request % names.encode())
                number += 1_000

        async with asyncio.TaskGroup() as tasks:
            for first in range(40):
                tasks.create_task(reader(first))
            async with asyncio.timeout(60):
                for _ in range(POLITE):
                    assert (await service.incr("polite", client=1)).status == 202
            done.set()
        assert _connections(service.ingest) <= 40
        assert len(service.ingest.reader._answers) <= 20_000
        assert not service.ingest.reader._flights
        assert await service.value("polite") == POLITE


def _connections(ingest: Ingest) -> int:
    return len(ingest.reader._store.database._readers)  # type: ignore[attr-defined] # it is of SQLite here


READERS: Final = {
    "names": "/v1/counters?max_age=0&name=a&name=b",
    "a list": "/v1/counters?max_age=0&prefix=",
    "a receipt": "/v1/receipts/x.y",
    "a series": "/v1/counters/a/series?by=hour",
    "a stream": "/v1/watch?prefix=a",
    "metrics": "/metrics",
}


@pytest.mark.parametrize("what", READERS)
async def test_reads_that_take_long_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Whoever asks for much at once waits for itself; another client's read comes after the next one of it."""
    inside, most, order, go = 0, 0, list[str](), asyncio.Event()
    async with running(tmp_path, windows=rules_of("=hour/1d")) as service:
        take = FairLock.of
        lock = service.chapter(ServiceRoutes)._scrapes if what == "metrics" else service.chapter(ReadRoutes)._turns

        @contextlib.asynccontextmanager
        async def slow(self: FairLock, tenant: str) -> AsyncIterator[None]:
            nonlocal inside, most
            async with take(self, tenant):
                inside, most = inside + 1, max(most, inside + 1)
                order.append(tenant)
                await go.wait()
                await asyncio.sleep(0)
                inside -= 1
                yield

        monkeypatch.setattr(FairLock, "of", slow)
        method = "HEAD" if what == "a stream" else "GET"
        many = [asyncio.create_task(service.ask(method, READERS[what])) for _ in range(20)]
        await poll(lambda: len(order) >= (1 if what == "metrics" else READS))
        one = asyncio.create_task(service.ask(method, READERS[what], client=1))
        await poll(lambda: "127.0.0.2" in lock._rows)
        go.set()
        answers = await asyncio.gather(*many, one)
        assert {answer.status for answer in answers} == {200}
        assert most <= (1 if what == "metrics" else READS)
        assert "127.0.0.2" in order[: READS + 2]


async def test_a_receipt_names_as_many_ids_as_an_answer_has(service: Service) -> None:
    assert (await service.get("/v1/receipts/" + ".".join(["x"] * MOST_IN_RECEIPT))).json["state"] == "unknown"
    refused = await service.get("/v1/receipts/" + ".".join(["x"] * (MOST_IN_RECEIPT + 1)))
    assert (refused.status, refused.field) == (422, "receipt")
    assert MOST_IN_RECEIPT >= MOST_EVENTS
    body = orjson.dumps({"counters": {f"c{number}": 1 for number in range(MOST_IN_BATCH)}})
    receipt = (await service.post("/v1/increments", body)).json["receipt"]
    assert receipt.count(".") + 1 <= MOST_IN_RECEIPT
