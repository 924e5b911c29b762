"""Where rows are tested: on the emulators that all tests share, or, if they are to be hurt, on some of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulators.datastore_fixtures import firestore_host
from tests.emulators.own import OwnEmulator
from tests.emulators.pubsub_fixtures import pubsub_host
from tests.emulators.redis_fixtures import RedisServer, redis, start_redis
from tests.processes.fleet.pairs import Embedded, Pair
from tests.reliability.own_servers import Own, on, own
from tests.reliability.rows import SQLITE, Row

__all__ = ["firestore_host", "pubsub_host", "redis", "start_redis"]


class Shared:
    """The ground of one test."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        self._request = request
        self.folder = folder

    async def pair(self, row: Row, name: str) -> Pair:
        if name == SQLITE:
            return Embedded(self.folder)
        pubsub = self.emulator("pubsub").host if row.hurt == "broker" else self._fixture("pubsub_host")
        if row.hurt == "store":
            return await on(pubsub, self.emulator(name).host)
        return await on(pubsub, self._fixture("firestore_host"))

    def _fixture(self, name: str) -> str:
        host: str = self._request.getfixturevalue(name)
        return host

    def emulator(self, name: str) -> OwnEmulator:
        ground: Own = self._request.getfixturevalue("to_be_hurt")
        return ground.emulator(name)

    def redis(self) -> RedisServer:
        server: RedisServer = self._request.getfixturevalue("redis")
        return server


@pytest.fixture(scope="session")
def to_be_hurt() -> Iterator[Own]:
    """Of this worker alone; each of them is started when a row first asks for it."""
    with own() as ground:
        yield ground


@pytest.fixture
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Shared:
    return Shared(request, tmp_path)
