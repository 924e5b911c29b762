"""What the Python client sends again, under which id, and for how long."""

import asyncio
import time

import pytest

from countersink.client import Client, RejectedError, RequestError, UnavailableError
from shared.model.errors import CountersinkError, SettingsError
from tests.unit.client.scripted import accepted, problem, says, scripted


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 507])
async def test_later_is_tried_again_under_the_same_id(status: int) -> None:
    async with (
        scripted(problem(status, "later"), says(status, b"<html>"), "cut", accepted()) as server,
        Client(server.url) as client,
    ):
        answer = await client.increment("a")
    assert answer.accepted == 1
    assert {asked.body["id"] for asked in server.asked} == {answer.id}
    assert len(server.asked) == 4


async def test_each_increment_without_an_id_gets_one_of_its_own() -> None:
    async with scripted(accepted()) as server, Client(server.url) as client:
        for _ in range(3):
            await client.increment("a")
        await client.increment("a", id="mine")
    ids = [asked.body["id"] for asked in server.asked]
    assert len(set(ids)) == 4
    assert ids[-1] == "mine"


async def test_a_batch_is_tried_again_under_the_same_key() -> None:
    async with scripted("cut", problem(503, "later"), accepted()) as server, Client(server.url) as client:
        answer = await client.increment_many({"a": 2})
    assert {asked.headers["Idempotency-Key"] for asked in server.asked} == {answer.id}
    assert [asked.body for asked in server.asked] == [{"counters": {"a": 2}}] * 3


async def test_retry_after_is_honoured() -> None:
    async with scripted(problem(503, "later", Retry_After="1"), accepted()) as server, Client(server.url) as client:
        begun = time.monotonic()
        await client.increment("a")
        assert time.monotonic() - begun >= 1.0


async def test_a_retry_after_that_is_longer_than_the_patience_is_not_waited_for() -> None:
    async with (
        scripted(problem(507, "the disk is full: free some space", Retry_After="10")) as server,
        Client(server.url, patience=5) as client,
    ):
        begun = time.monotonic()
        with pytest.raises(UnavailableError, match=r"^the disk is full: free some space$") as raised:
            await client.increment("a", id="mine")
        assert time.monotonic() - begun < 3
    assert (raised.value.status, raised.value.id) == (507, "mine")


@pytest.mark.parametrize("retry_after", ["", "soon", "Wed, 21 Oct 2026 07:28:00 GMT", "²", "-1"])
async def test_a_retry_after_that_is_no_number_is_no_error(retry_after: str) -> None:
    async with (
        scripted(problem(503, "later", Retry_After=retry_after), accepted()) as server,
        Client(server.url) as client,
    ):
        assert (await client.increment("a")).accepted == 1


async def test_an_error_says_under_which_id_it_is_safe_to_send_again() -> None:
    async with scripted(problem(503, "later")) as server, Client(server.url, patience=0.2) as client:
        with pytest.raises(UnavailableError) as one:
            await client.increment("a")
        first = len(server.asked)
        with pytest.raises(UnavailableError) as many:
            await client.increment_many([{"counter": "a"}])
    assert first > 1
    assert one.value.id == server.asked[0].body["id"]
    assert many.value.id == server.asked[first].headers["Idempotency-Key"]


async def test_a_server_that_never_answers_is_given_up() -> None:
    async with scripted("hang") as server, Client(server.url, patience=0) as client:
        begun = time.monotonic()
        with pytest.raises(UnavailableError, match="took longer than 1 seconds"):
            await client.increment("a")
        assert time.monotonic() - begun < 5


async def test_nobody_there_is_an_error_that_says_so() -> None:
    async with Client("http://127.0.0.1:1", patience=0.2) as client:
        with pytest.raises(
            UnavailableError, match=r"no answer from http://127\.0\.0\.1:1: Connection refused"
        ) as raised:
            await client.get("a")
    assert raised.value.__cause__ is not None
    assert raised.value.status is None


async def test_a_cancelled_request_ends_at_once() -> None:
    async with scripted(problem(503, "later", Retry_After="10")) as server, Client(server.url, patience=60) as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await client.increment("a")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 414, 422])
async def test_a_refusal_is_an_error_at_once_with_its_detail(status: int) -> None:
    async with scripted(problem(status, "it is wrong")) as server, Client(server.url) as client:
        with pytest.raises(RejectedError, match=r"^it is wrong$") as raised:
            await client.increment("a")
    assert len(server.asked) == 1
    assert raised.value.status == status
    assert isinstance(raised.value, RequestError)
    assert isinstance(raised.value, CountersinkError)


@pytest.mark.parametrize(
    "answer",
    [
        says(200, b"<html>hello</html>"),
        says(200, b""),
        says(200, [1]),
        says(200, {"hello": "world"}),
        says(404, b"not found"),
        says(301, b"", Location="/elsewhere"),
    ],
)
async def test_a_server_that_is_not_countersink_is_an_error_at_once(answer: object) -> None:
    async with scripted(answer) as server, Client(server.url) as client:  # type: ignore[arg-type] # a step
        for ask in (client.increment("a"), client.get("a"), client.get_many(["a"]), client.receipt("r")):
            with pytest.raises(RejectedError, match="is the URL right"):
                await ask
    assert len(server.asked) == 4


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8080", "localhost", "ftp://a", "http://", "http://a:x", "http://a:99999", "http://a?b"]
)
def test_what_is_no_url_is_said_at_once(url: str) -> None:
    with pytest.raises(SettingsError, match="is no URL of a service"):
        Client(url)


async def test_a_password_in_the_url_is_not_repeated() -> None:
    async with Client("http://me:secret@127.0.0.1:1", patience=0) as client:
        with pytest.raises(UnavailableError) as raised:
            await client.get("a")
    assert "secret" not in str(raised.value)


async def test_headers_and_a_path_before_ours_go_along() -> None:
    async with scripted(accepted()) as server, Client(f"{server.url}/behind/", headers={"X-Key": "k"}) as client:
        await client.increment("a/ü?")
    assert server.asked[0].path == "/behind/v1/counters/a%2F%C3%BC%3F"
    assert server.asked[0].headers["X-Key"] == "k"


async def test_a_client_that_was_not_entered_says_so() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await Client("http://127.0.0.1:1").get("a")
