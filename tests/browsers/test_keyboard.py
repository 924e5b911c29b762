"""The console is used with a keyboard alone."""

from typing import Final

import pytest

from tests.browsers.tab import Tab
from tests.http.service import Service

REACHED: Final = """
window.reached = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")]
  .filter(one => one.checkVisibility() && !one.closest("dialog"))
reached.length
"""
FOCUSED: Final = """(() => {
  const at = document.activeElement
  const { outlineStyle, outlineWidth } = getComputedStyle(at)
  const { left, top, right, bottom } = at.getBoundingClientRect()
  const seen = left >= 0 && right <= innerWidth && bottom > 0 && top < innerHeight
  return { place: reached.indexOf(at), marked: outlineStyle === "solid" && parseFloat(outlineWidth) >= 2, seen }
})()
"""


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/", "1 counter."),
        ("/#/counter/page%3Ahome", "Exact"),
        ("/#/pipeline", "Processes"),
        ("/docs", "Send increments"),
    ],
)
async def test_tab_reaches_everything_in_order_and_shows_where_it_is(
    service: Service, tab: Tab, path: str, shown: str
) -> None:
    await service.incr("page:home")
    await tab.show(service.url + path, shown)
    if path == "/docs":
        await tab.run("for (const one of [...document.querySelectorAll('details')].slice(0, 2)) one.open = true")
        await tab.until("document.querySelector('details form') !== null")
    if "counter/" in path:
        await tab.until("document.querySelector('[data-by=day]') !== null")
    number = await tab.run(REACHED)
    assert number > 5
    for place in range(number):
        await tab.press("Tab")
        while await tab.run(
            f"document.activeElement === reached[{place - 1}] && document.activeElement.type === 'date'"
        ):
            await tab.press("Tab")  # a date has several fields
        await tab.until(f"{FOCUSED.strip()}.seen")  # the browser scrolls when it draws next
        assert await tab.run(FOCUSED) == {"place": place, "marked": True, "seen": True}, await tab.run(
            f"reached[{place}].outerHTML + ' but ' + document.activeElement.outerHTML"
        )
    await tab.press("Tab", shift=True)
    assert (await tab.run(FOCUSED))["place"] == number - 2


async def test_the_first_link_skips_to_the_content(service: Service, tab: Tab) -> None:
    await service.incr("page:home")
    await tab.show(service.url, "1 counter.")
    await tab.press("Tab")
    await tab.press("Enter")
    assert await tab.run("document.activeElement.id") == "main"
    await tab.press("Tab")
    assert await tab.run("document.activeElement.id") == "search"
    assert await tab.run("document.body.innerText.includes('1 counter.')")


async def test_escape_closes_the_dialog_and_gives_the_focus_back(service: Service, tab: Tab) -> None:
    await tab.show(service.url, "Nothing has been counted yet")
    await tab.run("document.getElementById('key-button').focus()")
    await tab.press("Enter")
    await tab.until("document.getElementById('key-dialog').open")
    assert await tab.run("document.activeElement.id") == "key-text"
    for _ in range(6):
        await tab.press("Tab")
        assert await tab.run("document.activeElement === document.body || !!document.activeElement.closest('dialog')")
    await tab.press("Escape")
    await tab.until("!document.getElementById('key-dialog').open")
    assert await tab.run("document.activeElement.id") == "key-button"
