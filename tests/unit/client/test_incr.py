"""What `incr` sends in the background, what it drops, and that its caller notices neither."""

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from countersink import AsyncClient, Client, RejectedError, rules
from countersink.interrupts import Moment
from countersink.sender import MOMENT, Pause
from countersink.tally import CROWDED, Tally
from shared.model import jobs
from shared.model.words import flaw_of_delta, flaw_of_id, flaw_of_name
from tests.http.both_ways import poll
from tests.unit.client.scripted import FAST, WHOLE, Asked, Scripted, accepted, asking, problem, says, scripted


@pytest.fixture
async def server() -> AsyncIterator[Scripted]:
    async with scripted(accepted()) as it:
        yield it


def sums(server: Scripted) -> Counter[str]:
    """What the requests say that have no ids."""
    found: Counter[str] = Counter()
    for asked in server.asked:
        found.update(asked.body["counters"])
    return found


async def warnings(caplog: pytest.LogCaptureFixture, number: int) -> list[str]:
    """So many, and no more. A thread of the client writes them."""
    await poll(lambda: len(said(caplog)) >= number)
    found = said(caplog)
    assert len(found) == number, found
    return found


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def test_increments_are_summed_per_name_and_sent_together(server: Scripted) -> None:
    async with AsyncClient(server.url, interval=600.0) as client:
        for _ in range(1_000):
            client.incr("a")
            client.incr("b", -2)
        client.incr("c", 0)
        await client.incr("a", by=5)
        assert await client.flush(60)
        assert client.dropped == 0
    assert sums(server) == {"a": 1_005, "b": -2_000, "c": 0}
    assert len(server.asked) <= 2


ODD = [
    b"[" * 100_000,
    b'{"accepted":1,"rejected":[{"index":1e999}]}',
    b'{"accepted":1,"rejected":[1]}',
    b'{"accepted":[]}',
]
LATER: Any = [
    *(says(202, odd) for odd in ODD), says(502, ODD[0]), "cut", says(502, b"<html>"), says(504, b""),
    problem(429, "later"), says(200, b"<html>"), says(301, b""),
]  # fmt: skip


@pytest.mark.parametrize("step", LATER)
async def test_a_batch_is_sent_again_byte_for_byte_under_its_key(step: Any) -> None:
    async with asking(step, step, accepted()) as (server, client):
        client.incr("a")
        await server.until_asked()
        client.incr("a")
        assert await client.flush(60)
        assert client.dropped == 0
    sent = {asked.headers["Idempotency-Key"]: asked for asked in server.asked}
    assert all(asked.raw == sent[asked.headers["Idempotency-Key"]].raw for asked in server.asked)
    assert len(sent) < len(server.asked)
    assert sum(asked.body["counters"]["a"] for asked in sent.values()) == 2


BAD: list[tuple[Any, ...]] = [
    (None,), ([],), (("a", 1, None),), (b"a",), ("",), (".",), ("__x__",), ("a\n",), ("x" * 401,), ("\udcff",),
    ("a", "2"), ("a", 1.5), ("a", None), ("a", 2**53), ("a", []), ("a", 1, ""), ("a", 1, 7), ("a", 1, []),
]  # fmt: skip


async def test_bad_increments_are_dropped_and_never_raise(server: Scripted, caplog: pytest.LogCaptureFixture) -> None:
    async with AsyncClient(server.url) as client:
        for arguments in BAD:
            client.incr(*arguments)
            client.incr("good")
        assert await client.flush(60)
        assert client.dropped == len(BAD)
        found = await warnings(caplog, 8)
    flaws = ("empty", "control characters", "reserved", "at most 400 bytes", "lone surrogate")
    others = ("the name and the id must be strings", "the delta must be between", "the id must be 1")
    for reason in (*flaws, *others):
        assert sum(reason in text for text in found) == 1
    long, delta = (next(text for text in found if reason in text) for reason in ("at most 400 bytes", "the delta must"))
    assert f"(counter '{'x' * 50}')" in long
    assert "(counter 'a')" in delta
    assert sums(server) == {"good": len(BAD)}


