"""Makes the pictures of docs/console in Chromium, from sample data: `python -m tests.browsers.pictures`."""

import asyncio
import json
import math
import random
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import Final

from shared.config.lists import rules_of
from shared.model.words import Envelope
from shared.runtime import metrics
from shared.wire.codec import encode
from tests.browsers.chromium import Chromium
from tests.browsers.tab import Tab
from tests.http.service import Service, running
from tests.meta.checkout import ROOT

TO: Final = ROOT / "docs" / "console"
A_SECOND: Final = {
    "api:requests": 24, "download:linux": 4, "page:blog": 9, "page:docs": 15, "page:home": 34,
    "page:pricing": 10, "signup": 1, "vote:42": 3,
}  # fmt: skip
HOURS: Final = 24 * 15
SHOWN: Final = 300
"""Turns of the traffic that the charts show: 75 seconds."""
DRAWN: Final = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
TRY: Final = """
const one = [...document.querySelectorAll("details")].find(
  one => one.querySelector("summary")?.innerText.replace(/\\s+/g, " ").includes("POST /v1/increments"));
one.open = true; one.querySelector("details").open = true; one.scrollIntoView(); 0
"""
PIN: Final = """
localStorage.setItem("countersink-pins", JSON.stringify(["page:home", "page:docs", "page:pricing"])); 0
"""
SEND: Final = """
[...document.querySelectorAll("details[open] details[open] button")].find(one => one.textContent === "Send").click(); 0
"""


async def history(service: Service, chance: random.Random) -> None:
    """What was counted in the last two weeks: more at noon, and less on each seventh day."""
    now = int(time.time() * 1_000)
    for hour in range(HOURS, 0, -1):
        when = now - hour * 3_600_000
        noon = 0.4 + max(0.0, math.sin((when / 3_600_000 % 24 - 6) / 12 * math.pi))
        busy = noon * (0.6 if when // 86_400_000 % 7 == 2 else 1.0)
        counts = {
            name: int(each * 300 * busy * chance.uniform(0.6, 1.2) * (1.2 - hour / HOURS * (len(name) % 4 - 1) / 3))
            for name, each in A_SECOND.items()
        }
        await service.parts.publisher.publish([encode(Envelope(f"history-{hour}", counts, created=when))])
    await service.apply()
    for one in (metrics.ACCEPTED, metrics.APPLIED):
        one.inc(-one.get())
    metrics.START.labels("sqlite", "sqlite", "memory").set(time.time())


async def traffic(service: Service, chance: random.Random, shown: asyncio.Event) -> None:
    """About what `A_SECOND` says, in waves. Sets the event when the charts have enough of it."""
    for turn in count():
        if turn == SHOWN:
            shown.set()
        wave = 1 + 0.6 * math.sin(turn / 60 + 3)
        due = {name: int(each * wave / 4 + chance.random()) for name, each in A_SECOND.items()}
        await service.post("/v1/increments", json.dumps({"counters": {n: d for n, d in due.items() if d}}).encode())
        await asyncio.sleep(0.25)


async def take(tab: Tab, name: str, height: int, scheme: str = "light") -> None:
    await tab.looks(1200, height, scheme)
    await tab.run(DRAWN)
    await tab.picture(TO / f"{name}.png")


async def main() -> None:
    chance = random.Random(7)
    with tempfile.TemporaryDirectory() as folder:
        async with running(Path(folder), windows=rules_of("=hour/90d,day/1y")) as service:
            balance = service.parts.balance
            assert balance is not None
            metrics.DRIFT.set_function(lambda: balance().drift)
            metrics.PENDING.set_function(lambda: balance().pending)
            await history(service, chance)
            profile = Path(folder) / "chromium"
            profile.mkdir()
            browser = Chromium(profile)
            async with service.applying(), browser.tab() as list_, browser.tab() as one, browser.tab() as flow:
                shown = asyncio.Event()
                moving = asyncio.create_task(traffic(service, chance, shown))
                await list_.show(service.url, "8 counters.")
                await list_.run(PIN)
                await one.show(f"{service.url}/#/counter/page%3Ahome", "Change this counter")
                await flow.show(f"{service.url}/#/pipeline", "All processes share one file")
                await shown.wait()
                await asyncio.gather(
                    take(list_, "counters", 740), take(one, "counter", 1352), take(flow, "pipeline", 1428, "dark")
                )
                await list_.run("document.querySelector('.above a').click()")
                await list_.until("document.body.innerText.includes('in all.')")
                await list_.run("document.getElementById('against').click()")
                await take(list_, "chart", 870)
                await list_.show(f"{service.url}/docs", "/v1/increments")
                await list_.looks(1200, 900, "light")
                await list_.run(TRY)
                await list_.run(SEND)
                await list_.until("document.body.innerText.includes('202 Accepted')")
                await take(list_, "docs", 900)
                moving.cancel()
            browser.close()


if __name__ == "__main__":
    asyncio.run(main())
