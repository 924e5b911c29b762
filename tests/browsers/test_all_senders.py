"""All senders at once, while flushers are killed: pages in two browsers, StatsD lines and CloudEvents. Their counters
reach the same total, which the console and `curl -N` show.
"""

import asyncio
from pathlib import Path
from typing import Final

import aiohttp
import orjson
import pytest

from tests.browsers.chromium import Chromium
from tests.browsers.firefox import Firefox
from tests.browsers.site import Site
from tests.browsers.tab import Tab
from tests.processes.harness import processes
from tests.processes.test_senders import (
    COUNTERS,
    EACH,
    ROUNDS,
    SENT,
    address_of,
    flushers_that_die,
    send_events,
    send_lines,
)

BROWSERS: Final = ("chromium", "firefox")
WITHIN: Final = 60.0
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


async def total_by_curl(url: str, counter: str) -> int:
    """Follow the stream until it shows all."""
    process = await asyncio.create_subprocess_exec(
        *("curl", "--no-buffer", "--silent", f"{url}/v1/counters/{counter}/watch"), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(WITHIN):
            async for line in process.stdout:
                if line.startswith(b"data:") and (value := int(orjson.loads(line[5:])["value"])) >= SENT:
                    return value
    finally:
        process.terminate()
        await process.wait()
    raise AssertionError("the stream ended")


@pytest.mark.timeout(180)
async def test_all_reach_the_same_total_whoever_is_killed(
    tmp_path: Path, chromium: Chromium, firefox: Firefox, home: Site
) -> None:
    settings = {
        "COUNTERSINK_FLUSH_INTERVAL": "0.05",
        "COUNTERSINK_LEASE": "1",
        "COUNTERSINK_ORIGINS": home.origin,
    }
    async with (
        processes(tmp_path, tmp_path / "log", **settings) as started,
        chromium.tab() as first,
        firefox.tab() as second,
        chromium.tab() as console,
    ):
        service = await started.start("ingest", "--port", "0", "--statsd", "0")
        followed = [asyncio.create_task(total_by_curl(service.url, name)) for name in BROWSERS]
        async with flushers_that_die(started) as killed, aiohttp.ClientSession(service.url) as session:
            for number in range(ROUNDS):
                await asyncio.to_thread(send_lines, address_of(service))
                numbers = range(number * EACH, (number + 1) * EACH)
                items = [{"counter": "plain", "id": str(one)} for one in numbers]
                async with session.post("/v1/increments", json=items) as response:
                    assert response.status == 202
                await send_events(session, numbers)
                for tab, name in zip((first, second), BROWSERS, strict=True):
                    await count_in(tab, home, service.url, name)
            assert killed
        await started.start("flusher")
        assert await asyncio.gather(*followed) == [SENT, SENT]
        await console.go(service.url)
        names = sorted((*COUNTERS, *BROWSERS))
        async with asyncio.timeout(WITHIN):
            while await console.run(ROWS) != [[name, str(SENT)] for name in names]:
                await asyncio.sleep(0.05)
