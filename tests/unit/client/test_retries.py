"""What the Python client sends again, under which id, and for how long."""

import asyncio
import contextlib
import copy
import gc
import itertools
import json
import os
import pickle
import pkgutil
import signal
import sys
import threading
import time
import traceback
from typing import Any

import pytest

from countersink import AsyncClient, Client, RejectedError, RequestError, UnavailableError, transport
from countersink.interrupts import start
from tests.http.both_ways import poll
from tests.unit.client.scripted import COUNTER, accepted, asked_on, asking, problem, saying, says, scripted, serving


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 507])
async def test_later_is_tried_again_under_the_same_id(status: int) -> None:
    async with asking(problem(status, "later"), says(status, b"<html>"), "cut", accepted()) as (server, client):
        answer = await client.increment("a")
    assert answer.accepted == 1
    assert {asked.body["id"] for asked in server.asked} == {answer.id}
    assert len(server.asked) == 4


async def test_each_increment_without_an_id_gets_one_of_its_own() -> None:
    async with asking(accepted()) as (server, client):
        for _ in range(3):
            await client.increment("a")
        await client.increment("a", id="mine")
    ids = [asked.body["id"] for asked in server.asked]
    assert len(set(ids)) == 4
    assert ids[-1] == "mine"


async def test_a_batch_is_tried_again_under_the_same_key() -> None:
    async with asking("cut", problem(503, "later"), accepted()) as (server, client):
        answer = await client.increment_many({"a": 2})
    assert {asked.headers["Idempotency-Key"] for asked in server.asked} == {answer.id}
    assert [asked.body for asked in server.asked] == [{"counters": {"a": 2}}] * 3


async def test_retry_after_is_honoured() -> None:
    async with asking(problem(503, "later", Retry_After="1"), accepted()) as (_, client):
        begun = time.monotonic()
        await client.increment("a")
        assert time.monotonic() - begun >= 1.0


async def test_a_page_does_not_wait_long_for_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("countersink.calls.READ_PATIENCE", 2.0)  # as it is outside of tests
    async with asking(problem(503, "later", Retry_After="3")) as (server, client):
        reads = (client.get("a"), client.get_many(["a"]), client.top(), client.series("a"), anext(client.list()))
        for read in reads:
            with pytest.raises(UnavailableError):
                await read
    assert len(server.asked) == len(reads)


async def test_a_retry_after_that_is_longer_than_the_patience_is_not_waited_for() -> None:
    async with (
        asking(problem(507, "the disk is full: free some space", Retry_After="1000"), patience=500) as (_, client),
        asyncio.timeout(60),
    ):
        with pytest.raises(UnavailableError, match=r"^the disk is full: free some space$") as raised:
            await client.increment("a", id="mine")
    assert (raised.value.status, raised.value.id) == (507, "mine")


@pytest.mark.parametrize("retry_after", ["", "soon", "Wed, 21 Oct 2026 07:28:00 GMT", "²", "-1"])
async def test_a_retry_after_that_is_no_number_is_no_error(retry_after: str) -> None:
    async with asking(problem(503, "later", Retry_After=retry_after), accepted()) as (_, client):
        assert (await client.increment("a")).accepted == 1


LATER = {"retry-after": "Wed, 25 Nov 2026 10:00:07 GMT", "date": "Wed, 25 Nov 2026 10:00:00 GMT"}


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": " 2\t"}, 2), ({"retry-after": "86400"}, 3_600), (LATER, 7),
        (LATER | {"date": "Wed, 25 Nov 2026 11:00:00 GMT"}, 0), (LATER | {"date": "now"}, 0), ({}, 0),
    ],
)  # fmt: skip
def test_a_retry_after_may_be_a_date(headers: dict[str, str], seconds: float) -> None:
    assert transport._retry_after(headers) == seconds


