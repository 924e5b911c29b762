"""The console in Chromium: what it shows, that it is accessible, and that its policy is kept."""

import asyncio
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from ingest.access.rules import CONSOLE_FILES
from shared.model.words import Message
from tests.browsers.chromium import missing
from tests.browsers.tab import Tab, browsing
from tests.http import contract
from tests.http.keys import keys_file
from tests.http.service import Service, running
from tests.meta.checkout import ROOT

HERE: Final = Path(__file__).parent
AXE: Final = HERE / "node_modules" / "axe-core" / "axe.min.js"
LOOKS: Final = {"light": (1200, 800, "light"), "dark": (1200, 800, "dark"), "mobile": (390, 844, "light")}
FOUND: Final = """
axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}).then(found =>
  found.violations.map(one => `${one.id}: ${one.nodes.map(node => node.html + node.failureSummary).join(" | ")}`))
"""
PAGES: Final = ("home", "pricing", "docs", "blog", "about")
COUNTS: Final = {
    **{f"page:{name}": 12_480 // place for place, name in enumerate(PAGES, 1)},
    "api:requests": 1_804_332,
    "signup": 318,
    "sold:<b>shoes</b>": 41,
    "huge": 2**53 - 1,
}


@pytest.fixture
async def axe() -> str:
    if shutil.which("npm") is None:
        missing("the tests of the console need npm")
    if not AXE.exists():
        command = ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
        process = await asyncio.create_subprocess_exec(*command, cwd=HERE, stdout=asyncio.subprocess.DEVNULL)
        if await process.wait():
            pytest.skip("axe-core can't be installed")  # no network, perhaps
    return AXE.read_text()


@pytest.fixture
async def tab(tmp_path: Path) -> AsyncIterator[Tab]:
    async with browsing(tmp_path) as it:
        yield it
        assert it.flaws == []


async def see(tab: Tab, axe: str, name: str, tmp_path: Path) -> None:
    """Judge the page in each look, and keep pictures of it where COUNTERSINK_SCREENSHOTS says."""
    folder = Path(os.environ.get("COUNTERSINK_SCREENSHOTS", tmp_path))
    for look, how in LOOKS.items():
        await tab.looks(*how)
        await tab.picture(folder / f"{name}-{look}.png")
        assert await tab.run("document.documentElement.scrollWidth <= innerWidth"), f"{name} is too wide: {look}"
        assert await tab.run("typeof axe == 'object'") or await tab.run(f"{axe};true")
        assert await tab.run(FOUND) == [], (name, look)


async def go(tab: Tab, url: str, shown: str) -> None:
    await tab.call("Page.navigate", url=url)
    await tab.until(f"document.readyState === 'complete' && document.body.innerText.includes({shown!r})")


async def test_it_shows_how_to_start_and_then_what_is_counted(
    service: Service, tab: Tab, axe: str, tmp_path: Path
) -> None:
    await go(tab, service.url, "Nothing has been counted yet")
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
    await go(tab, f"{service.url}/#/pipeline", "Accepted now")
    await tab.until("/\\d/.test(document.querySelector('dd').textContent)")
    await see(tab, axe, "pipeline", tmp_path)


NO_POLLS: Final = """
const later = window.setTimeout
window.setTimeout = (what, milliseconds, ...more) => milliseconds === 2000 ? 0 : later(what, milliseconds, ...more)
"""


async def test_a_change_is_shown_when_the_stream_tells_it(service: Service, tab: Tab) -> None:
    """Here the pages do not ask by themselves every two seconds."""
    await service.incr("other")
    await tab.call("Page.addScriptToEvaluateOnNewDocument", source=NO_POLLS)
    await go(tab, service.url, "1 counter.")
    value = 1
    for page, cell in (("/#/", "td.number"), ("/#/counter/other", ".value")):
        await tab.run(f"location.href = '{page}'")
        for _ in range(3):
            await tab.until(f"document.querySelector('{cell}')?.textContent === '{value}'")
            await service.incr("other")
            value += 1
        await tab.until(f"document.querySelector('{cell}').textContent === '{value}'")
    assert await tab.run("document.body.innerText.includes('None are kept.')")


async def test_the_page_of_the_api_shows_every_operation(service: Service, tab: Tab, axe: str, tmp_path: Path) -> None:
    await go(tab, f"{service.url}/docs", "Send increments")
    wanted = {
        one["operationId"] for item in contract.DOCUMENT["paths"].values() for one in item.values() if "tags" in one
    }
    assert set(await tab.run("[...document.querySelectorAll('details')].map(one => one.id)")) == wanted
    await tab.run("for (const one of document.querySelectorAll('details')) one.open = true")
    await see(tab, axe, "docs", tmp_path)


async def test_it_asks_for_a_key_and_says_which_scope_is_missing(tmp_path: Path, tab: Tab, axe: str) -> None:
    file, keys = keys_file(tmp_path, reader={"scopes": ["read"]}, writer={"scopes": ["write"]})
    async with running(tmp_path, keys_file=str(file)) as service:
        await tab.call("Page.navigate", url=service.url)
        await tab.until("document.querySelector('dialog')?.open")
        await see(tab, axe, "key", tmp_path)
        enter = "document.getElementById('key-text').value = '%s'; document.querySelector('[type=submit]').click()"
        await tab.run(enter % keys["writer"])
        await tab.until("document.getElementById('state').textContent.includes('needs the scope read')")
        await tab.run(enter % keys["reader"])
        await tab.until("document.getElementById('state').textContent === 'Live'")
        assert await tab.run("document.querySelector('pre').innerText.includes('COUNTERSINK_KEY')")


REFUSE: Final = (
    "CREATE TRIGGER rule BEFORE INSERT ON shards WHEN NEW.counter LIKE 'refused%'"
    " BEGIN SELECT RAISE(ABORT, 'not in this file'); END"
)


def press(label: str, where: str = "document") -> str:
    return f"[...{where}.querySelectorAll('button')].find(one => one.textContent === '{label}').click()"


async def test_dead_letters_are_shown_replayed_and_dropped(
    service: Service, tab: Tab, axe: str, tmp_path: Path
) -> None:
    data = tmp_path / "countersink.db"
    with closing(sqlite3.connect(data, isolation_level=None)) as db:
        db.execute(REFUSE)
        for number in range(3):
            await service.incr(f"refused:<b>{number}</b>", b'{"delta": 4}')
            await service.apply()
        await service.parts.publisher.publish([Message(b"<script>nonsense</script>")])
        await service.apply()
        await go(tab, f"{service.url}/#/pipeline", "see and replay them")
        await tab.run("[...document.querySelectorAll('a')].find(one => one.textContent === 'Dead letters').click()")
        await tab.until("document.querySelectorAll('.letters li.card').length === 4")
        text = await tab.run("document.querySelector('main').innerText")
        for shown in (
            "4 dead letters.",
            "not in this file",
            "refused:<b>1</b> +4",
            "<script>nonsense</script>",
            "1 increment",
        ):
            assert shown in text
        await see(tab, axe, "letters", tmp_path)
        await tab.run(press("Replay all"))
        await tab.until("document.querySelector('main dialog').open")
        assert "exactly once" in await tab.run("document.querySelector('main dialog').innerText")
        await see(tab, axe, "letters-dialog", tmp_path)
        await tab.run(press("Replay all", "document.querySelector('main dialog')"))
        await tab.until(
            "document.querySelector('[role=status].card').innerText.includes('4 dead letters left, the first ')"
        )
        await see(tab, axe, "letters-left", tmp_path)
        db.execute("DROP TRIGGER rule")
    await tab.run(press("Drop"))
    await tab.until("document.querySelector('main dialog').innerText.includes('You cannot undo this.')")
    await tab.run(press("Cancel", "document.querySelector('main dialog')"))
    await tab.run(press("Replay", "document.querySelector('.letters')"))
    await tab.run(press("Replay", "document.querySelector('main dialog')"))
    await tab.until("document.querySelector('[role=status].card').innerText === '1 increment counted.'")
    await tab.until("document.querySelectorAll('.letters li.card').length === 3")
    await tab.run(press("Drop", "document.querySelector('.letters')"))
    await tab.run(press("Drop for good", "document.querySelector('main dialog')"))
    await tab.until("document.querySelector('[role=status].card').innerText === 'Dropped, with 1 increment.'")
    await tab.run(press("Replay all"))
    await tab.run(press("Replay all", "document.querySelector('main dialog')"))
    await tab.until("document.querySelector('[role=status].card').innerText.includes('1 dead letter left because: ')")
    await tab.run(press("Drop", "document.querySelector('.letters')"))
    await tab.run(press("Drop for good", "document.querySelector('main dialog')"))
    await tab.until("document.querySelector('.lead').innerText === 'No dead letters.'")
    await see(tab, axe, "letters-none", tmp_path)
    totals = await service.totals()
    assert sorted(value for value in totals.values() if value) == [4, 4]


async def test_dead_letters_need_the_scope_admin(tmp_path: Path, tab: Tab) -> None:
    file, keys = keys_file(tmp_path, reader={"scopes": ["read"]})
    async with running(tmp_path, keys_file=str(file)) as service:
        await tab.call("Page.navigate", url=f"{service.url}/#/dead-letters")
        await tab.until("document.querySelector('#key-dialog')?.open")
        enter = "document.getElementById('key-text').value = '%s'; document.querySelector('[type=submit]').click()"
        await tab.run(enter % keys["reader"])
        await tab.until("document.getElementById('state').textContent.includes('needs the scope admin')")


async def test_a_violation_of_the_policy_would_be_seen(service: Service, tmp_path: Path) -> None:
    async with browsing(tmp_path) as tab:
        await go(tab, service.url, "Nothing has been counted yet")
        await tab.run("document.body.append(Object.assign(document.createElement('script'), {textContent: '1'}))")
        await tab.until("true")
        async with asyncio.timeout(10):
            while not tab.flaws:
                await asyncio.sleep(0.05)


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
