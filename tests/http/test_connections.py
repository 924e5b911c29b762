"""A connection has one request at a time: nothing of one becomes part of the next, what comes early is hardly read; and
idle connections, clients that go away, and stopping.
"""

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

from ingest.access.door import Door
from ingest.http.problems import Problem
from shared.http import server as http_server
from shared.http.front import MOST_AHEAD_HELD, Front
from shared.model.errors import TransientError
from shared.model.words import Envelope
from shared.sqlite.broker import _INSERT
from shared.sqlite.database import connect_to
from shared.wire.codec import encode
from tests.http.both_ways import END, ODD, Client, batch, by_aiohttp, connected, connections, poll, post, server_of
from tests.http.faults import Gate
from tests.http.service import Service, running

CLOSE: Final = b"Connection: close\r\n"
CHUNKED: Final = (
    b'POST /v1/counters/c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nc\r\n{"delta": 1}\r\n0\r\n%b\r\n'
)
TRAILERS: Final = (b"", b"Idempotency-Key: stolen\r\n", b"Host: other\r\n", b"Authorization: Bearer stolen\r\n")
LARGEST_READ: Final = 262_144
"""Bytes that an event loop reads at once."""


@pytest.fixture
async def waiting(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Service, Client, Front, Gate]]:
    """A client whose request is on the short way, and waits."""
    gate = Gate(service, monkeypatch)
    async with connected(service) as client:
        client.writer.write(post(b'{"delta": 1}', name=b"first"))
        await gate.reached.wait()
        (connection,) = connections(service)
        assert connection.is_answering()
        yield service, client, connection, gate
    gate.open.set()
    await poll(lambda: connection not in connections(service))


Waiting = tuple[Service, Client, Front, Gate]


async def test_what_comes_behind_is_answered_in_order_on_either_way(waiting: Waiting) -> None:
    service, client, connection, gate = waiting
    behind = post(b'{"delta": 2}')
    client.writer.write(behind)
    await poll(lambda: connection._held == behind)
    gate.open.set()
    await client.until(lambda: client.answers() == 2)
    assert by_aiohttp(service) == 0
    gate.open.clear()
    client.writer.write(post(b'{"delta": 3}'))
    await poll(connection.is_answering)
    read = b"GET /v1/counters/c?max_age=0 HTTP/1.1\r\nHost: h\r\n"
    client.writer.write(read + b"\r\n" + post(b"[]") + post(b'{"delta": 4}') + read + CLOSE + b"\r\n")
    gate.open.set()
    await client.until(lambda: client.closed)
    statuses = [part[:3] for part in client.seen.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"202", b"202", b"202", b"200", b"400", b"202", b"200"]
    assert client.seen.index(b'"value":5') < client.seen.index(b'"value":9')


@pytest.mark.parametrize("headers", [b"", ODD], ids=["fast path", "aiohttp"])
async def test_what_comes_behind_a_request_that_waits_is_hardly_read(
    service: Service, monkeypatch: pytest.MonkeyPatch, headers: bytes
) -> None:
    gate, many = Gate(service, monkeypatch), 400
    async with connected(service) as client:
        client.writer.write(post(None, headers, name=b"first"))
        await gate.reached.wait()
        (connection,) = connections(service)
        client.writer.write((post(b"{}", b"X: %b\r\n" % (b"x" * 1_000)) + CHUNKED % b"X: y\r\n") * many)
        await poll(lambda: connection._held)
        for _ in range(20):
            await asyncio.sleep(0.005)
            assert len(connection._held) <= MOST_AHEAD_HELD + LARGEST_READ
        gate.open.set()
        await client.until(lambda: client.answers() == 2 * many + 1)
    assert await service.totals() == {"c": 2 * many, "first": 1}


async def test_a_client_that_hangs_up_while_it_waits_is_noticed_though_it_sent_more(service: Service) -> None:
    async with connected(service) as client:
        client.writer.write(post(b"{}", name=b"c?wait=applied&timeout=1") + post())
        (connection,) = connections(service)
        await poll(lambda: connection._held)
        client.writer.transport.abort()
        await poll(lambda: connection not in connections(service))