async def test_an_error_says_under_which_id_it_is_safe_to_send_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count()  # by each look at the clock
    monkeypatch.setattr("countersink.client.now", lambda: float(next(seconds)))
    async with asking(problem(503, "later"), patience=5) as (server, client):
        with pytest.raises(UnavailableError) as one:
            await client.increment("a")
        first = len(server.asked)
        with pytest.raises(UnavailableError) as many:
            await client.increment_many([{"counter": "a"}])
    assert first > 1
    assert one.value.id == server.asked[0].body["id"]
    assert many.value.id == server.asked[first].headers["Idempotency-Key"]


async def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("countersink.client.SHORTEST_TRY", 1.0)
    async with asking("hang", patience=0) as (_, client):
        async with asyncio.timeout(60):
            with pytest.raises(UnavailableError, match="took longer than 1 s"):
                await client.increment("a")


async def test_nobody_there_is_an_error_that_says_so_without_the_password_in_the_url() -> None:
    async with AsyncClient("http://me:secret@127.0.0.1:1", patience=0.2) as client:
        with pytest.raises(UnavailableError) as raised:
            await client.get("a")
    assert str(raised.value).startswith("no answer from http://127.0.0.1:1: Connection refused. ")
    assert raised.value.__cause__ is not None
    assert raised.value.status is None


async def test_a_cancelled_request_ends_at_once() -> None:
    async with asking(problem(503, "later", Retry_After="1000"), patience=2_000) as (_, client):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await client.increment("a")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 414, 422])
async def test_a_refusal_is_an_error_at_once_with_its_detail(status: int) -> None:
    async with asking(problem(status, "it is wrong")) as (server, client):
        with pytest.raises(RejectedError, match=r"^it is wrong$") as raised:
            await client.increment("a")
    assert len(server.asked) == 1
    assert raised.value.status == status
    assert isinstance(raised.value, RequestError)


@pytest.mark.parametrize(
    "answer",
    [
        says(200, b"<html>hello</html>"), says(200, b""), says(200, b"[" * 100_000), says(404, b"[" * 100_000),
        says(200, [1]), says(200, {"accepted": 1, "rejected": [1]}), says(200, {"hello": "world"}),
        says(404, b"not found"), says(301, b"", Location="/elsewhere"),
    ],
)  # fmt: skip
async def test_a_server_that_is_not_countersink_is_an_error_at_once(answer: object) -> None:
    async with asking(answer) as (server, client):  # type: ignore[arg-type] # a step
        for ask in (client.increment("a"), client.get("a"), client.get_many(["a"]), client.receipt("r")):
            with pytest.raises(RejectedError, match="is the URL right"):
                await ask
    assert len(server.asked) == 4


@pytest.mark.parametrize("wrong", [{"X": 1}, {"X": "a\nb"}, {"X:": "a"}])
def test_what_can_not_be_sent_is_said_at_once(wrong: Any) -> None:
    with pytest.raises(ValueError, match="text without line breaks"):
        Client("http://127.0.0.1:1", headers=wrong)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"url": None}, "the URL must be text, not None"),
        ({"key": 123}, "the key must be text"),
        ({"interval": float("nan")}, "the interval must be a number of seconds"),
        ({"interval": "0.2"}, "the interval must be a number of seconds"),
        ({"patience": "5"}, "the patience must be a number of seconds"),
        ({"patience": True}, "the patience must be a number of seconds"),
        ({"most": "10"}, "'most' must be a whole number"),
        ({"most": 0}, "'most' must be a whole number"),
        ({"tls": False}, "'tls' must be an ssl.SSLContext"),
    ],
)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_an_option_of_the_wrong_type_is_said_at_once(kind: Any, wrong: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        kind(**{"url": "http://127.0.0.1:1"} | wrong)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_client_can_not_be_copied(kind: Any, duplicate: Any) -> None:
    with pytest.raises(TypeError, match="make another one"):
        duplicate(kind("http://127.0.0.1:1"))


async def test_streams_and_requests_that_hang_hold_up_no_request_and_no_flush() -> None:
    async with asking(*["hang"] * 48, accepted(), *["hang"] * 32, accepted()) as (server, client):
        hanging: list[Any] = [asyncio.create_task(anext(client.watch("a"))) for _ in range(48)]  # type: ignore[arg-type] # it awaits
        async with asyncio.timeout(60):
            await server.until_asked(48)
            await client.increment("a")
            hanging += [asyncio.create_task(client.get("a")) for _ in range(32)]
            await server.until_asked(48 + 1 + 32)
            client.incr("a")
            assert await client.flush(60)
        for task in hanging:
            task.cancel()


EVENT = f"data: {json.dumps(COUNTER)}\n\n".encode()


async def test_a_stream_goes_on_when_nobody_else_has_its_client() -> None:
    more = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + EVENT)
        await more.wait()
        writer.write(EVENT)
        await writer.drain()
        writer.close()

    async with serving(serve) as url:
        stream = Client(url, patience=0).watch("a")
        gc.collect()
        for _ in range(2):
            assert (await asyncio.to_thread(next, stream)).value == 1
            gc.collect()
            more.set()


