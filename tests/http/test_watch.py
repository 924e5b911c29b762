"""Streams of counters: what they show, and when; slow readers, limits, and how they end."""

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from yarl import URL

from ingest.api import watch
from ingest.api.watch import WatchRoutes
from shared.model.errors import TransientError
from shared.runtime.clock import SystemClock
from tests.http import answer
from tests.http.both_ways import poll
from tests.http.keys import authorization, guarded, keys_file
from tests.http.service import Service, running
from tests.world.manual_clock import ManualClock


class Stream:
    """The events of one response."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def block(self) -> dict[str, str]:
        """The next event, field by field, or the next comment, which has none."""
        fields: dict[str, str] = {}
        async for line in self._response.content:
            text = line.decode().rstrip("\n")
            if not text:
                return fields
            name, _, value = text.partition(":")
            if name:
                fields[name] = value.lstrip()
        raise EOFError

    async def event(self) -> dict[str, str]:
        """The next one with data."""
        async with asyncio.timeout(60):
            while "data" not in (found := await self.block()):
                pass
            return found

    async def counter(self) -> Any:
        return orjson.loads((await self.event())["data"])

    async def value(self) -> int:
        value: int = (await self.counter())["value"]
        return value

    async def until(self, value: int) -> list[int]:
        """The values up to this one."""
        seen = [await self.value()]
        while seen[-1] != value:
            seen.append(await self.value())
        return seen

    async def ends(self) -> bool:
        async with asyncio.timeout(60):
            return b"data" not in await self._response.content.read()


@contextlib.asynccontextmanager
async def stream(service: Service, target: str, headers: dict[str, str] | None = None) -> AsyncIterator[Stream]:
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(None)) as session,
        session.get(URL(service.url + target, encoded=True), headers=headers) as response,
    ):
        assert response.status == 200, await response.text()
        assert response.headers["Content-Type"] == "text/event-stream"
        assert response.headers["Cache-Control"] == "no-cache, no-transform"
        assert response.headers["X-Accel-Buffering"] == "no"
        yield Stream(response)


async def test_the_value_now_and_on_each_change(service: Service) -> None:
    await service.incr("a/b", b'{"delta": 3}')
    async with stream(service, "/v1/counters/a%2Fb/watch") as it:
        first = await it.counter()
        reading = await service.read("a/b")
        assert first | {"as_of": ""} == reading | {"as_of": ""}
        await service.incr("a/b")
        assert await it.value() == 4
        await service.ask("PUT", "/v1/counters/a%2Fb", b'{"value": 1}')
        assert await it.value() == 1
        await service.ask("DELETE", "/v1/counters/a%2Fb")
        last = await it.counter()
        assert (last["value"], last["exists"]) == (0, False)


async def test_what_only_moves_to_the_store_is_no_change(service: Service) -> None:
    async with stream(service, "/v1/counters/a/watch") as it:
        assert (await it.counter())["exists"] is False
        await service.incr("a")
        assert await it.value() == 1
        await service.apply()
        await service.incr("a")
        assert await it.value() == 2


async def test_a_watch_goes_on_where_it_was_cut(service: Service) -> None:
    await service.incr("a")
    async with stream(service, "/v1/counters/a/watch") as it:
        seen = (await it.event())["id"]
    last = {"Last-Event-ID": seen}
    async with stream(service, "/v1/counters/a/watch", last) as it:
        assert (await it.block()).keys() == {"retry"}
        await service.incr("a")
        event = await it.event()
        assert orjson.loads(event["data"])["value"] == 2
        assert event["id"] != seen
    async with stream(service, "/v1/counters/a/watch", last) as it:
        assert await it.value() == 2


async def test_many_counters_in_one_stream(service: Service) -> None:
    await service.incr("a")
    async with stream(service, "/v1/watch?name=b&name=a&name=b") as it:
        assert [(one["name"], one["value"]) for one in (await it.counter(), await it.counter())] == [("b", 0), ("a", 1)]
        await service.incr("b")
        await service.incr("c")
        changed = await it.counter()
        assert (changed["name"], changed["value"]) == ("b", 1)


async def test_a_prefix_shows_what_is_there_what_comes_and_what_goes(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LISTING", 0)
    await service.incr("p:a")
    await service.incr("p:gone")
    await service.ask("DELETE", "/v1/counters/p:gone")
    await service.incr("q")
    async with stream(service, "/v1/watch?prefix=p:") as it:
        first = await it.counter()
        assert (first["name"], first["value"]) == ("p:a", 1)
        await service.incr("p:b")
        assert (await it.counter())["name"] == "p:b"
        await service.ask("DELETE", "/v1/counters/p:a")
        gone = await it.counter()
        assert (gone["name"], gone["exists"]) == ("p:a", False)
        await service.apply()
        await service.remove()
        await service.incr("p:a")
        back = await it.counter()
        assert (back["name"], back["value"]) == ("p:a", 1)


async def test_a_prefix_with_too_many_counters_is_refused_at_once_or_ends_later(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LISTING", 0)
    monkeypatch.setattr(watch, "MOST_IN_STREAM", 2)
    await service.incr("p:a")
    async with stream(service, "/v1/watch?prefix=p:") as it:
        assert await it.value() == 1
        await service.post("/v1/increments", b'{"counters": {"p:b": 1, "p:c": 1}}')
        async with asyncio.timeout(60):
            while (event := await it.event()).get("event") != "problem":
                pass
        assert orjson.loads(event["data"])["status"] == 422
        assert await it.ends()
    assert (await service.get("/v1/watch?prefix=p:")).status == 422


async def test_a_slow_reader_gets_the_newest_value_and_no_queue(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "INTERVAL", 0.001)
    monkeypatch.setattr(watch, "_id", lambda shown: f"{shown.value}" * 100_000)  # so that the buffers are soon full
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setblocking(False)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        await loop.sock_connect(client, service.address)
        await loop.sock_sendall(client, b"GET /v1/counters/a/watch HTTP/1.1\r\nHost: h\r\n\r\n")
        await poll(lambda: bool(service.ingest.watches._watches))
        (slow,) = service.ingest.watches._watches
        value, is_slow = 0, False
        while not is_slow:
            value += 1
            assert value < 300, "the kernel takes everything"
            await service.ask("PUT", "/v1/counters/a", b'{"value": %d}' % value)
            await poll(lambda: slow._last["a"].value == value)  # noqa: B023 (it is called at once)
            try:
                async with asyncio.timeout(1):
                    await poll(lambda: not slow._fresh)
            except TimeoutError:
                is_slow = True
        for skipped in (value + 1, 1_000):
            await service.ask("PUT", "/v1/counters/a", b'{"value": %d}' % skipped)
        await poll(lambda: [shown.value for shown in slow._fresh.values()] == [1_000])
        seen = b""
        async with asyncio.timeout(60):
            while b'"value":1000,' not in seen:
                seen += await loop.sock_recv(client, 1_000_000)
        assert b'"value":%d,' % (value + 1) not in seen


async def test_a_quiet_stream_has_a_heartbeat_and_a_client_that_has_gone_is_noticed(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "HEARTBEAT", 0.02)
    async with stream(service, "/v1/counters/a/watch") as it:
        await it.event()
        assert await it.block() == {}
        assert service.ingest.watches.places.held == watch.LEAST
    await poll(lambda: not service.ingest.watches.places.held)
    assert service.ingest.watches._task is None
    assert not service.ingest.watches._shown


@pytest.mark.parametrize("reset", [False, True])
async def test_who_opens_and_drops_streams_takes_no_places(service: Service, reset: bool) -> None:
    """Long before the next heartbeat, so that a page that is loaded again and again is never refused."""
    held = service.ingest.watches.places
    for _ in range(3):
        connection = socket.create_connection(service.address)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_sendall(
            connection, b"GET /v1/watch?prefix=a HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        await poll(lambda: held.held == watch.MOST_IN_STREAM)
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        async with asyncio.timeout(watch.HEARTBEAT / 2):
            await poll(lambda: not held.held)


async def test_a_client_that_sends_no_more_but_reads_keeps_its_stream(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LEAVING", 0.02)
    reader, writer = await asyncio.open_connection(*service.address)
    writer.write(b"GET /v1/counters/a/watch HTTP/1.1\r\nHost: localhost\r\n\r\n")
    writer.write_eof()
    async with asyncio.timeout(60):
        for _ in range(5):
            await reader.readuntil(b":\n\n")
        await service.incr("a", query="?by=7")
        await reader.readuntil(b'"value":7,')
    writer.close()
    await poll(lambda: not service.ingest.watches.places.held)


async def test_all_watches_of_a_counter_share_one_look(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    async with contextlib.AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(stream(service, "/v1/counters/a/watch")) for _ in range(20)]
        assert [await it.value() for it in streams] == [0] * 20
        asked: list[int] = []
        read = service.ingest.reader.read

        async def counted(names: Any, *more: Any) -> Any:
            asked.append(len(names))
            return await read(names, *more)

        monkeypatch.setattr(service.ingest.reader, "read", counted)
        await service.incr("a")
        assert [await it.value() for it in streams] == [1] * 20
        assert set(asked) == {1}


async def test_a_client_has_a_share_and_others_the_rest(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.ingest.watches.places.limit = 4 * watch.LEAST
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(2):
            await (await stack.enter_async_context(stream(service, "/v1/counters/a/watch"))).event()
        full = await service.get("/v1/counters/a/watch")
        assert full.status == 429
        assert "end some of them" in full.json["detail"]
        service.ingest.watches.places.limit = 2 * watch.LEAST
        full = await service.get("/v1/watch?name=b")
        assert full.status == 503
        assert (await service.incr("a")).status == 202


async def test_head_answers_the_headers_and_ends(service: Service) -> None:
    found = await service.raw(b"HEAD /v1/counters/a/watch HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    assert (found.status, found.headers["Content-Type"]) == (200, "text/event-stream")
    assert not service.ingest.watches._shown  # else anybody could fill it with made-up names


async def test_a_stream_ends_when_the_service_stops(tmp_path: Path) -> None:
    async with running(tmp_path) as service:
        async with stream(service, "/v1/counters/a/watch") as it:
            await it.event()
            async with asyncio.timeout(5):  # the drain may take longer
                await service.ingest.watches.stop()
                assert await it.ends()
        assert answer.parse(await service.send(b"GET /v1/watch?name=a HTTP/1.0\r\nHost: h\r\n\r\n")).status == 200


async def test_an_outage_is_waited_for(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with stream(service, "/v1/counters/a/watch") as it:
        assert await it.value() == 0
        tries = 0

        async def away(*_: Any) -> Any:
            nonlocal tries
            tries += 1
            raise TransientError("the store is away")

        monkeypatch.setattr(service.ingest.reader, "read", away)
        await poll(lambda: tries >= 2)
        assert [record.message for record in caplog.records if "watched" in record.message] == [
            "the watched counters could not be read, and will be read again: the store is away"
        ]
        assert (await service.get("/v1/counters/b/watch")).status == 503
        monkeypatch.undo()
        await service.incr("a")
        assert await it.value() == 1


async def test_a_stream_ends_with_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    file, keys = keys_file(tmp_path, revoked={}, expires={"expires": soon.isoformat()}, stays={})
    monkeypatch.setattr(watch, "HEARTBEAT", 0.05)
    async with running(tmp_path, keys_file=str(file)) as service:
        headers = {name: authorization(text) for name, text in keys.items()}
        async with (
            stream(service, "/v1/counters/a/watch", headers["revoked"]) as one,
            stream(service, "/v1/counters/a/watch", headers["expires"]) as other,
        ):
            await one.event()
            await other.event()
            assert await other.block() == {}  # it goes on
            monkeypatch.setattr(SystemClock, "now", lambda _: soon.timestamp())
            assert await other.ends()
            content = orjson.loads(file.read_bytes())
            content["keys"] = [key for key in content["keys"] if key["id"] != "revoked"]
            file.write_bytes(orjson.dumps(content))
            await service.ingest._doors._look()
            assert await one.ends()
        for name, status in {"revoked": 401, "expires": 401}.items():
            assert (await service.ask("GET", "/v1/counters/a/watch", headers=headers[name])).status == status
        async with stream(service, "/v1/counters/a/watch", headers["stays"]) as it:
            await it.event()


@pytest.mark.parametrize("target", ["/v1/counters/a/watch", "/v1/watch?name=a", "/v1/watch?prefix="])
async def test_a_stream_shows_nothing_that_comes_after_its_key_has_expired(tmp_path: Path, target: str) -> None:
    """It may wait for news when the key expires."""
    clock = ManualClock(int(time.time()))
    ends = datetime.fromtimestamp(clock.now() + 60, UTC)
    async with guarded(tmp_path, expires={"expires": ends.isoformat()}, all={}) as (service, keys):
        service.ingest.door._clock = service.chapter(WatchRoutes)._clock = clock
        everything, one = (authorization(keys[name]) for name in ("all", "expires"))
        await service.ask("POST", "/v1/counters/a", headers=everything)
        async with stream(service, target, one) as it:
            assert await it.value() == 1
            await service.ask("POST", "/v1/counters/a", headers=everything)
            assert await it.value() == 2
            clock.turn(60)
            await service.ask("POST", "/v1/counters/a", headers=everything)
            with pytest.raises(EOFError):
                await it.event()


async def test_a_key_sees_only_its_own(tmp_path: Path) -> None:
    async with guarded(tmp_path, one={"prefixes": ["p:a", "p:b"]}, all={}) as (service, keys):
        everything, one = (authorization(keys[name]) for name in ("all", "one"))
        await service.ask("POST", "/v1/increments", b'{"counters": {"p:a": 1, "p:b": 2, "p:c": 3}}', everything)
        for target in ("/v1/counters/p:c/watch", "/v1/watch?name=p:a&name=p:c", "/v1/watch?prefix=q"):
            assert (await service.ask("GET", target, headers=one)).status == 403
        async with stream(service, "/v1/watch?prefix=p:", one) as it:
            assert [await it.value(), await it.value()] == [1, 2]
            await service.ask("POST", "/v1/increments", b'{"counters": {"p:c": 3}}', everything)
            await service.ask("POST", "/v1/increments", b'{"counters": {"p:b": 3}}', everything)
            assert await it.value() == 5
