"""The client of a topic: what it publishes, what it tries again, and what it drops."""

import asyncio
import base64
import logging
import os
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from google.oauth2.credentials import Credentials

from countersink import AsyncClient, Client, RejectedError, pubsub
from shared.model.buckets import BrokerMillis
from shared.model.words import Delivery, Message
from shared.wire.codec import decode
from tests.meta.checkout import ROOT
from tests.unit.client.scripted import WHOLE, Asked, Scripted, says, scripted

TOPIC = "pubsub://project/counts"
PUBLISHED = says(200, {"messageIds": ["1"]})


def error(code: int, status: str) -> Any:
    return says(code, {"error": {"code": code, "message": "because", "status": status}})


def message(asked: Asked) -> Message:
    (one,) = asked.body["messages"]
    return Message(base64.b64decode(one["data"]), one["attributes"])


def counted(server: Scripted) -> Counter[str]:
    """What a flusher makes of the messages: those with one id count once."""
    found: Counter[str] = Counter()
    for one in {message.key: message for message in map(_envelope, server.asked)}.values():
        found.update(one.sums)
        for item in one.keyed:
            found[item.counter] += item.delta
    return found


def _envelope(asked: Asked) -> Any:
    (envelope,) = decode(Delivery("", message(asked), "", BrokerMillis(0)), "")
    assert envelope.foreign
    assert envelope.retried
    return envelope


@pytest.fixture
def emulator(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a scripted server what the client takes for Pub/Sub."""
    return lambda server: monkeypatch.setenv("PUBSUB_EMULATOR_HOST", server.url.removeprefix("http://"))


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Google gives the tokens `first`, `second` and so on."""
    tokens = iter(["first", "second", "third"])
    monkeypatch.delenv("PUBSUB_EMULATOR_HOST", raising=False)
    monkeypatch.setattr("google.auth.default", lambda **_: (Credentials(next(tokens)), "project"))


async def test_a_batch_is_one_message_that_a_flusher_reads(emulator: Any) -> None:
    async with scripted(PUBLISHED) as server:
        emulator(server)
        async with AsyncClient(TOPIC, interval=60) as client:  # a pause divides nothing
            for _ in range(100):
                client.incr("a")
            client.incr("é", -2)
            client.incr("a", 3, id="x")
            assert await client.flush(60)
            assert client.dropped == 0
    assert {asked.path for asked in server.asked} == {"/v1/projects/project/topics/counts:publish"}
    assert len(server.asked) == 2
    assert counted(server) == {"a": 103, "é": -2}


LATER: Any = [
    "cut", error(429, "RESOURCE_EXHAUSTED"), error(503, "UNAVAILABLE"), error(504, "DEADLINE_EXCEEDED"),
    error(500, "INTERNAL"), error(409, "ABORTED"), error(499, "CANCELLED"), says(200, b"<html>"), says(200, {}),
]  # fmt: skip


@pytest.mark.parametrize("step", LATER)
@pytest.mark.parametrize("id_", [None, "x"])
async def test_what_is_published_again_is_the_same_message(emulator: Any, step: Any, id_: str | None) -> None:
    async with scripted(step, step, PUBLISHED) as server:
        emulator(server)
        async with AsyncClient(TOPIC, interval=WHOLE) as client:
            client.incr("a", id=id_)
            assert await client.flush(60)
            assert client.dropped == 0
    assert len(server.asked) == 3
    assert len({asked.raw for asked in server.asked}) == 1
    assert counted(server) == {"a": 1}


@pytest.mark.parametrize(
    "status", [(400, "INVALID_ARGUMENT"), (401, "UNAUTHENTICATED"), (403, "PERMISSION_DENIED"), (404, "NOT_FOUND")]
)
async def test_what_pubsub_refuses_is_dropped(
    emulator: Any, status: tuple[int, str], caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted(error(*status), PUBLISHED) as server:
        emulator(server)
        async with AsyncClient(TOPIC) as client:
            client.incr("a")
            assert await client.flush(60)
            assert client.dropped == 1
            client.incr("b")
            assert await client.flush(60)
    assert f"{TOPIC}: {status[1]}: because" in caplog.text
    assert counted(server)["b"] == 1


async def test_a_token_that_has_expired_is_replaced(credentials: None, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = error(401, "UNAUTHENTICATED")
    async with scripted(PUBLISHED, refused, PUBLISHED) as server:
        monkeypatch.setattr(pubsub, "GOOGLE", server.url)
        async with AsyncClient(TOPIC, interval=WHOLE) as client:
            for _ in range(2):
                client.incr("a")
                assert await client.flush(60)
            assert client.dropped == 0
    tokens = [{name.lower(): value for name, value in asked.headers.items()}["authorization"] for asked in server.asked]
    assert tokens == ["Bearer first", "Bearer first", "Bearer second"]
    assert counted(server) == {"a": 2}


async def test_without_credentials_it_goes_on_trying_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none(**_: Any) -> Any:
        raise OSError("there are none")

    monkeypatch.delenv("PUBSUB_EMULATOR_HOST", raising=False)
    monkeypatch.setattr("google.auth.default", none)
    client = Client(TOPIC, interval=WHOLE)
    client.incr("a")
    assert not await asyncio.to_thread(client.flush, 0.5)
    assert client.dropped == 0
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert said == [f"countersink keeps trying: no credentials for {TOPIC}: there are none"]
    assert not await asyncio.to_thread(client.close, 0.1)
    assert client.dropped == 1


async def test_a_topic_cannot_be_asked() -> None:
    async with AsyncClient(TOPIC) as client:
        with pytest.raises(RejectedError, match="is a topic: count with incr"):
            await client.get("a")
        with pytest.raises(RejectedError, match="is a topic: count with incr"):
            await client.increment_many({"a": 1})


@pytest.mark.parametrize(
    "url", ["pubsub://p", "pubsub://p/t?subscription=s", "pubsub://p/1x", "pubsub:p/topic", "pubsub://"]
)
def test_a_url_of_a_topic_is_checked(url: str) -> None:
    with pytest.raises(ValueError, match="write it as pubsub://PROJECT/TOPIC"):
        Client(url)


def test_a_topic_takes_no_key() -> None:
    with pytest.raises(ValueError, match="takes no key"):
        Client(TOPIC, "csk_x")


def test_without_the_extra_the_error_says_what_to_install() -> None:
    command = [sys.executable, "-S", "-c", f"from countersink import Client; Client({TOPIC!r})"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("pip install 'google-auth[requests]'")
