"""The console in Chromium and Firefox: what it shows, that it is accessible, and that its policy is kept."""

from pathlib import Path
from typing import Final

import pytest

from ingest.access.rules import CONSOLE_FILES
from tests.browsers.judging import see
from tests.browsers.tab import Tab
from tests.browsers.waiting import until
from tests.http.keys import keys_file
from tests.http.service import Service, running
from tests.meta.checkout import ROOT

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


def test_all_files_are_served() -> None:
    there = {f"/console/{file.name}" for file in (ROOT / "ingest" / "console" / "files").iterdir()}
    assert there == CONSOLE_FILES | {"/console/index.html"}


@pytest.mark.parametrize("path", ["/", "/docs", *sorted(CONSOLE_FILES)])
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
