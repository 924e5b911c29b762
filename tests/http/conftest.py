"""A service for each test, and the rule that none of them makes it log an error."""

import asyncio
import logging
import time
import traceback
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.http.service import Service, running

LONGEST = 8.0
"""Seconds that a test takes that may not meet the end of a minute."""


@pytest.fixture(autouse=True)
def _no_error_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    bad = [
        f"{record.getMessage()} {traceback.format_exception(*record.exc_info)[-3:] if record.exc_info else ''}"
        for record in caplog.get_records("call")
        if record.levelno >= logging.ERROR or record.exc_info
    ]
    assert not bad


@pytest.fixture
async def in_one_minute() -> None:
    """The test runs within one minute. No series is exact while something is pending in a period that is over."""
    while (left := 60 - time.time() % 60) < LONGEST:
        await asyncio.sleep(left)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running(tmp_path) as it:
        yield it


@pytest.fixture
async def unharmed(service: Service) -> AsyncIterator[Service]:
    """A service on which nothing that the test does may count."""
    assert (await service.incr("there", b'{"delta": 7}')).status == 202
    yield service
    assert await service.totals() == {"there": 7}
    await service.apply()
    assert await service.totals() == {"there": 7}
