"""What may have been accepted once keeps its key and its bytes, whoever sends it again."""

import asyncio
import time
from collections import Counter
from typing import Any

import pytest

from countersink import AsyncClient, RejectedError, RequestError, UnavailableError
from countersink.sender import OLDEST
from countersink.transport import now
from tests.unit.client.scripted import WHOLE, Scripted, Step, accepted, asked_on, asking, problem, scripted, serving

REFUSALS = [400, 403, 413, 422]


def counted(server: Scripted, *refused: int) -> Counter[str]:
    """What a service counts that accepts all requests but these: each key once."""
    found: Counter[str] = Counter()
    taken = [asked for number, asked in enumerate(server.asked) if number not in refused]
    for asked in {asked.headers["Idempotency-Key"]: asked for asked in reversed(taken)}.values():
        found.update(asked.body["counters"])
    return found


@pytest.mark.parametrize("status", REFUSALS)
@pytest.mark.parametrize("idle", [True, False])
async def test_a_batch_whose_answer_was_lost_is_never_sent_under_another_key(status: int, idle: bool) -> None:
    """The connection breaks after the service has accepted the batch. If it was an idle one, the client sends the batch
    on a new one at once; the key may count no more of it.
    """
    first: list[Step] = [accepted()] if idle else []
    async with asking(*first, "cut", problem(status, "not any more"), accepted(), interval=WHOLE) as (server, client):
        for _ in first:
            client.incr("a")
            assert await client.flush(10)
        client.incr("a")
        client.incr("b")
        assert await client.flush(10)
        client.incr("a")
        assert await client.flush(10)
        assert client.dropped == 2
    assert counted(server, len(first) + 1) == {"a": 2 + len(first), "b": 1}


@pytest.mark.parametrize("status", REFUSALS)
async def test_a_batch_whose_answer_was_lost_waits_whole_for_room(status: int) -> None:
    no_room = problem(429, "COUNTERSINK_MAX_COUNTERS allows 5 counters in all")
    async with asking(accepted(), "cut", no_room, problem(status, "not any more"), accepted(), interval=WHOLE) as (
        server,
        client,
    ):
        for names in ("a", "ab"):
            for name in names:
                client.incr(name)
            assert await client.flush(10)
        assert client.dropped == 2
    assert counted(server, 2, 3) == {"a": 2, "b": 1}


@pytest.mark.parametrize("status", REFUSALS)
async def test_increments_with_ids_may_always_be_divided(status: int) -> None:
    """Each of them counts once by its own id, so one bad one spoils nothing for the others."""

    def answer(asked: Any) -> Any:
        bad = any(item["counter"] == "bad" for item in asked.body)
        return problem(status, "not yours")() if bad else accepted()()

    async with asking("cut", answer, interval=0.2) as (server, client):
        for name in ("a", "bad", "b", "c"):
            client.incr(name, id="x")
        assert await client.flush(10)
        assert client.dropped == 1
    good = {item["counter"] for asked in server.asked if len(asked.body) < 3 for item in asked.body}
    assert good == {"a", "bad", "b", "c"}


async def test_a_connection_that_was_closed_while_it_was_idle_leaves_no_doubt() -> None:
    """Nothing was sent on it. The batch is still divided if one of its names is refused."""
    open_connections: list[asyncio.StreamWriter] = []
    bodies: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_connections.append(writer)
        try:
            while True:
                _, body = await asked_on(reader)
                bodies.append(body)
                status, said = (403, b'{"detail": "no"}') if b"bad" in body else (202, b'{"accepted": 1}')
                writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(said), said))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async with serving(serve) as url, AsyncClient(url, interval=WHOLE) as client:
        client.incr("a")
        assert await client.flush(10)
        (idle,) = open_connections
        idle.close()
        await idle.wait_closed()
        client.incr("a")
        client.incr("bad")
        assert await client.flush(10)
        assert client.dropped == 1
    assert bodies[-2:] == [b'{"counters":{"a":1}}', b'{"counters":{"bad":1}}']
    assert len(open_connections) == 2


async def test_a_refusal_after_a_lost_answer_says_that_it_may_have_counted() -> None:
    refused = problem(403, "not any more")
    scripts: list[list[Step]] = [["cut", refused], [accepted(), "cut", refused]]
    for script in scripts:
        async with asking(*script) as (_, client):
            if len(script) == 3:
                await client.increment("a")
            with pytest.raises(RejectedError, match="not any more") as raised:
                await client.increment("a", id="mine")
            assert (raised.value.maybe_accepted, raised.value.id) == (True, "mine")
    async with asking(refused) as (_, client):
        with pytest.raises(RejectedError) as raised:
            await client.increment("a", id="mine")
        assert not raised.value.maybe_accepted


async def test_an_error_says_whether_the_request_may_have_been_accepted() -> None:
    async def error_of(url: str) -> RequestError:
        async with AsyncClient(url, patience=0.1) as client:
            with pytest.raises(UnavailableError) as raised:
                await client.increment("a")
        return raised.value

    assert not (await error_of("http://127.0.0.1:1")).maybe_accepted
    for step, maybe in ((problem(429, "later"), False), (problem(503, "later"), True), ("cut", True)):
        async with scripted(step) as server:
            assert (await error_of(server.url)).maybe_accepted == maybe


async def test_a_clock_that_is_set_forward_drops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted("cut", problem(503, "later"), problem(503, "later"), accepted()) as server:
        async with AsyncClient(server.url) as client:
            client.incr("a")
            await server.until_asked()
            now = time.time
            monkeypatch.setattr("time.time", lambda: now() + 2 * OLDEST)
            assert await client.flush(20)
            assert client.dropped == 0
        assert len({asked.headers["Idempotency-Key"] for asked in server.asked}) == 1


async def test_what_was_never_sent_is_kept_however_old_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("countersink.sender.OLDEST", -1.0)
    async with AsyncClient("http://127.0.0.1:1", interval=WHOLE) as client:
        client.incr("a")
        assert not await client.flush(0.5)
        assert client.dropped == 0
        await client.close(0)


async def test_what_may_have_been_accepted_is_not_sent_when_the_service_may_have_forgotten_its_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The machine is suspended for more than a week after the first attempt."""
    async with asking("cut", problem(429, "later", Retry_After="1"), accepted(), interval=0.01) as (server, client):
        client.incr("a")
        await server.until_asked(2)
        monkeypatch.setattr("countersink.sender.now", lambda: now() + OLDEST)
        assert await client.flush(10)
        assert client.dropped == 1
    assert len(server.asked) == 2
