"""A service for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.http.service import Service, running


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running(tmp_path) as it:
        yield it
