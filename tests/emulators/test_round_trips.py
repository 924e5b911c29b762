"""The calls that one counter takes on Google Cloud, in sequence: those that docs/google-cloud.md lists."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from countersink_server.serve.run import ingest_of
from countersink_server.serve.sockets import PREFIX, Address, listening
from flusher.flush.flusher import Flusher
from flusher.service import make_flusher
from shared.config.settings import Settings
from shared.datastore.client import DatastoreClient
from shared.pubsub.client import PubsubClient
from shared.redis import scripts
from shared.redis.overlay import RedisOverlay
from shared.redis.server import Server
from shared.wiring.process import connect
from tests.emulators.datastore_fixtures import Datastore
from tests.emulators.pubsub_fixtures import Pubsub, settings_of
from tests.emulators.redis_fixtures import RedisServer

SCRIPTS = {script: name for name, script in vars(scripts).items() if isinstance(script, scripts.Script)}
IN_REDIS = {"WRITE", "SETTLE", "VIEW"}
"""The others are for the fleet, in the background."""
POSTED = ["Redis WRITE", "Pub/Sub Publish", "Redis WRITE"]
APPLIED = ["Datastore BeginTransaction", "Datastore Commit", "Pub/Sub Acknowledge", "Redis SETTLE"]
APPLIED_NEW = ["Datastore Lookup config", *APPLIED]
READ = ["Redis VIEW", "Datastore Lookup config guard shard"]
READ_PENDING = ["Redis VIEW", "Datastore Lookup config guard receipt shard"]


class Calls:
    """Notes the calls of all clients in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kinds: dict[str, str]) -> None:
        self.made: list[str] = []
        self._kinds = kinds
        for client, name in ((DatastoreClient, "_call"), (Server, "ask")):
            monkeypatch.setattr(client, name, self._noting(getattr(client, name)))
        for name in ("publish", "acknowledge"):  # a pull is outstanding all the time
            monkeypatch.setattr(PubsubClient, name, self._noting_pubsub(name, getattr(PubsubClient, name)))

    def _noting(self, call: Any) -> Any:
        async def noted(client: Any, what: Any, *arguments: Any, **named: Any) -> Any:
            if (said := self._said(what, *arguments)) is not None:
                self.made.append(said)
            return await call(client, what, *arguments, **named)

        return noted

    def _noting_pubsub(self, name: str, call: Any) -> Any:
        async def noted(*arguments: Any) -> Any:
            self.made.append(f"Pub/Sub {name.capitalize()}")
            return await call(*arguments)

        return noted

    def _said(self, what: Any, request: Any, *_: Any) -> str | None:
        if isinstance(what, scripts.Script):
            return f"Redis {SCRIPTS[what]}" if SCRIPTS[what] in IN_REDIS else None
        if what != "Lookup":
            return f"Datastore {what}"
        kinds = {self._kinds[key.path[-1].kind] for key in request.keys}
        return f"Datastore Lookup {' '.join(sorted(kinds))}" if "fleet" not in kinds else None

    def taken(self) -> list[str]:
        made, self.made = self.made, []
        return made


class Counting:
    """An ingest and a flusher in this process. Each method does something, and returns the calls that it took."""

    def __init__(self, session: aiohttp.ClientSession, flusher: Flusher, calls: Calls) -> None:
        self._session = session
        self._flusher = flusher
        self._calls = calls

    async def post(self, name: str) -> list[str]:
        self._calls.taken()
        async with self._session.post(f"/v1/counters/{name}", json={"delta": 1}) as answer:
            assert answer.status == 202
        return self._calls.taken()

    async def flush(self) -> list[str]:
        await self._flusher.tend_once()
        self._calls.taken()
        while not await self._flusher.pull_once():
            pass
        await self._flusher.flush_once()
        return self._calls.taken()

    async def read(self, name: str, value: int) -> list[str]:
        self._calls.taken()
        async with self._session.get(f"/v1/counters/{name}?max_age=0") as answer:
            reading = await answer.json()
        assert (reading["value"], reading["exact"]) == (value, True)
        return self._calls.taken()


@asynccontextmanager
async def counting(settings: Settings, folder: Path, calls: Calls) -> AsyncIterator[Counting]:
    """Both have begun, and have seen that they may use the store, with a counter `warm`."""
    parts, others = connect(settings, publishes=True), connect(settings)
    await parts.open()
    await others.open()
    service = ingest_of(parts, settings)
    with listening(Address(f"{PREFIX}{folder}/s", 0), keys=False) as sockets:
        assert sockets.public is not None
        await service.start(sockets.public)
        connector = aiohttp.UnixConnector(f"{folder}/s")
        async with aiohttp.ClientSession("http://localhost", connector=connector) as session:
            one = Counting(session, make_flusher(others, settings), calls)
            await one.post("warm")
            await one.flush()
            await one.read("warm", 1)
            yield one
        await service.stop()
    await parts.close()
    await others.close()


async def test_one_counter_takes_the_calls_that_the_page_lists(
    pubsub: Pubsub, datastore: Datastore, redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = settings_of(pubsub, datastore) | {"COUNTERSINK_OVERLAY": redis.url}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("ingest.service.INTERVAL", 3_600.0)  # no look at what overlays hold for long
    monkeypatch.setattr("shared.redis.overlay.RedisOverlay", partial(RedisOverlay, timeout=60.0))
    calls = Calls(monkeypatch, {kind: name for name, kind in asdict(datastore.place.kinds).items()})
    async with counting(Settings.read(environment), tmp_path, calls) as one:
        assert await one.post("c") == POSTED
        assert await one.flush() == APPLIED_NEW
        assert await one.read("c", 1) == READ
        assert await one.post("c") == POSTED
        assert await one.read("c", 2) == READ_PENDING
        assert await one.flush() == APPLIED
        assert await one.read("c", 2) == READ