@pytest.mark.parametrize("trailer", TRAILERS)
@pytest.mark.parametrize("piece", [1, 7, 100_000])
async def test_no_trailer_becomes_part_of_the_next_request(service: Service, trailer: bytes, piece: int) -> None:
    """A parser of aiohttp takes the last trailer of a chunked body for a header of the next request."""
    stolen = post(b"{}", b"Idempotency-Key: stolen\r\n", name=b"next")
    chunked = CHUNKED % trailer
    data = chunked + post(name=b"next") + stolen + chunked + END
    async with connected(service) as client:
        for begin in range(0, len(data), piece):
            client.writer.write(data[begin : begin + piece])
            await client.writer.drain()
        await client.until(lambda: client.closed)
        assert client.seen.count(b"HTTP/1.1 202 ") == 4
        assert b"duplicate" not in client.seen
    assert await service.totals() == {"c": 2, "next": 2}


@pytest.mark.parametrize("behind", [b"", post()], ids=["alone", "with more behind"])
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("abort", [False, True])
async def test_a_client_that_goes_away_leaves_nothing_behind(
    waiting: Waiting, behind: bytes, fails: bool, abort: bool
) -> None:
    service, client, connection, gate = waiting
    if fails:
        gate.error = TransientError("the broker does not answer")
    client.writer.write(behind)
    await poll(lambda: connection._held == behind)
    if abort:
        client.writer.transport.abort()
    else:
        client.writer.close()
    await poll(lambda: connection._ended)
    gate.open.set()
    await poll(lambda: not connection.is_answering())
    await poll(lambda: not connections(service))
    gc.collect()  # an exception that nobody asked for would be logged
    await asyncio.sleep(0)
    gate.error = None
    totals = await service.totals()
    assert totals.pop("c", 0) <= bool(behind)  # it may have been begun
    assert totals == ({} if fails else {"first": 1})


async def test_an_active_connection_stays_open_and_an_idle_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = 0.4
    monkeypatch.setattr(http_server, "LOOK", 0.05)
    loop = asyncio.get_running_loop()
    async with running(tmp_path, idle_timeout=idle) as service, connected(service) as client:
        begun = loop.time()
        while loop.time() - begun < 3 * idle:
            await client.ask(post())
            await asyncio.sleep(idle / 10)
        assert not client.closed
        gate = Gate(service, monkeypatch)
        client.writer.write(post())
        await gate.reached.wait()
        await asyncio.sleep(2.5 * idle)
        assert not client.closed
        gate.open.set()
        answers = client.answers()
        await client.until(lambda: client.answers() > answers)
        ended = loop.time()
        await client.until(lambda: client.closed)
        assert 0.9 * idle < loop.time() - ended < 10
        assert by_aiohttp(service) == 0


class _Full:
    """As a transport is whose buffer is full after the first answer."""

    def __init__(self, connection: Front) -> None:
        self._connection = connection
        self._transport = connection.transport

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)
        self._connection.pause_writing()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def _refuse(*_: object) -> NoReturn:
    raise Problem(403, "nobody may do anything")


@pytest.mark.parametrize("refused", [False, True])
async def test_a_client_that_does_not_read_its_answer_is_read_no_further(
    service: Service, monkeypatch: pytest.MonkeyPatch, *, refused: bool
) -> None:
    async with connected(service) as client:
        await poll(lambda: connections(service))
        (connection,) = connections(service)
        transport, connection.transport = connection.transport, _Full(connection)  # type: ignore[assignment]
        with monkeypatch.context() as patch:
            if refused:
                patch.setattr(Door, "enter", _refuse)
            await client.ask(post())
        connection.transport = transport
        client.writer.write(post())
        await poll(lambda: connection._held)
        assert client.answers() == 1
        connection.resume_writing()
        await client.until(lambda: client.answers() == 2)
    assert by_aiohttp(service) == 0


async def test_stopping_answers_what_is_under_way_and_closes_what_is_idle(waiting: Waiting) -> None:
    service, client, connection, gate = waiting
    async with connected(service) as idle:
        await poll(lambda: len(connections(service)) == 2)
        client.writer.write(post())  # is not taken any more
        await poll(lambda: connection._held)
        stopping = asyncio.create_task(service.ingest.stop())
        await idle.until(lambda: idle.closed)
        assert not stopping.done()
        assert not client.closed
        gate.open.set()
        await stopping
        await client.until(lambda: client.closed)
        assert client.answers() == 1
        assert client.seen.startswith(b"HTTP/1.1 202 ")
        assert {*await service.parts.overlay.names("")} == {"first"}


