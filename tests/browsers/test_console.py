"""The console in Chromium and Firefox: what it shows, that it is accessible, and that its policy is kept."""

from pathlib import Path
from typing import Final

import pytest

from ingest.api import pages
from tests.browsers.judging import see
from tests.browsers.tab import Tab
from tests.browsers.waiting import until
from tests.http.keys import keys_file
from tests.http.service import Service, running

PAGES: Final = ("home", "pricing", "docs", "blog", "about")
COUNTS: Final = {
    **{f"page:{name}": 12_480 // place for place, name in enumerate(PAGES, 1)},
    "api:requests": 1_804_332,
    "signup": 318,
    "sold:<b>shoes</b>": 41,
    "huge": 2**53 - 1,
}


async def test_it_shows_how_to_start_and_then_what_is_counted(
    service: Service, tab: Tab, axe: str, tmp_path: Path
) -> None:
    await tab.show(service.url, "Nothing has been counted yet")
    assert f"{service.url}/v1/counters/visits" in await tab.run("document.querySelector('pre').innerText")
    await see(tab, axe, "start", tmp_path)
    body = b'{"counters": {%b}}' % b",".join(b'"%b": %d' % (name.encode(), by) for name, by in COUNTS.items())
    assert (await service.post("/v1/increments", body)).status == 202
    await tab.until("document.querySelectorAll('tbody tr').length === 9")
    await service.apply()
    assert (await service.incr("huge", b'{"delta": 2}')).status == 202
    await tab.until("document.body.innerText.includes('9,007,199,254,740,993')")
    await tab.until("[...document.querySelectorAll('td')].some(cell => /\\d\\/s/.test(cell.textContent))")
    assert await tab.run("document.querySelector('b') === null")
    await see(tab, axe, "counters", tmp_path)
    await tab.run("order.value = 'value'; order.dispatchEvent(new Event('change'))")
    await tab.until("document.querySelector('tbody a').textContent === 'huge'")
    await tab.run("prefix.value = 'page:'; prefix.dispatchEvent(new Event('input'))")
    await tab.until("document.querySelectorAll('tbody tr').length === 5")
    await tab.run("document.querySelector('tbody a').click()")
    await tab.until("document.querySelector('.value')?.textContent === '12,480'")
    assert (await service.incr("page:home", b'{"delta": 20}')).status == 202
    await tab.until("document.querySelector('.value').textContent === '12,500'")
    await tab.until("document.querySelectorAll('.chart canvas').length === 2")
    assert await tab.run("document.querySelector('[aria-pressed=true]').textContent") == "Last two days"
    await tab.run("document.querySelector('[data-by=day]').click()")
    await tab.until("document.body.innerText.includes('12,500 in all.')")
    await tab.run("document.querySelector('[data-by=hour]').click()")
    assert await tab.run("document.querySelector('h1').textContent") == "page:home"
    await see(tab, axe, "counter", tmp_path)


NO_POLLS: Final = """
const later = window.setTimeout
window.setTimeout = (what, milliseconds, ...more) => milliseconds === 2000 ? 0 : later(what, milliseconds, ...more)
"""


async def test_a_change_is_shown_when_the_stream_tells_it(service: Service, tab: Tab) -> None:
    """Here the pages do not ask by themselves every two seconds."""
    await service.incr("other")
    await tab.before(NO_POLLS)
    await tab.show(service.url, "1 counter.")
    value = 1
    for page, cell in (("/#/", "td.number"), ("/#/counter/other", ".value")):
        await tab.run(f"location.href = '{page}'")
        for _ in range(3):
            await tab.until(f"document.querySelector('{cell}')?.textContent === '{value}'")
            await service.incr("other")
            value += 1
        await tab.until(f"document.querySelector('{cell}').textContent === '{value}'")
    assert await tab.run("document.body.innerText.includes('None are kept.')")


async def test_it_asks_for_a_key_and_says_which_scope_is_missing(tmp_path: Path, tab: Tab, axe: str) -> None:
    file, keys = keys_file(tmp_path, reader={"scopes": ["read"]}, writer={"scopes": ["write"]})
    async with running(tmp_path, keys_file=str(file)) as service:
        await tab.go(service.url)
        await tab.until("document.querySelector('dialog')?.open")
        await see(tab, axe, "key", tmp_path)
        enter = "document.getElementById('key-text').value = '%s'; document.querySelector('[type=submit]').click()"
        await tab.run(enter % keys["writer"])
        await tab.until("document.getElementById('state').textContent.includes('needs the scope read')")
        await tab.run(enter % keys["reader"])
        await tab.until("document.getElementById('state').textContent === 'Live'")
        assert await tab.run("document.querySelector('pre').innerText.includes('COUNTERSINK_KEY')")


async def test_a_second_key_replaces_the_first_and_both_can_be_forgotten(service: Service, tab: Tab) -> None:
    await tab.show(service.url, "Nothing has been counted yet")
    kept, open_ = "sessionStorage.getItem('countersink-key')", "document.getElementById('key-dialog').open"
    for key in ("csk_first_1", "csk_second_2"):
        await tab.run("document.getElementById('key-button').focus()")
        await tab.press("Enter")
        await tab.until(open_)
        await tab.type(key)
        await tab.press("Enter")
        await tab.until(f"!{open_}")
        assert await tab.run(kept) == key
    await tab.run("document.getElementById('key-button').click()")
    assert await tab.run("document.getElementById('key-dialog').innerText.includes('replaces the one')")
    await tab.press("Enter")  # with nothing in the field
    assert await tab.run(open_)
    await tab.run("document.getElementById('key-forget').click()")
    assert await tab.run(kept) is None


async def reloaded(tab: Tab) -> None:
    await tab.run("window.before = true; location.reload()")
    await tab.until("window.before === undefined && document.readyState === 'complete'")


async def test_the_filter_and_the_order_are_in_the_address(service: Service, tab: Tab) -> None:
    for name, by in (("page:a/b&c", 1), ("page:z", 5), ("other", 9)):
        await service.incr(name, b'{"delta": %d}' % by)
    first = "document.querySelector('tbody a')?.textContent"
    await tab.show(service.url, "3 counters.")
    await tab.run("prefix.value = 'page:'; prefix.dispatchEvent(new Event('input'))")
    await tab.run("order.value = 'value'; order.dispatchEvent(new Event('change'))")
    await tab.until(f"document.querySelectorAll('tbody tr').length === 2 && {first} === 'page:z'")
    address = await tab.run("location.href")
    await tab.run("document.querySelector('tbody a').click()")
    await tab.until("document.querySelector('.value')?.textContent === '5'")
    await tab.run("document.querySelector('[data-by=day]')?.click(); history.back()")
    await tab.until(f"{first} === 'page:z'")
    assert await tab.run("[prefix.value, order.value]") == ["page:", "value"]
    await tab.run("prefix.value = 'page:a/b&'; prefix.dispatchEvent(new Event('input'))")
    await tab.until(f"{first} === 'page:a/b&c'")
    await reloaded(tab)
    await tab.until(f"{first} === 'page:a/b&c' && document.querySelectorAll('tbody tr').length === 1")
    await tab.run("document.querySelector('nav a').click()")
    await tab.until("document.querySelectorAll('tbody tr').length === 3")
    await tab.go("about:blank")
    await tab.go(address)
    await tab.until(f"document.querySelectorAll('tbody tr').length === 2 && {first} === 'page:z'")


async def test_the_length_of_a_bar_is_in_the_address(service: Service, tab: Tab) -> None:
    await service.incr("page:home")
    await tab.show(f"{service.url}/#/counter/page%3Ahome", "in all.")
    await tab.run("document.querySelector('[data-by=day]').click()")
    await reloaded(tab)
    await tab.until("document.querySelector('[aria-pressed=true]')?.textContent === 'Last 90 days'")


async def test_the_order_says_at_the_top_what_it_sorts(service: Service, tab: Tab) -> None:
    body = b'{"counters": {%b}}' % b",".join(b'"page:%03d": %d' % (number, number + 1) for number in range(150))
    await service.post("/v1/increments", body)
    await tab.show(service.url, "The first 100 by name. There are more")
    await tab.run("order.value = 'value'; order.dispatchEvent(new Event('change'))")
    await tab.until("document.querySelector('tbody a').textContent === 'page:149'")
    said = "one => one.textContent.includes('The 100 largest. There are more')"
    told = f"[...document.querySelectorAll('main p')].find({said})"
    top = "document.querySelector('table').getBoundingClientRect().top"
    assert await tab.run(f"{told}.getBoundingClientRect().bottom <= {top}")
    await tab.run("document.querySelector('.more button').click()")
    await tab.until("document.querySelectorAll('tbody a').length === 150")
    assert await tab.run(f"{told} === undefined && document.body.innerText.includes('150 counters.')")


@pytest.mark.parametrize(
    "wrong",
    [
        "document.body.append(Object.assign(document.createElement('script'), {textContent: '1'}))",
        "setTimeout(() => { throw Error('lost') }); 0",
        "console.warn('odd')",
    ],
)
async def test_what_a_page_does_wrong_would_be_seen(service: Service, page: Tab, wrong: str) -> None:
    await page.show(service.url, "Nothing has been counted yet")
    await page.run(wrong)
    await until(lambda: bool(page.flaws))


@pytest.mark.parametrize("path", ["/", "/docs", *(f"/console/{name}" for name in pages.FILES)])
async def test_each_file_has_the_headers(service: Service, path: str) -> None:
    found = await service.get(path)
    assert found.status == 200
    assert found.headers["Content-Security-Policy"].startswith("default-src 'none';")
    assert (found.headers["X-Content-Type-Options"], found.headers["Cache-Control"]) == ("nosniff", "no-cache")
    head = f"GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nIf-None-Match: {found.headers['ETag']}\r\n\r\n"
    again = await service.send(head.encode())
    assert again.startswith(b"HTTP/1.1 304 ")
    assert again.endswith(b"\r\n\r\n")


async def test_no_name_looks_like_another(service: Service, tab: Tab) -> None:
    """A sign that turns the direction of writing round would show this one as page:home."""
    name = "page:\u202eemoh"
    assert (await service.incr(name)).status == 202
    await tab.show(service.url, "page:")
    await tab.until("document.querySelector('tbody a')?.textContent === 'page:\\\\u202eemoh'")
    await tab.run("document.querySelector('tbody a').click()")
    await tab.until("document.querySelector('h1')?.textContent === 'page:\\\\u202eemoh'")
    await tab.until("document.querySelector('.value')?.textContent === '1'")
