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

from shared.config.settings import rules_of
from shared.model.words import Envelope
from shared.runtime import metrics
from shared.wire.codec import encode
from tests.browsers.chromium import Chromium
from tests.browsers.tab import Tab
from tests.http.service import Service, running
from tests.meta.checkout import ROOT

TO: Final = ROOT / "docs" / "console"
BEFORE: Final = {
    "api:requests": 1_804_332, "download:linux": 2_140, "page:blog": 9_921, "page:docs": 40_377,
    "page:pricing": 18_204, "signup": 318, "vote:42": 409,
}  # fmt: skip
A_SECOND: Final = {
    "api:requests": 24, "download:linux": 4, "page:blog": 9, "page:docs": 15, "page:home": 34,
    "page:pricing": 10, "signup": 1, "vote:42": 3,
}  # fmt: skip
HOURS: Final = 47
SHOWN: Final = 75.0
"""Seconds that the charts show."""
TRY: Final = """
const one = [...document.querySelectorAll("details")].find(
  one => one.querySelector("summary")?.innerText.replace(/\\s+/g, " ").includes("POST /v1/increments"));
one.open = true; one.querySelector("details").open = true; one.scrollIntoView(); 0
"""
SEND: Final = """
[...document.querySelectorAll("details[open] details[open] button")].find(one => one.textContent === "Send").click(); 0
"""


async def history(service: Service, chance: random.Random) -> None:
    """What `page:home` counted in the last two days, and all others before."""
    now = int(time.time() * 1_000)
    await service.post("/v1/increments", json.dumps({"counters": BEFORE}).encode())
    for hour in range(HOURS, 0, -1):
        when = now - hour * 3_600_000
        of_day = when / 3_600_000 % 24
        busy = 6_000 + 9_000 * max(0.0, math.sin((of_day - 6) / 12 * math.pi)) + chance.uniform(0, 1_500)
        envelope = Envelope(f"history-{hour}", {"page:home": int(busy)}, created=when)
        await service.parts.publisher.publish([encode(envelope)])
    await service.apply()
    for one in (metrics.ACCEPTED, metrics.APPLIED):
        one.inc(-one.get())
    metrics.START.labels("sqlite", "sqlite", "memory").set(time.time())


async def traffic(service: Service, chance: random.Random) -> None:
    """About what `A_SECOND` says, in waves."""
    for turn in count():
        wave = 1 + 0.6 * math.sin(turn / 60 + 3)
        due = {name: int(each * wave / 4 + chance.random()) for name, each in A_SECOND.items()}
        await service.post("/v1/increments", json.dumps({"counters": {n: d for n, d in due.items() if d}}).encode())
        await asyncio.sleep(0.25)


async def take(tab: Tab, name: str, height: int, scheme: str = "light") -> None:
    await tab.looks(1200, height, scheme)
    await asyncio.sleep(SHOWN if name != "docs" else 1)
    await tab.picture(TO / f"{name}.png")


async def main() -> None:
    chance = random.Random(7)
    with tempfile.TemporaryDirectory() as folder:
        async with running(Path(folder), windows=rules_of("page:=hour/90d,day/1y")) as service:
            balance = service.parts.balance
            assert balance is not None
            metrics.DRIFT.set_function(lambda: balance().drift)
            metrics.PENDING.set_function(lambda: balance().pending)
            await history(service, chance)
            profile = Path(folder) / "chromium"
            profile.mkdir()
            browser = Chromium(profile)
            async with service.applying(), browser.tab() as list_, browser.tab() as one, browser.tab() as flow:
                moving = asyncio.create_task(traffic(service, chance))
                await list_.show(service.url, "8 counters.")
                await one.show(f"{service.url}/#/counter/page%3Ahome", "Change this counter")
                await flow.show(f"{service.url}/#/pipeline", "All processes share one file")
                await asyncio.gather(
                    take(list_, "counters", 787), take(one, "counter", 1363), take(flow, "pipeline", 1428, "dark")
                )
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