def test_a_delta_of_another_type_is_dropped_with_its_name_and_one_is_it(caplog: pytest.LogCaptureFixture) -> None:
    client = Client("http://127.0.0.1:1", patience=0.1)
    client.incr("a", by=1.5)  # type: ignore[arg-type] # on purpose
    client.incr("b")
    client.close(0)
    assert said(caplog) == [
        f"countersink dropped 1 increment: {why}. Later, only `dropped` of the client counts them"
        for why in (
            "the name and the id must be strings, and the delta an integer (counter 'a')",
            "the client was closed before http://127.0.0.1:1 accepted it",
        )
    ]


@pytest.mark.parametrize("status", [400, 401, 404, 405, 422])
async def test_what_is_refused_is_dropped_and_said_once(status: int, caplog: pytest.LogCaptureFixture) -> None:
    async with asking(problem(status, "it is wrong"), interval=60.0) as (server, client):
        for _ in range(3):
            client.incr("a")
            client.incr("a")
            assert await client.flush(60)
        assert client.dropped == 6
        (found,) = await warnings(caplog, 1)
        assert "it is wrong" in found
    assert sums(server) == {"a": 6}  # none is sent a second time


def refuse_bad(status: int, detail: str) -> Any:
    def answer(asked: Asked) -> web.StreamResponse:
        bad = any(name.startswith("bad") for name in asked.body["counters"])
        return problem(status, detail)() if bad else accepted()()

    return answer


@pytest.mark.parametrize("status", [400, 403, 413, 422])
async def test_one_bad_item_does_not_keep_the_others_from_being_counted(status: int) -> None:
    async with asking(refuse_bad(status, "not yours")) as (server, client):
        for number in range(900):
            client.incr(f"{number}")
        client.incr("bad", 5)
        client.incr("bad", 5)
        assert await client.flush(60)
        assert client.dropped == 2
        good = Counter[str]()
        for asked in server.asked:
            if not any(name == "bad" for name in asked.body["counters"]):
                good.update(asked.body["counters"])
    assert good == {f"{number}": 1 for number in range(900)}


async def test_a_refusal_of_everything_drops_everything() -> None:
    async with asking(problem(403, "no")) as (server, client):
        for number in range(50):
            client.incr(f"{number}")
        assert await client.flush(60)
        assert client.dropped == 50
    assert len(server.asked) < 100


@pytest.mark.parametrize("status", [403, 429])
async def test_a_good_name_behind_many_bad_ones_counts(status: int) -> None:
    async with asking(refuse_bad(status, "not this one"), interval=FAST) as (server, client):
        for number in range(60):
            client.incr(f"bad{number}")
        client.incr("good")
        await poll(lambda: any(asked.body["counters"] == {"good": 1} for asked in server.asked))
        assert await client.flush(60 if status == 403 else 0) == (status == 403)
        assert client.dropped == (60 if status == 403 else 0)


@pytest.mark.parametrize("status", [403, 429])
async def test_the_names_that_a_refusal_names_are_left_out_at_once(status: int) -> None:
    def answer(asked: Asked) -> web.StreamResponse:
        bad = [name for name in asked.body["counters"] if name.startswith("bad")]
        return says(status, {"detail": "no", "counters": bad}, Retry_After="60")() if bad else accepted()()

    async with asking(answer, interval=0.5) as (server, client):
        for number in range(300):
            client.incr(f"bad{number}")
            client.incr(f"{number}")
        await poll(lambda: len(good_ones(server)) == 300)
        assert await client.flush(60 if status == 403 else 0) == (status == 403)
        assert client.dropped == (300 if status == 403 else 0)
    assert len(server.asked) < 20


POISONED: Any = [says(302, b"", Location="/"), says(200, b"<html>"), problem(500, "x"), problem(501, "x"), "cut"]
LIMITED = problem(429, "there is no room for a new one", Retry_After="3600")


