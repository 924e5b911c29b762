"""A page in a browser and a program of each language with a client count into one total, while ingest and flushers are
killed.
"""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from countersink import AsyncClient
from tests.browsers.chromium import Chromium
from tests.browsers.site import Site
from tests.browsers.test_all_senders import WITHIN, count_in
from tests.clients.drivers import BUILDS, LONGEST, Driver, built, command_in
from tests.processes.harness import processes
from tests.processes.test_senders import EACH, ROUNDS, flushers_that_die

__all__ = ["built"]


@pytest.mark.timeout(600)
async def test_all_languages_count_into_one_total_whoever_is_killed(
    tmp_path: Path, chromium: Chromium, home: Site, built: Callable[[str], Path]
) -> None:
    commands = [command_in(built(language)) for language in BUILDS]
    settings = {"FLUSH_INTERVAL": "0.05", "LEASE": "1", "ORIGINS": home.origin}
    named = {f"COUNTERSINK_{name}": value for name, value in settings.items()}
    async with processes(tmp_path / "data", tmp_path / "log", **named) as started, chromium.tab() as tab:
        service = await started.start("ingest", "--port", "0")
        url = service.url
        drivers = [await Driver.start(command, {"url": url, "interval": 0.01}) for command in commands]
        try:
            async with flushers_that_die(started) as killed:
                for _ in range(ROUNDS):
                    for driver in drivers:
                        await driver.do("incr", {"name": "all", "times": EACH})
                    await count_in(tab, home, url, "all")
                    for driver in drivers:
                        await driver.do("incr", {"name": "all", "times": EACH})
                    await service.end(signal.SIGKILL)
                    service = await started.start("ingest", "--port", str(service.port))
                assert killed
            await started.start("flusher")
            for driver in drivers:
                assert await driver.do("flush", {"seconds": LONGEST}) == {"done": True}
                assert await driver.do("dropped", {}) == {"dropped": 0}
                await driver.end("return")
        finally:
            for driver in drivers:
                if driver.runs:
                    await driver.end("kill")
        async with AsyncClient(url) as client, asyncio.timeout(WITHIN):
            while not (counter := await client.get("all", max_age=0)).exact:
                await asyncio.sleep(0.05)
        assert counter.value == ROUNDS * EACH * (1 + 2 * len(drivers))
