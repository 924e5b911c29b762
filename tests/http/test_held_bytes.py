"""Answers that nobody reads take a bounded part of the memory, and other clients get theirs."""

import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest

from shared.http.front import Front
from shared.http.server import UNCOUNTED, HeldBytes
from tests.http.both_ways import poll, server_of
from tests.http.service import Service, running
from tests.http.test_slow_clients import closed

LIST: Final = b"GET /v1/counters?limit=1000&max_age=60 HTTP/1.1\r\nHost: h\r\n\r\n"
ODD_LIST: Final = LIST.replace(b"Host: h", b"Host: h\r\nTE: x")
"""With this header, aiohttp answers."""
NAMES: Final = 1_000
MOST: Final = 4_000_000


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """With counters of which a list has 500 kB."""
    async with running(tmp_path) as it:
        names = b",".join([b'"%03d%b":1' % (number, b"x" * 390) for number in range(NAMES)])
        assert (await it.post("/v1/increments", b'{"counters":{%b}}' % names)).status == 202
        yield it


@contextlib.contextmanager
def deaf(service: Service, count: int, number: int = 1) -> Iterator[list[socket.socket]]:
    """Clients that ask for lists and read nothing, all at one address."""
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(count):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.bind((f"127.0.0.{1 + number}", 0))
            client.connect(service.address)
            client.sendall((LIST + ODD_LIST) * 10)
            clients.append(client)
        yield clients


async def test_a_client_that_reads_no_answer_has_a_share_and_its_slowest_connections_are_dropped(
    service: Service,
) -> None:
    server = server_of(service)
    held = server.held = HeldBytes(MOST)
    before = closed("memory")
    with deaf(service, 40):
        await poll(lambda: closed("memory") >= before + 20)
        assert 0 < held.held <= MOST // 2
        with deaf(service, 1, number=2):
            await poll(lambda: len(held.holders) == 2)
        answer = await service.get("/v1/counters?limit=1000")
        assert (answer.status, len(answer.json["counters"])) == (200, NAMES)
        assert held.held <= MOST
    await poll(lambda: not held.held and len(server.fronts) == 1)
    assert not held._fronts


async def test_what_comes_behind_a_request_counts_too(service: Service) -> None:
    server = server_of(service)
    held = server.held = HeldBytes(MOST)
    before = closed("memory")
    much = b"POST /v1/counters/c?wait=applied&timeout=60 HTTP/1.1\r\nHost: h\r\n\r\n" + LIST * 4_000
    with contextlib.ExitStack() as stack:
        for number in range(100):
            client = stack.enter_context(socket.create_connection(service.address))
            client.setblocking(False)
            assert client.send(much) > UNCOUNTED, number
        await poll(lambda: closed("memory") > before)
        assert 0 < held.held <= MOST // 2
    await service.apply()
    await poll(lambda: not held.held)


def test_the_one_that_is_unread_for_longest_goes_first() -> None:
    class One(Front):
        dropped = False

        def __init__(self, tenant: str) -> None:
            self.tenant = tenant

        def drop(self) -> None:
            self.dropped = True

    held = HeldBytes(100)
    ones = [One("a") for _ in range(5)]
    for one in ones:
        held.hold(one, 20, 0)
    assert [one.dropped for one in ones] == [True, True, True, False, False]
    other = One("b")
    held.hold(other, 30, UNCOUNTED)
    assert (other.dropped, held.held) == (False, 70)
    held.hold(large := One("c"), 90, 0)
    assert (large.dropped, held.held) == (True, 70)
    for one in (*ones, other, large):
        held.forget(one)
    assert (held.held, held.holders, held._fronts) == (0, {}, {})