@pytest.mark.parametrize("step", [*POISONED, LIMITED])
async def test_no_batch_holds_up_another(step: Any) -> None:
    def answer(asked: Asked) -> web.StreamResponse:
        poison: Any = step if callable(step) else says(503, b"")
        return (poison if any(name.startswith("bad") for name in names_of(asked)) else accepted())()

    async with asking(answer, interval=FAST, most=20) as (server, client):
        for number in range(16):
            if number % 4 == 0:
                client.incr(f"bad{number}")
                await poll(lambda: len(bad_ones(server)) > number // 4)  # noqa: B023 (called at once)
            client.incr(f"good{number}")
            await poll(lambda: f"good{number}" in good_ones(server))  # noqa: B023 (called at once)
        assert not await client.flush(0)
        assert client.dropped == 0
        client.incr("bad last")
        client.incr("last", id="x")
        assert not await client.close(1)
        assert client.dropped == 5
        assert "last" in good_ones(server)


def names_of(asked: Asked) -> list[str]:
    return [item["counter"] for item in asked.body] if isinstance(asked.body, list) else [*asked.body["counters"]]


def bad_ones(server: Scripted) -> set[str]:
    return {name for asked in server.asked for name in names_of(asked) if name.startswith("bad")}


def good_ones(server: Scripted) -> set[str]:
    """Of requests without bad ones."""
    sent = [{*names_of(asked)} for asked in server.asked]
    return {name for names in sent if not names & bad_ones(server) for name in names}


async def send_the_first(client: AsyncClient) -> None:
    """It is sent at once. What comes later waits for the interval or a flush, so a flush sends it together."""
    client.incr("first")
    assert await client.flush(60)


async def test_items_that_an_answer_rejects_are_dropped_and_said(caplog: pytest.LogCaptureFixture) -> None:
    """The answer names only the first. The other has the largest delta."""
    rejected = accepted(rejected=[{"counter": "b", "reason": "no room"}], rejected_count=2)
    async with asking(accepted(), rejected, interval=600.0) as (_, client):
        await send_the_first(client)
        for _ in range(4):
            client.incr("a")
            client.incr("b")
        for _ in range(3):
            client.incr("c", 5)
        assert await client.flush(60)
        assert client.dropped == 4 + 3
        assert "no room" in (await warnings(caplog, 1))[0]
    for named in ({"index": 1}, {"counter": "a"}):
        two = accepted(rejected=[named | {"reason": "no room"}, {"counter": "a", "reason": "no room"}])
        async with asking(accepted(), two, interval=600.0) as (_, client):
            await send_the_first(client)
            for number in range(6):
                client.incr("a", id="xyyzzz"[number])
            assert await client.flush(60)
            assert client.dropped == 3


@pytest.mark.parametrize("refused", [True, False])
async def test_the_rest_of_a_large_sum_has_its_share_of_the_calls(refused: bool) -> None:
    later = problem(422, "no") if refused else problem(503, "later", Retry_After="60")
    async with asking(accepted(), later, interval=0.3) as (server, client):
        for _ in range(5):
            client.incr("a", 2**53 - 1)
        await server.until_asked(2)
        assert await client.flush(60 if refused else 0) == refused
        await client.close(0.1)
        assert client.dropped == 4


async def test_retry_after_is_honoured_also_while_somebody_waits() -> None:
    async with asking(problem(503, "later", Retry_After="1"), accepted()) as (_, client):
        begun = time.monotonic()
        client.incr("a")
        assert await client.flush(60)
        assert time.monotonic() - begun >= 1.0


async def test_a_flush_waits_for_what_was_not_even_sent_when_it_began() -> None:
    """The client holds all that it may, and waits for the service. Then the service has room."""
    room = False

    def answer() -> web.StreamResponse:
        return accepted()() if room else problem(503, "the broker is away")()

    async with asking(answer, most=1) as (server, client):
        client.incr("a")
        await server.until_asked()
        client.incr("b")
        flush = asyncio.create_task(client.flush(60))
        await poll(lambda: client._client._sender._flushes)
        room = True
        assert await flush
        assert {name for asked in server.asked for name in asked.body["counters"]} == {"a", "b"}
        assert client.dropped == 0


async def test_a_client_that_is_half_full_sends_before_its_interval_is_over() -> None:
    async with asking(accepted(), interval=WHOLE, most=2 * CROWDED) as (server, client):
        for number in range(CROWDED + 2):
            client.incr(f"n{number}")
        async with asyncio.timeout(WHOLE / 2):
            await server.until_asked()


async def test_a_client_that_may_hold_little_is_half_full_soon_and_tries_again_before_its_interval_is_over() -> None:
    async with asking(problem(503, "away", Retry_After="0"), accepted(), interval=WHOLE, most=4) as (server, client):
        for name in "abc":
            client.incr(name)
        async with asyncio.timeout(WHOLE / 2):
            await server.until_asked(2)


def test_while_nothing_may_be_sent_a_flush_does_not_keep_the_thread_busy() -> None:
    with Client("http://127.0.0.1:1", interval=WHOLE) as client:
        client._sender._flushes.add(Moment())
        assert client._sender._due(1.0) == 1.0
        client._sender._pause = Pause(time.monotonic() + WHOLE, time.monotonic() + WHOLE)
        assert client._sender._due(1.0) == 1.0 + MOMENT


async def test_memory_is_bounded_while_nobody_is_there(caplog: pytest.LogCaptureFixture) -> None:
    with Client("http://127.0.0.1:1", interval=WHOLE, most=100) as client:
        for number in range(3 * CROWDED):
            client.incr(f"{number}")
            client.incr("0")
        assert not client.flush(0.3)
        await poll(lambda: client.dropped and client._sender._outgoing)
        assert client.dropped <= 3 * CROWDED
        assert client._tally.held() <= 100
        assert len(client._sender._outgoing) == 1
        assert len(client._tally.events) <= CROWDED + 1
        assert "held already" in (await warnings(caplog, 1))[0]
        assert not client.close(0)
    assert client.dropped == 6 * CROWDED
    assert "was closed" in (await warnings(caplog, 2))[1]


async def test_a_bug_drops_what_is_on_its_way(
    server: Scripted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise SystemError

    monkeypatch.setattr("countersink.sender.Sender._failed", fail)
    monkeypatch.setattr("countersink.sender.Batch.rejected", fail)
    async with AsyncClient(server.url, interval=WHOLE) as client:
        client.incr("a")
        await client.flush(60)
        client.incr("a")
        assert client.dropped == 2
        assert sum("because of a bug" in text for text in await warnings(caplog, 3)) == 1


async def test_a_closed_client_drops_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    client = Client("http://127.0.0.1:1", patience=0.1)
    assert client.flush(1)
    assert client.close()
    assert client.close()
    for _ in range(5):
        client.incr("a")
    assert client.dropped == 5
    (found,) = await warnings(caplog, 1)
    assert "closed" in found
    assert client.flush(0.1)
    with pytest.raises(Exception, match="the client is closed"):
        client.get("a")


async def test_a_client_that_is_forgotten_sends_what_it_holds(server: Scripted) -> None:
    AsyncClient(server.url).incr("a")
    await server.until_asked()
    assert sums(server) == {"a": 1}


async def test_a_server_that_hangs_does_not_hold_the_end_up() -> None:
    async with asking("hang") as (server, client):
        client.incr("a")
        await server.until_asked()
        async with asyncio.timeout(60):  # it never answers, and the attempt would end later
            assert not await client.close(0.2)
        assert client.dropped == 1


async def test_waiting_calls_end_when_the_client_is_closed() -> None:
    async with scripted("hang") as server:
        client = AsyncClient(server.url)
        reading = asyncio.create_task(client.get("a"))
        await server.until_asked()
        await client.close()
        with pytest.raises(Exception, match="the client is closed"):
            await asyncio.wait_for(reading, 60)


async def test_many_threads_count_exactly(server: Scripted) -> None:
    async with AsyncClient(server.url, interval=WHOLE) as client:

        def work(number: int) -> None:
            for turn in range(12_000):
                client.incr("all")
                client.incr(f"{number}", turn % 3)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        await poll(lambda: not any(thread.is_alive() for thread in threads))
        assert await client.flush(60)
        assert client.dropped == 0
    assert sums(server) == {"all": 48_000} | {f"{number}": 12_000 for number in range(4)}


async def test_a_logging_handler_may_count(server: Scripted) -> None:
    async with AsyncClient(server.url, interval=FAST) as client:

        class Counting(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                client.incr(f"log.{record.levelname}")

        handler = Counting()
        logging.getLogger().addHandler(handler)
        try:
            client.incr("")  # it is dropped, which is logged
            await server.until_asked()
        finally:
            logging.getLogger().removeHandler(handler)
    assert sums(server)["log.WARNING"] == 1


def test_an_increment_never_waits_for_the_sums() -> None:
    """A thread that changes them holds their lock for as long as it likes."""
    tally = Tally(10)
    with tally._folding:
        for _ in range(CROWDED + 100):
            tally.add("a", 1, None)
            if len(tally.events) > CROWDED:
                tally.relieve(lambda: None)
        tally.refuse("")
        assert len(tally.events) == CROWDED + 99
        assert tally.dropped == 1
    until = time.monotonic() + 10
    while tally.sums.get("a") != (CROWDED + 99, CROWDED + 99):
        assert time.monotonic() < until
        time.sleep(0.01)


class Evil:
    """Like a proxy of an object that is gone."""

    @property  # type: ignore[misc] # mypy knows what a class is
    def __class__(self) -> type:
        raise RuntimeError("there is no request")

    def __hash__(self) -> int:
        raise RuntimeError("there is no request")

    def __index__(self) -> int:
        raise RuntimeError("there is no request")


async def test_objects_that_raise_are_dropped_as_well(server: Scripted) -> None:
    async with AsyncClient(server.url) as client:
        evil: Any = Evil()
        client.incr(evil)
        client.incr("a", evil)
        client.incr("a", 1, evil)
        client.incr("a")
        assert await client.flush(60)
        assert client.dropped == 3
    assert sums(server) == {"a": 1}


async def test_a_thread_that_could_not_start_starts_later(server: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    client = Client(server.url)
    with monkeypatch.context() as patch:
        patch.setattr("countersink.interrupts._thread.start_new_thread", refuse)
        for _ in range(CROWDED + 10):
            client.incr("a")
    assert not server.asked
    assert await asyncio.to_thread(client.flush, 60)
    assert sums(server) == {"a": CROWDED + 10}
    assert await asyncio.to_thread(client.close)


@given(st.text() | st.sampled_from([*(bad[0] for bad in BAD), "a" * 400, "é" * 201, "___", "____", "a b", "ü/☃"]))
def test_the_rules_are_those_of_the_service(text: Any) -> None:
    assert (rules.flaw_of_name(text) is None) == (flaw_of_name(text) is None)
    assert (rules.flaw_of_id(text) is None) == (flaw_of_id(text) is None)
    assert (rules.flaw_of_prefix(text) is None) == (jobs.flaw_of_prefix(text) is None)
    assert (rules.flaw_of_job(text) is None) == (jobs.flaw_of_job(text) is None)


@given(st.integers() | st.sampled_from([2**53 - 1, 2**53, 1 - 2**53, -(2**53), True, None, 1.0, "1"]))
def test_the_rule_for_deltas_is_that_of_the_service(delta: Any) -> None:
    assert (rules.flaw_of_delta(delta) is None) == (flaw_of_delta(delta) is None)


def test_what_is_no_key_is_said_at_once() -> None:
    with pytest.raises(RejectedError, match="printable"):
        Client("http://127.0.0.1:1", "no key")