async def test_a_finalizer_that_runs_in_a_thread_of_the_client_does_not_wait_for_it() -> None:
    told: list[bool] = []
    client = Client("http://127.0.0.1:1")
    client.incr("a")

    def finalize() -> None:
        told.append(client.flush(600))
        told.append(client.close(600))

    assert start(finalize)
    await poll(lambda: len(told) == 2)
    assert told == [False, False]
    await asyncio.to_thread(client.close, 0)


async def test_headers_and_a_path_before_ours_go_along() -> None:
    async with scripted(accepted()) as server, AsyncClient(f"{server.url}/behind/", headers={"X-Key": "k"}) as client:
        await client.increment("a/ü?")
    assert server.asked[0].path == "/behind/v1/counters/a%2F%C3%BC%3F"
    assert server.asked[0].headers["X-Key"] == "k"


async def test_a_connection_that_the_service_closed_meanwhile_costs_no_attempt() -> None:
    """The server closes after each answer, and does not say so."""
    served = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        await asked_on(reader)
        body = b'{"accepted": 1, "receipt": "r"}'
        writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        writer.close()
        served += 1

    async with serving(serve) as url, AsyncClient(url, patience=0) as client:
        for _ in range(5):
            assert (await client.increment("a")).accepted == 1
            await asyncio.sleep(0.02)  # the end of the connection is on its way
    assert served == 5


@pytest.mark.parametrize(
    "said",
    [
        b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 202 Accepted\r\nContent-Length: 100\r\n\r\n{}",
        b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{}",
        b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n", b"HTTP/1.1 2000000 What\r\n\r\n",
        b"HTTP/1.1 202 Accepted\r\n" + b"a: b\r\n" * 1_000 + b"\r\n",
    ],
)  # fmt: skip
async def test_an_answer_that_is_broken_is_no_answer(said: bytes) -> None:
    async with serving(saying(said)) as url, AsyncClient(url, patience=0) as client:
        with pytest.raises(UnavailableError, match="no answer"):
            await client.increment("a")


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 202 Accepted\r\nX-A: ", b"HTTP/1.1 202 Accepted\r\nContent-Length: 100000\r\n\r\n"]
)
async def test_an_answer_that_comes_byte_by_byte_is_given_up(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("countersink.client.SHORTEST_TRY", 1.0)
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            writer.write(head)
            while not writer.is_closing():
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.05)
        writer.close()
        ended.set()

    async with asyncio.timeout(60), serving(serve) as url, AsyncClient(url, patience=0) as client:
        with pytest.raises(UnavailableError, match="took longer than 1 s"):
            await client.increment("a")
        await ended.wait()


HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"


