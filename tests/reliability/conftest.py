"""Where rows are tested: on the emulators that all tests share."""

from pathlib import Path

import pytest

from tests.emulators.datastore_fixtures import Datastore, firestore_host, older_host
from tests.emulators.pubsub_fixtures import pubsub_host
from tests.emulators.redis_fixtures import RedisServer, redis, start_redis
from tests.fleet.pairs import Embedded, Pair, emulated
from tests.reliability.rows import BLIND, SQLITE, Row

__all__ = ["firestore_host", "older_host", "pubsub_host", "redis", "start_redis"]


class Shared:
    """The ground of one test."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        self._request = request
        self.folder = folder

    async def pair(self, row: Row, name: str) -> Pair:
        if name == SQLITE:
            return Embedded(self.folder)
        datastore = self._request.getfixturevalue("firestore_host" if name == BLIND else "older_host")
        return await emulated(self._request.getfixturevalue("pubsub_host"), Datastore(datastore), blind=name == BLIND)

    def redis(self) -> RedisServer:
        server: RedisServer = self._request.getfixturevalue("redis")
        return server


@pytest.fixture
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Shared:
    return Shared(request, tmp_path)
