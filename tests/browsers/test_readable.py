"""What the console writes can be read: scales of charts, long numbers and names, and the page of the API; and nothing
jumps while values arrive.
"""

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from tests.browsers.chromium import IN_CHROMIUM, Chromium
from tests.browsers.tab import Tab
from tests.http.service import Service, url_name

LONGEST: Final = ("page:/articles/" + "name-without-end/" * 30)[:400]
MOST: Final = 2**53 - 1
SIZES: Final = ((1200, 800), (390, 844))
DRAWN: Final = """
window.drawn = new Map()
const { fillText, clearRect } = CanvasRenderingContext2D.prototype
CanvasRenderingContext2D.prototype.clearRect = function (...where) {
  drawn.set(this.canvas, [])
  return clearRect.apply(this, where)
}
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  const width = this.measureText(text).width
  const left = { right: x - width, center: x - width / 2, left: x }[this.textAlign]
  const named = this.textAlign === "right" ? "number" : "time"
  drawn.get(this.canvas)?.push({ text, left, right: left + width, named, whole: this.canvas.width })
  return fillText.call(this, text, x, y)
}
"""
"""Remembers what the scales of each chart say now, and where."""


async def scales(tab: Tab) -> list[list[dict[str, Any]]]:
    found = await tab.run("[...drawn].filter(([canvas]) => canvas.isConnected).map(([, texts]) => texts)")
    return [chart for chart in found if chart]


async def counts(service: Service, name: str, *deltas: int) -> None:
    for delta in deltas:
        assert (await service.incr(name, b'{"delta": %d}' % delta)).status == 202


@IN_CHROMIUM
@pytest.mark.parametrize("delta", [1, 40, 3_000_000, MOST])
async def test_a_scale_is_not_cut_and_says_nothing_twice(service: Service, tab: Tab, delta: int) -> None:
    await tab.before(DRAWN)
    await counts(service, "page:home", delta)
    await service.apply()
    await tab.show(f"{service.url}/#/counter/page%3Ahome", "in all.")
    for _ in range(2):
        await tab.until("/\\d/.test(document.querySelector('.keys .now').textContent)")
        await counts(service, "page:home", delta)
    await tab.until("/[1-9]/.test(document.querySelector('.keys .now').textContent)")
    charts = await scales(tab)
    assert len(charts) == 2
    for chart in charts:
        for named in ("number", "time"):
            texts = [one["text"] for one in chart if one["named"] == named]
            assert all(texts), chart
            assert len(set(texts)) == len(texts), texts
        assert all(one["left"] >= 0 and one["right"] <= one["whole"] for one in chart), chart
        assert len([one for one in chart if one["named"] == "number"]) > 1


@IN_CHROMIUM
async def test_the_first_seconds_have_each_time_once(service: Service, tab: Tab) -> None:
    await tab.before(DRAWN)
    await counts(service, "other", 5)
    await tab.show(f"{service.url}/#/counter/other", "Exact")
    await tab.until("[...drawn].some(([, texts]) => texts.length)")
    (chart,) = await scales(tab)
    times = [one["text"] for one in chart if one["named"] == "time"]
    assert len(set(times)) == len(times), times


@IN_CHROMIUM
async def test_counts_on_a_scale_are_whole_numbers(service: Service, balanced: None, tab: Tab) -> None:
    await tab.before(DRAWN)
    await tab.show(f"{service.url}/#/pipeline", "Pending increments")
    await tab.until("[...drawn].filter(([, texts]) => texts.length).length === 4")
    for chart in await scales(tab):
        assert all(one["text"] for one in chart), chart


BROKEN: Final = """
[...document.querySelectorAll(".value, .facts dd span, td.number")].filter(one => {
  const text = new Range()
  text.selectNodeContents(one)
  const lines = new Set([...text.getClientRects()].map(rect => rect.top)).size
  return lines > 1 || (one.clientWidth && one.scrollWidth > one.clientWidth + 1)
}).map(one => one.outerHTML)
"""
"""Numbers that take several lines, or stick out of their box."""
WIDE: Final = "document.documentElement.scrollWidth > innerWidth"


