"""Waits until what a browser does has come true."""

import asyncio
from collections.abc import Callable

from tests.http.service import Service


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.05)


async def until_total(service: Service, wanted: int) -> None:
    """Until the counter `page:home` has this total. It has no higher one, neither before nor after it is applied."""
    async with asyncio.timeout(60):
        while (await service.totals()).get("page:home", 0) < wanted:
            await asyncio.sleep(0.05)
    assert await service.totals() == {"page:home": wanted}
    await service.apply()
    assert await service.totals() == {"page:home": wanted}
