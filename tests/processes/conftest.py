"""What tests of processes share."""

from collections.abc import AsyncIterator

import pytest

from tests.processes.collector import Collector, collecting


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with collecting() as one:
        yield one
