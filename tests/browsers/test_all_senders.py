"""Pages in two browsers and a program of each language with a client count into one service, while ingest and flushers
are killed. The console and `curl -N` show the totals.
"""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

import orjson
import pytest

from tests.browsers.chromium import Chromium
from tests.browsers.firefox import Firefox
from tests.browsers.site import Site
from tests.browsers.tab import Tab
from tests.clients.drivers import BUILDS, LONGEST, Driver, built, command_in
from tests.processes.harness import processes
from tests.processes.test_senders import EACH, ROUNDS, SENT, flushers_that_die

__all__ = ["built"]

BROWSERS: Final = ("chromium", "firefox")
WITHIN: Final = 60.0
BY_PROGRAMS: Final = 2 * SENT * len(BUILDS)
REPORTS: Final = """
<script>
    const real = fetch
    window.accepted = 0
    window.fetch = (url, request) => real(url, request).then(answer => {
        if (answer.status == 202) accepted += JSON.parse(request.body).length
        return answer
    })
</script>"""
ROWS: Final = """
[...document.querySelectorAll('tbody tr')].map(row => [row.children[0].innerText, row.children[1].innerText])
"""


async def count_in(tab: Tab, home: Site, url: str, counter: str) -> None:
    """A page of another origin counts, and waits until all was answered."""
    home.page = (
        f'{REPORTS}<script src="{url}/countersink.js"></script>'
        f"<script>for (let n = 0; n < {EACH}; n++) countersink.count('{counter}')</script>"
    )
    await tab.go(home.origin)
    await tab.until(f"window.accepted === {EACH}")


async def total_by_curl(url: str, counter: str, total: int) -> int:
    """Follow the stream until it shows all."""
    process = await asyncio.create_subprocess_exec(
        *("curl", "--no-buffer", "--silent", f"{url}/v1/counters/{counter}/watch"), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(WITHIN):
            async for line in process.stdout:
                if line.startswith(b"data:") and (value := int(orjson.loads(line[5:])["value"])) >= total:
                    return value
    finally:
        process.terminate()
        await process.wait()
    raise AssertionError("the stream ended")


@pytest.mark.timeout(600)
async def test_all_reach_the_same_total_whoever_is_killed(
    tmp_path: Path, chromium: Chromium, firefox: Firefox, home: Site, built: Callable[[str], Path]
) -> None:
    commands = [command_in(built(language)) for language in BUILDS]
    settings = {"FLUSH_INTERVAL": "0.05", "LEASE": "1", "ORIGINS": home.origin}
    named = {f"COUNTERSINK_{name}": value for name, value in settings.items()}
    async with (
        processes(tmp_path / "data", tmp_path / "log", **named) as started,
        chromium.tab() as first,
        firefox.tab() as second,
        chromium.tab() as console,
    ):
        service = await started.start("ingest", "--port", "0")
        url = service.url
        drivers = [await Driver.start(command, {"url": url, "interval": 0.01}) for command in commands]
        try:
            async with flushers_that_die(started) as killed:
                for _ in range(ROUNDS):
                    for driver in drivers:
                        await driver.do("incr", {"name": "programs", "times": EACH})
                    for tab, name in zip((first, second), BROWSERS, strict=True):
                        await count_in(tab, home, url, name)
                    for driver in drivers:
                        await driver.do("incr", {"name": "programs", "times": EACH})
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
        assert await total_by_curl(url, "programs", BY_PROGRAMS) == BY_PROGRAMS
        await console.go(url)
        totals = [*((name, SENT) for name in BROWSERS), ("programs", BY_PROGRAMS)]
        async with asyncio.timeout(WITHIN):
            while await console.run(ROWS) != [[name, f"{total:,}"] for name, total in totals]:
                await asyncio.sleep(0.05)