async def test_stopping_gives_up_after_the_drain_timeout(waiting: Waiting) -> None:
    service, client, _, _ = waiting
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await server_of(service).stop(1.0)
    assert 0.9 < loop.time() - begun < 4  # it is 1 second
    await client.until(lambda: client.closed)
    assert client.seen == b""


async def test_stopping_under_load_keeps_each_promise(tmp_path: Path) -> None:
    async with running(tmp_path, drain_timeout=20.0) as service:
        sent = 0

        async def load(client: Client) -> None:
            nonlocal sent
            while not client.closed:
                answers = client.answers() + 1
                client.writer.write(post())
                sent += 1
                await client.until(lambda answers=answers: client.closed or client.answers() >= answers)  # type: ignore[misc]

        async with asyncio.TaskGroup() as tasks:
            clients = [Client(*await asyncio.open_connection(*service.address)) for _ in range(30)]
            for client in clients:
                tasks.create_task(load(client))
            await poll(lambda: sent > 500)
            await service.ingest.stop()
        answered = sum(client.seen.count(b"HTTP/1.1 202 ") for client in clients)
        await service.apply()
        async with service.parts.store.snapshot() as snapshot:
            totals, _ = await snapshot.read(["c"], frozenset())
        assert totals["c"].value == answered > 400  # all that was counted was answered, too
        for client in clients:
            client.writer.close()


@pytest.mark.parametrize("pieces", [2, 5])
async def test_a_body_that_comes_soon_after_its_head_is_waited_for(service: Service, pieces: int) -> None:
    items = b"[%b]" % b",".join([b'{"counter":"n%04d"}' % number for number in range(2_000)])
    async with connected(service) as client:
        for number, data in enumerate((post(b'{"delta": 2}'), batch(items), post(b'{"delta": 3}')), 1):
            head = data.index(b"\r\n\r\n") + 4
            cuts = [0, *(head + place * (len(data) - head) // (pieces - 1) for place in range(pieces))]
            for begin, end in pairwise(cuts):
                client.writer.write(data[begin:end])
                if end < len(data):
                    await poll(lambda end=end: [len(one._held) for one in connections(service)] == [end])
            await client.until(lambda number=number: client.answers() == number)  # type: ignore[misc]
        assert client.seen.count(b"HTTP/1.1 202 ") == 3
    assert by_aiohttp(service) == 0
    assert server_of(service).held.held == 0


@pytest.mark.parametrize("drains", [False, True])
async def test_a_body_that_does_not_come_is_left_to_aiohttp(service: Service, *, drains: bool) -> None:
    data = post(b'{"delta": 2}')
    async with connected(service) as client:
        client.writer.write(data[:-5])
        await poll(lambda: [one for one in connections(service) if one._needs])
        if drains:
            for one in connections(service):
                one.drain()
        await poll(lambda: by_aiohttp(service) == 1)
        client.writer.write(data[-5:])
        await client.until(lambda: client.answers() == 1)
        await client.ask(post())
    assert by_aiohttp(service) == 1
    assert await service.totals() == {"c": 3}


@pytest.mark.parametrize("same_turn", [True, False])
async def test_a_read_shares_only_looks_that_begin_after_it(
    service: Service, monkeypatch: pytest.MonkeyPatch, *, same_turn: bool
) -> None:
    """Another process counts between two reads of one turn, or while the look for the first read is under way."""
    read = post().replace(b"POST", b"GET")
    gate, looks = asyncio.Event(), 0
    view = service.parts.overlay.view

    async def gated(counters: Any) -> Any:
        nonlocal looks
        looks += 1
        found = await view(counters)
        await gate.wait()
        return found

    def count() -> None:
        message = encode(Envelope("another", {"c": 5}, {}))
        with closing(connect_to(service.parts.publisher._database.path)) as other:  # type: ignore[attr-defined]
            other.execute(_INSERT, (message.data, json.dumps(message.attributes), 0, None, 1, 0))

    async with connected(service) as one, connected(service) as two:
        for client in (one, two):
            await client.ask(read)
        monkeypatch.setattr(service.parts.overlay, "view", gated)
        first, second = connections(service)
        first.data_received(read)
        if not same_turn:
            await poll(lambda: looks)
        count()
        second.data_received(read)
        gate.set()
        await two.until(lambda: two.answers() == 2)
        assert b'"value":5,' in two.seen
        await one.until(lambda: one.answers() == 2)
        assert (b'"value":5,' in one.seen, looks) == ((True, 1) if same_turn else (False, 2))
    assert by_aiohttp(service) == 0
