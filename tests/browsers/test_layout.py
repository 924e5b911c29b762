"""Nothing on a page jumps while it is shown and while values arrive. Only Chromium measures that."""

from collections.abc import AsyncIterator
from typing import Final

import pytest

from tests.browsers.chromium import Chromium
from tests.browsers.tab import Tab
from tests.http.service import Service

MOST: Final = 0.02
OBSERVES: Final = """
window.shifts = []
new PerformanceObserver(list => {
  for (const one of list.getEntries())
    shifts.push([one.value, ...one.sources.map(source => source.node?.outerHTML ?? "").map(text => text.slice(0, 80))])
}).observe({ type: "layout-shift", buffered: true })
"""


@pytest.fixture
async def tab(chromium: Chromium) -> AsyncIterator[Tab]:
    async with chromium.tab() as it:
        await it.before(OBSERVES)
        yield it
        assert it.flaws == []


async def shifted(tab: Tab) -> tuple[float, list[object]]:
    """How much has moved, and what."""
    found = await tab.run("new Promise(done => requestAnimationFrame(() => setTimeout(() => done(shifts), 100)))")
    return sum(one[0] for one in found), found


@pytest.mark.parametrize("size", [(1200, 800), (390, 844)])
@pytest.mark.parametrize(
    "page",
    [
        ("/", "[...document.querySelectorAll('td.number')].map(one => one.textContent).join()"),
        ("/#/counter/page%3Ahome", "document.querySelector('.value')?.textContent"),
        ("/#/pipeline", "document.querySelector('.flow dd span')?.textContent"),
        ("/docs", ""),
    ],
)
async def test_nothing_jumps(
    service: Service, balanced: None, tab: Tab, page: tuple[str, str], size: tuple[int, int]
) -> None:
    path, live = page
    for name in ("home", "blog", "docs"):
        await service.incr(f"page:{name}", b'{"delta": 987}')
    await tab.looks(*size, "light")
    await tab.go(service.url + path)
    await tab.until("document.getElementById('state')?.textContent === 'Live'")
    for delta in (1, 1_000) if live else ():
        await tab.until(f"/\\d/.test({live})")
        before = await tab.run(live)
        await service.incr("page:home", b'{"delta": %d}' % delta)
        await service.apply()
        await tab.until(f"({live}) !== {before!r}")
    amount, what = await shifted(tab)
    assert amount < MOST, what


async def test_a_jump_would_be_seen(service: Service, tab: Tab) -> None:
    await tab.show(service.url, "Nothing has been counted yet")
    assert (await shifted(tab))[0] < MOST
    await tab.run("document.getElementById('main').style.paddingTop = '100px'")
    assert (await shifted(tab))[0] > MOST
