"""A service for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.config.windows import rules_of
from tests.http.service import Service, running


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running(tmp_path, windows=rules_of("page:=hour/90d,day/1y")) as it:
        yield it
