"""Keys while a service runs: they are read again, they have rates, and no key is ever logged."""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from ingest.access.callers import ADMIN_LOG
from ingest.access.door import Door
from ingest.access.keys import KeyRing, make, parse, written
from ingest.api.counters import ReadRoutes
from shared.config.lists import networks
from shared.model.errors import SettingsError
from shared.runtime import metrics
from tests.http.both_ways import ODD, ask, connected, poll, post
from tests.http.keys import SHOP, authorization, bearer, guarded, keys_file
from tests.http.service import Service, running
from tests.world.manual_clock import ManualClock


async def status(service: Service, text: str) -> int:
    return (await ask(service, post(b"{}", bearer(text)))).status


async def test_keys_are_read_again_when_the_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    async with guarded(tmp_path, a={"owner": "o"}) as (service, keys):
        tending = asyncio.create_task(service.ingest.tend())
        assert await status(service, keys["a"]) == 202
        second, text = make(id="b", scopes=["write"], owner="o")
        both = service.ingest.door._ring
        assert both is not None
        file.write_bytes(written([*both._keys.values(), second]))
        await poll(lambda: "b" in both._keys)
        assert [await status(service, one) for one in (keys["a"], text)] == [202, 202]
        file.write_bytes(written([second]))
        await poll(lambda: "a" not in both._keys)
        assert [await status(service, one) for one in (keys["a"], text)] == [401, 202]
        tending.cancel()
        await asyncio.gather(tending, return_exceptions=True)


@pytest.mark.parametrize("broken", [b"", b"{", b'{"keys": [{"id": "x"}]}', b"[]", None])
async def test_a_broken_file_keeps_the_old_keys_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, broken: bytes | None
) -> None:
    file, keys = keys_file(tmp_path, a={})
    good = file.read_bytes()
    ring = KeyRing(file, ManualClock())
    if broken is None:
        file.unlink()
    else:
        file.write_bytes(broken)
    for _ in range(3):
        assert not await ring.look()
    assert ring.find(keys["a"])
    (line,) = [record.getMessage() for record in caplog.records]
    assert str(file) in line
    assert "stay valid" in line
    with pytest.raises(SettingsError, match="keys file"):
        KeyRing(file, ManualClock())
    file.write_bytes(good + b"\n")
    assert await ring.look()
    caplog.clear()  # what was said is as it should be


async def test_a_fifo_is_no_keys_file(tmp_path: Path) -> None:
    """To open it would wait for ever."""
    os.mkfifo(tmp_path / "keys.json")
    with pytest.raises(SettingsError, match="is not a file"):
        KeyRing(tmp_path / "keys.json", ManualClock())


def test_a_file_without_a_secret_gets_one_from_its_keys(tmp_path: Path) -> None:
    """Who knows one of the keys alone can't make it."""
    file, _ = keys_file(tmp_path, a={"owner": "a"}, b={"owner": "b"})
    content = orjson.loads(file.read_bytes())
    secrets = set()
    for secret in (None, "", "short", sha256(b"").hexdigest()):
        one = parse(orjson.dumps({"keys": content["keys"]} | ({} if secret is None else {"secret": secret})))
        assert (one.secret, len(one.signs())) == ("", 64)
        secrets.add(one.signs())
    assert len(secrets) == 1
    assert parse(orjson.dumps({"keys": content["keys"][:1]})).signs() not in secrets
    assert parse(file.read_bytes()).signs() == content["secret"]


@dataclass
class Changing:
    """A service whose keys file can change at any moment."""

    service: Service
    file: Path
    clock: ManualClock
    key: str

    @property
    def named(self) -> dict[str, str]:
        return authorization(self.key)

    async def change(self, how: str) -> None:
        (key,) = parse(self.file.read_bytes()).keys
        changed = {
            "revoked": [],
            "replaced": [make(id="a", scopes=["write"])[0]],
            "narrowed": [replace(key, prefixes=("b",))],
            "joined": [key, make(id="b", scopes=["write"])[0]],
            "expired": [key],
        }
        self.file.write_bytes(written(changed[how]))
        await self.service.ingest._doors._look()
        if how == "expired":
            self.clock.turn(100)


@pytest.fixture
async def changing(tmp_path: Path) -> AsyncIterator[Changing]:
    clock = ManualClock()
    ends = datetime.fromtimestamp(clock.now() + 50, UTC).isoformat()
    async with guarded(tmp_path, a={"expires": ends}) as (service, keys):
        assert service.ingest.door._ring is not None
        service.ingest.door._clock = service.ingest.door._ring._clock = clock
        yield Changing(service, tmp_path / "keys.json", clock, keys["a"])


CHANGES: Final = [("revoked", 401), ("replaced", 401), ("expired", 401), ("narrowed", 503), ("joined", 200)]


