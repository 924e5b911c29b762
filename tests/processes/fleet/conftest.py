"""The pairs as fixtures; and what every fleet's processes must not have said."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.emulators.datastore_fixtures import Datastore, firestore_host
from tests.emulators.pubsub_fixtures import pubsub_host
from tests.emulators.redis_fixtures import redis, start_redis
from tests.processes.fleet.pairs import Embedded, Emulated, Pair, emulated

__all__ = ["firestore_host", "pubsub_host", "redis", "start_redis"]


async def _emulated(request: pytest.FixtureRequest) -> Emulated:
    datastore = Datastore(request.getfixturevalue("firestore_host"))
    return await emulated(request.getfixturevalue("pubsub_host"), datastore)


@pytest.fixture(params=["sqlite", pytest.param("emulators", marks=pytest.mark.check)])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    one = Embedded(tmp_path) if request.param == "sqlite" else await _emulated(request)
    yield one
    await one.close()


@pytest.fixture
async def on_emulators(request: pytest.FixtureRequest) -> AsyncIterator[Emulated]:
    one = await _emulated(request)
    yield one
    await one.close()