@pytest.mark.parametrize("size", SIZES)
async def test_a_long_number_stays_on_one_line(service: Service, tab: Tab, size: tuple[int, int]) -> None:
    await tab.looks(*size, "light")
    await counts(service, "page:home", MOST, MOST, MOST)
    await service.apply()
    await tab.show(f"{service.url}/#/counter/page%3Ahome", "27,021,597,764,222,973")
    await tab.until("/\\d/.test(document.querySelector('.keys .now').textContent)")
    for _ in range(2):
        await counts(service, "page:home", MOST)
    await tab.until("document.querySelectorAll('.changes td')[1].textContent !== ''")
    await tab.until("/[1-9]/.test(document.querySelector('.keys .now').textContent)")
    assert await tab.run(BROKEN) == []
    assert not await tab.run(WIDE)
    await tab.run("location.hash = '#/'")
    await tab.until("document.querySelectorAll('td.number').length > 0")
    assert await tab.run(BROKEN) == []
    assert not await tab.run(WIDE)


@pytest.mark.parametrize("size", SIZES)
async def test_a_name_of_400_bytes_leaves_room_for_the_rest(service: Service, tab: Tab, size: tuple[int, int]) -> None:
    await tab.looks(*size, "light")
    await counts(service, LONGEST, 1_234_567)
    await tab.show(service.url, "1 counter.")
    row = "document.querySelector('tbody tr')"
    assert await tab.run(f"{row}.getBoundingClientRect().height") < 120
    assert await tab.run(f"{row}.querySelector('a').title") == LONGEST
    await tab.show(f"{service.url}/#/counter/{url_name(LONGEST)}", "1,234,567")
    title = "document.querySelector('h1')"
    assert await tab.run(f"{title}.textContent") == LONGEST
    assert await tab.run(f"{title}.getBoundingClientRect().height") < 120
    await tab.run("document.querySelector('.long summary').click()")
    await tab.until(f"{title}.scrollHeight === {title}.clientHeight")
    button = "[...document.querySelectorAll('main button')].find(one => one.textContent === 'Delete…')"
    await tab.until(f"{button}?.checkVisibility()")
    await tab.run(f"{button}.click()")
    dialog = "document.querySelector('dialog:not(#key-dialog)')"
    await tab.until(f"{dialog}?.open")
    assert await tab.run(f"{dialog}.scrollHeight <= {dialog}.clientHeight")
    await tab.type("yes")
    await tab.press("Enter")
    await tab.until("document.body.innerText.includes('it was deleted')")


@IN_CHROMIUM
async def test_the_page_of_the_api_shows_code_as_code(service: Service, tab: Tab) -> None:
    await tab.show(f"{service.url}/docs", "Send increments")
    await tab.run("for (const one of document.querySelectorAll('details')) one.open = true")
    assert await tab.run("document.querySelectorAll('summary code, .rows code').length") > 50
    assert await tab.run("document.querySelector('main').innerText.split('\\n').filter(one => one.includes('`'))") == []


MOST_MOVED: Final = 0.02
OBSERVES: Final = """
window.shifts = []
new PerformanceObserver(list => {
  for (const one of list.getEntries())
    shifts.push([one.value, ...one.sources.map(source => source.node?.outerHTML ?? "").map(text => text.slice(0, 80))])
}).observe({ type: "layout-shift", buffered: true })
"""


@pytest.fixture
async def observed(chromium: Chromium) -> AsyncIterator[Tab]:
    async with chromium.tab() as it:
        await it.before(OBSERVES)
        yield it
        assert it.flaws == []


async def shifted(tab: Tab) -> tuple[float, list[object]]:
    """How much has moved, and what."""
    found = await tab.run("new Promise(done => requestAnimationFrame(() => setTimeout(() => done(shifts), 100)))")
    return sum(one[0] for one in found), found


@pytest.mark.parametrize("size", SIZES)
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
    service: Service, balanced: None, observed: Tab, page: tuple[str, str], size: tuple[int, int]
) -> None:
    path, live = page
    for name in ("home", "blog", "docs"):
        await service.incr(f"page:{name}", b'{"delta": 987}')
    await observed.looks(*size, "light")
    await observed.go(service.url + path)
    await observed.until("document.getElementById('state')?.textContent === 'Live'")
    for delta in (1, 1_000) if live else ():
        await observed.until(f"/\\d/.test({live})")
        before = await observed.run(live)
        await service.incr("page:home", b'{"delta": %d}' % delta)
        await service.apply()
        await observed.until(f"({live}) !== {before!r}")
    amount, what = await shifted(observed)
    assert amount < MOST_MOVED, what


async def test_a_jump_would_be_seen(service: Service, observed: Tab) -> None:
    await observed.show(service.url, "Nothing has been counted yet")
    assert (await shifted(observed))[0] < MOST_MOVED
    await observed.run("document.getElementById('main').style.paddingTop = '100px'")
    assert (await shifted(observed))[0] > MOST_MOVED