@pytest.mark.parametrize(("how", "status"), CHANGES)
async def test_a_key_is_judged_again_when_the_body_has_come(changing: Changing, how: str, status: int) -> None:
    service = changing.service
    async with contextlib.AsyncExitStack() as opened:
        begun = []
        for method, target, body in (
            ("PUT", "/v1/counters/a", b'{"value": 7}'),
            ("POST", "/v1/jobs", b'{"kind": "add", "prefix": "a", "delta": 1, "id": "j"}'),
            ("POST", "/v1/increments", b'[{"counter": "a"}]'),
            ("POST", "/v1/events", b'{"counter": "a"}'),
            ("POST", "/v1/counters/a", b"{}  "),
        ):
            client = await opened.enter_async_context(connected(service))
            head = f"{method} {target} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n".encode()
            event = b"ce-specversion: 1.0\r\nce-id: 1\r\nce-source: s\r\nce-type: t\r\n"
            held = service.ingest.bodies.held
            client.writer.write(head + event + bearer(changing.key) + b"\r\n" + body[:1])
            await poll(lambda held=held: service.ingest.bodies.held > held)
            begun.append((client, body))
        await changing.change(how)
        for client, body in begun:
            await client.ask(body[1:])
            assert int(client.seen[9:12]) in ({200, 202} if status == 200 else {status}), client.seen
    if how == "expired":
        told = (await service.ask("GET", "/v1/counters", headers=changing.named)).json["detail"]
        assert told == "the key a has expired: make another one with countersink keys new"
    await service.ingest.publishing.drain()
    assert bool(await service.parts.store.shards(["a"])) == (status == 200)


@pytest.mark.parametrize(("how", "status"), CHANGES)
async def test_a_key_is_judged_again_when_its_turn_has_come(changing: Changing, how: str, status: int) -> None:
    service = changing.service
    turns = service.chapter(ReadRoutes)._turns
    async with contextlib.AsyncExitStack() as taken:
        while turns._free:
            await taken.enter_async_context(turns.of("another"))
        targets = ("/v1/counters?name=a", "/v1/counters?prefix=a", "/v1/counters/a/watch")
        waits = [asyncio.create_task(service.ask("HEAD", target, None, changing.named)) for target in targets]
        await poll(lambda: sum(map(len, turns._rows.values())) == len(waits))
        await changing.change(how)
    assert [(await wait).status for wait in waits] == [status] * len(waits)


@pytest.mark.parametrize(("how", "status"), CHANGES)
@pytest.mark.parametrize("query", ["", "&return=value"])
async def test_a_key_that_ends_while_it_waits_sees_no_total(
    changing: Changing, query: str, how: str, status: int
) -> None:
    service = changing.service
    waits = [
        asyncio.create_task(service.ask("POST", f"{target}?wait=applied&timeout=60{query}", body, changing.named))
        for target, body in (("/v1/counters/a", None), ("/v1/increments", b'[{"counter": "a"}]'))
    ]
    await poll(lambda: len(service.ingest.waits._waits) == len(waits))
    await changing.change(how)
    await service.apply()
    for answer in [await wait for wait in waits]:
        assert answer.status == (200 if status == 200 else 202)
        assert status == 200 or not {"value", "values"} & answer.json.keys()


async def test_beyond_its_rate_a_key_gets_429_and_nothing_counts(tmp_path: Path) -> None:
    clock = ManualClock()
    async with guarded(tmp_path, a={"rate": 2}, b={}) as (service, keys):
        ring = service.ingest.door._ring
        assert ring is not None
        ring._buckets["a"]._clock = clock
        ring._buckets["a"]._then = clock.monotonic()
        accepted, limited = metrics.ACCEPTED.get(), metrics.LIMITED.get()
        assert [await status(service, keys["a"]) for _ in range(4)] == [202, 202, 429, 429]
        assert await status(service, keys["b"]) == 202
        clock.turn(0.5)
        assert [await status(service, keys["a"]) for _ in range(2)] == [202, 429]
        clock.turn(1)
        named = authorization(keys["a"])
        for body, expected in ((b'{"counters": {"x": 1, "y": 1, "z": 1, "w": 1}}', 202), (b"not even JSON", 429)):
            found = await service.ask("POST", "/v1/increments", body, named)
            assert found.status == expected
        assert found.headers["Retry-After"] == "2"  # 4 were sent when 2 were there
        assert "more than its 2 increments a second" in found.json["detail"]
        assert (await service.ask("GET", "/v1/counters", None, named)).status == 200
        clock.turn(1)
        assert await status(service, keys["a"]) == 429
        clock.turn(0.5)
        assert await status(service, keys["a"]) == 202
        assert metrics.ACCEPTED.get() - accepted == 9
        assert metrics.LIMITED.get() - limited == 5