async def test_interim_answers_are_left_out_and_a_connection_with_more_than_an_answer_is_not_kept() -> None:
    """Else the rest would be taken for the answer to the next request."""
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head, _ = await asked_on(reader)
                name = head.split()[1].rpartition(b"/")[2]
                said = b'{"accepted": 1, "receipt": "%b"}' % name
                answer = b"HTTP/1.1 202 Accepted\r\nContent-Length: %d\r\n\r\n%b" % (len(said), said)
                writer.write(HINTS * 3 + answer * (2 if name == b"twice" else 1))
                await writer.drain()
        writer.close()

    async with serving(serve) as url, AsyncClient(url, patience=0) as client:
        for name in ("a", "b", "twice", "c"):
            assert (await client.increment(name)).receipt == name
    assert connections == 2


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12: this process has threads
async def test_children_of_a_fork_have_connections_of_their_own() -> None:
    """A child reads, while its parent does; neither gets the answer of the other."""
    async with scripted(accepted()) as server:
        client = Client(server.url)
        await asyncio.to_thread(client.increment, "a")
        pid = os.fork()
        if not pid:
            try:
                client.increment("b")
                os._exit(0)
            finally:
                os._exit(1)
        assert (await asyncio.to_thread(os.waitpid, pid, 0))[1] == 0
        await asyncio.to_thread(client.increment, "c")
        await asyncio.to_thread(client.close)
    assert [asked.path for asked in server.asked] == [f"/v1/counters/{name}" for name in "abc"]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12: this process has threads
@pytest.mark.parametrize("what", ["get", "watch"])
async def test_a_fork_while_another_thread_reads_an_answer_does_not_hang_the_child(what: str) -> None:
    """That thread holds the lock of the buffer, and does not exist in the child."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        await writer.drain()
        await reader.read()
        writer.close()

    def ask() -> None:
        with contextlib.suppress(RequestError):
            next(client.watch("a")) if what == "watch" else client.get("a")

    async with serving(serve) as url:
        client = Client(url, patience=0)
        asking = asyncio.create_task(asyncio.to_thread(ask))
        await poll(lambda: "readinto" in _running_in(ask))  # which the buffer calls, and holds its lock meanwhile
        pid = os.fork()
        if not pid:
            os._exit(0)
        await _ended_well(pid)
        assert not asking.done()  # the parent's connection is as it was
        await asyncio.to_thread(client.close)
        await asking


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12: this process has threads
@pytest.mark.parametrize("at", ["sender.mint", "sender.batches", "transport.Transport.attempt"])
async def test_a_fork_while_the_thread_makes_or_sends_a_request_does_not_keep_the_child_from_sending(
    at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread may hold a lock there, and does not exist in the child."""
    parent, there, on = os.getpid(), threading.Event(), threading.Event()
    place, _, name = f"countersink.{at}".rpartition(".")
    real = pkgutil.resolve_name(f"{place}.{name}")

    def stop(*asked: Any) -> Any:
        if os.getpid() == parent:
            there.set()
            on.wait()
        return real(*asked)

    monkeypatch.setattr(pkgutil.resolve_name(place), name, stop)
    async with scripted(accepted()) as server:
        client = Client(server.url, interval=0.0)
        client.incr("parent")
        await asyncio.to_thread(there.wait)
        pid = os.fork()
        if not pid:
            try:
                client.incr("child")
                os._exit(0 if client.flush(20) and not client.dropped else 1)
            finally:
                os._exit(1)
        try:
            await _ended_well(pid)
        finally:
            on.set()
        assert await asyncio.to_thread(client.close)
    assert sorted(name for asked in server.asked for name in asked.body["counters"]) == ["child", "parent"]


async def _ended_well(pid: int) -> None:
    until = time.monotonic() + 30
    while (ended := os.waitpid(pid, os.WNOHANG)) == (0, 0) and time.monotonic() < until:  # noqa: ASYNC222 (it does not wait)
        await asyncio.sleep(0.01)
    if ended == (0, 0):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)  # noqa: ASYNC222 (it does not wait for long)
    assert ended == (pid, 0)


def _running_in(function: Any) -> str:
    """The names of the functions that are running in a thread below this one."""
    for frame in sys._current_frames().values():
        names = [one.f_code.co_name for one, _ in traceback.walk_stack(frame)]
        if function.__name__ in names:
            return " ".join(names)
    return ""