async def test_a_key_keeps_its_rate_when_the_file_is_read_again(tmp_path: Path) -> None:
    file, _ = keys_file(tmp_path, a={"rate": 2}, b={"rate": 1})
    ring = KeyRing(file, ManualClock())
    before = dict(ring._buckets)
    file.write_bytes(file.read_bytes().replace(b'"rate": 1', b'"rate": 3'))
    assert await ring.look()
    assert ring._buckets["a"] is before["a"]
    assert ring._buckets["b"].rate == 3


async def test_increments_are_shared_out_by_key_or_by_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site: dict[str, Any] = {"scopes": ["write"], "prefixes": ["c"], "origins": [SHOP], "publishable": True}
    seen: list[str] = []
    async with guarded(tmp_path, a={}, site=site) as (service, keys):
        admission = service.ingest.publishing.admission
        enter = admission.enter

        def watched(tenant: str, *rest: Any) -> None:
            seen.append(tenant)
            enter(tenant, *rest)

        monkeypatch.setattr(admission, "enter", watched)
        for headers in (bearer(keys["a"]), bearer(keys["site"]) + f"Origin: {SHOP}\r\n".encode()):
            await ask(service, post(b'{"id": "x%d"}' % len(seen), headers))
    assert seen == ["key a", "127.0.0.1"]


async def test_who_did_what_with_the_scope_admin_is_logged_and_no_key_ever(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site: dict[str, Any] = {"scopes": ["write"], "prefixes": ["c"], "origins": [SHOP], "publishable": True}
    caplog.set_level(logging.DEBUG)
    async with guarded(tmp_path, ops={}, site=site, writer={"scopes": ["write"]}) as (service, keys):
        named = authorization(keys["ops"])
        job = b'{"kind": "reset", "prefix": "a\\n", "id": "j"}'
        for method, target, body in (
            ("PUT", "/v1/counters/a%C3%A9", b'{"value": 5}'),
            ("PUT", f"/v1/counters/{'%E2%80%A8' * 133}", b'{"value": 6}'),
            ("POST", "/v1/counters/a/reset", None),
            ("DELETE", "/v1/counters/a", None),
            ("PUT", "/v1/counters/a/shards", b'{"shards": 2}'),
            ("POST", "/v1/jobs", job),
            ("DELETE", "/v1/jobs/j", None),
            ("GET", "/v1/jobs/j", None),
            ("POST", "/v1/dead-letters/replay", b'{"all": true, "too_old": true}'),
            ("POST", "/v1/dead-letters/drop", b'{"ids": ["a\\n"]}'),
            ("GET", "/v1/dead-letters", None),
            ("POST", "/v1/counters/a", None),
            ("GET", "/v1/counters/a", None),
        ):
            assert (await service.ask(method, target, body, named)).status in {200, 202}
        for wrong in (f"Bearer {keys['ops']}x", f"Basic {keys['ops']}", f"Bearer {keys['writer']}"):
            assert (await service.ask("DELETE", "/v1/counters/a", None, {"Authorization": wrong})).status in {401, 403}
        for query in (f"key={keys['site']}", f"key={keys['ops']}", f"key={keys['site']}&x=1"):
            await service.ask("POST", f"/v1/counters/c?{query}", None, {"Origin": SHOP})
    lines = [record.getMessage() for record in caplog.records if record.name == ADMIN_LOG]
    assert lines == [
        "key ops from 127.0.0.1: set 'aé' to 5",
        f"key ops from 127.0.0.1: set {chr(0x2028) * 133!r} to 6",
        "key ops from 127.0.0.1: reset 'a'",
        "key ops from 127.0.0.1: delete 'a'",
        "key ops from 127.0.0.1: give 'a' 2 shards",
        "key ops from 127.0.0.1: start the job j: reset the counters under 'a\\n'",
        "key ops from 127.0.0.1: stop the job j",
        "key ops from 127.0.0.1: replay all dead letters, even if they are too old to tell whether they were counted",
        "key ops from 127.0.0.1: drop the dead letters ['a\\n']",
    ]
    for text in keys.values():
        assert text.rpartition("_")[2] not in caplog.text


async def test_the_client_behind_a_trusted_proxy_is_the_one_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    async with running(tmp_path, trusted_proxies=()) as service:
        door: Door = service.ingest.door
        enter = door.enter

        def watched(*shown: Any) -> Any:
            caller = enter(*shown)
            seen.append(caller.tenant)
            return caller

        monkeypatch.setattr(door, "enter", watched)
        forged = b"X-Forwarded-For: 1.2.3.4, 5.6.7.8\r\n"
        await ask(service, post(b"{}", forged))
        door._trusted = networks("127.0.0.0/8")
        door._callers.clear()
        await ask(service, post(b"{}", forged))
        await ask(service, post(b"{}", forged + ODD))
    assert seen == ["127.0.0.1", "5.6.7.8", "5.6.7.8"]
