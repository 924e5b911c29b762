"""Pages of other sites, in real browsers: they count with /countersink.js and by pixels, and show badges, the numbers
of docs/live-number.md and the leaderboard.
"""

import asyncio
import re
from pathlib import Path
from typing import Final

import pytest

from tests.browsers.chromium import IN_CHROMIUM
from tests.browsers.site import Site
from tests.browsers.tab import Tab
from tests.http.keys import keys_file
from tests.http.service import Service, running
from tests.meta.checkout import ROOT
from tests.world.scraping import until

FIRST_ANSWER_IS_LOST: Final = """
<script>
    const real = fetch
    let calls = 0
    window.fetch = async (...request) => {
        const answer = await real(...request)
        real("/said/" + answer.status)
        if (calls++ == 0) throw new Error("the connection was lost")
        return answer
    }
</script>"""
REPORTS: Final = """
<script>
    const real = fetch
    window.fetch = (...request) => real(...request).then(answer => real("/said/" + answer.status))
</script>"""
FETCH_HANGS: Final = "<script>window.fetch = () => new Promise(() => {})</script>"
LEAVE: Final = "<script>addEventListener('load', () => setTimeout(() => { location = '/elsewhere' }))</script>"


async def until_total(service: Service, wanted: int) -> None:
    """Until the counter `page:home` has this total. It has no higher one, neither before nor after it is applied."""
    async with asyncio.timeout(60):
        while (await service.totals()).get("page:home", 0) < wanted:
            await asyncio.sleep(0.05)
    assert await service.totals() == {"page:home": wanted}
    await service.apply()
    assert await service.totals() == {"page:home": wanted}


def script(service: Service, attributes: str = "", code: str = "") -> str:
    return f'<script src="{service.url}/countersink.js" {attributes}></script><script>{code}</script>'


async def test_a_page_counts_by_fetch(tmp_path: Path, home: Site, page: Tab) -> None:
    async with running(tmp_path, origins=(home.origin,)) as service:
        home.page = script(service, 'data-count="page:home"', 'countersink.count("page:home", 2)')
        await page.go(home.origin)
        await until_total(service, 3)


async def test_a_page_that_is_left_counts_by_beacon(tmp_path: Path, home: Site, page: Tab) -> None:
    async with running(tmp_path, origins=(home.origin,)) as service:
        home.page = FETCH_HANGS + script(service, 'data-count="page:home"') + LEAVE
        await page.go(home.origin)
        await until_total(service, 1)


async def test_a_retry_does_not_count_twice(tmp_path: Path, home: Site, page: Tab) -> None:
    async with running(tmp_path, origins=(home.origin,)) as service:
        home.page = FIRST_ANSWER_IS_LOST + script(service, 'data-count="page:home"')
        await page.go(home.origin)
        await until(lambda: home.said == ["202", "202"])
        await until_total(service, 1)


@IN_CHROMIUM
async def test_a_publishable_key_is_sent(tmp_path: Path, home: Site, page: Tab) -> None:
    entry = {"scopes": ["write"], "prefixes": ["page:"], "origins": [home.origin], "publishable": True}
    file, keys = keys_file(tmp_path, reader={"scopes": ["read"]}, site=entry)
    async with running(tmp_path, keys_file=str(file)) as service:
        home.page = REPORTS + script(service, f'data-key="{keys["site"]}" data-count="page:home"')
        await page.go(home.origin)
        await until(lambda: home.said == ["202"])
        bearer = {"Authorization": f"Bearer {keys['reader']}"}
        assert (await service.ask("GET", "/v1/counters/page:home", headers=bearer)).json["value"] == 1


async def test_a_page_of_an_origin_that_is_not_listed_counts_nothing(tmp_path: Path, home: Site, page: Tab) -> None:
    async with running(tmp_path, origins=("https://www.example.com",)) as service:
        target = f"{service.url}/v1/counters/page:home"
        home.page = script(
            service,
            'data-count="page:home"',
            f"""
            navigator.sendBeacon("{target}")
            const may = {{method: "POST", keepalive: true}}
            Promise.allSettled([
                fetch("{target}", may),
                fetch("{target}", {{...may, mode: "no-cors"}}),
                fetch("{service.url}/v1/increments", {{...may, body: "counter=page:home"}}),
            ]).then(all => fetch("/said/" + typeof countersink.count + all.map(one => one.status)))
            """,
        )
        await page.go(home.origin)
        await until(lambda: bool(home.said))
        assert home.said == ["functionrejected,fulfilled,rejected"]  # an opaque answer, which may be a refusal
        assert await service.totals() == {}


def picture(service: Service, target: str) -> str:
    """It tells the site whether it was shown, and how large it is."""
    return (
        f'<img src="{service.url}/v1/counters/{target}"'
        """ onload="fetch('/said/shown' + (naturalWidth > 1))" onerror="fetch('/said/refused')">"""
    )


async def test_a_page_of_any_site_counts_by_a_pixel(tmp_path: Path, home: Site, page: Tab) -> None:
    async with running(tmp_path, pixels=("page:",)) as service:
        home.page = picture(service, "page:home/pixel.gif")
        await page.go(home.origin)
        await until_total(service, 1)
        await until(lambda: home.said == ["shownfalse"])


@IN_CHROMIUM
async def test_with_keys_the_pixel_needs_one(tmp_path: Path, home: Site, page: Tab) -> None:
    entry = {"scopes": ["write"], "prefixes": ["page:"], "origins": ["https://www.example.com"], "publishable": True}
    file, keys = keys_file(tmp_path, site=entry)
    async with running(tmp_path, keys_file=str(file), pixels=("page:",)) as service:
        for query, said in (("", "refused"), (f"?key={keys['site']}", "shownfalse")):
            home.said.clear()
            home.page = picture(service, f"page:home/pixel.gif{query}")
            await page.go(home.origin)
            await until(lambda said=said: home.said == [said])  # type: ignore[misc] # a lambda of the loop


async def test_a_browser_draws_the_badge(tmp_path: Path, home: Site, page: Tab) -> None:
    async with running(tmp_path, badges=("page:",)) as service:
        home.page = picture(service, "page:home/badge.svg?label=%3Cb%3E%20%26")
        await page.go(home.origin)
        await until(lambda: home.said == ["showntrue"])


PAGE: Final = ROOT / "docs" / "live-number.md"
BOARD: Final = PAGE.parent / "recipes" / "leaderboard.md"
LIVE, ASKED, LARGEST = (
    html for page in (PAGE, BOARD) for html in re.findall(r"```html\n(.*?)```", page.read_text(), re.DOTALL)
)
SHOWS: Final = "document.getElementById('reads').value == '{}'"


@pytest.mark.parametrize("snippet", [LIVE, ASKED], ids=["live", "asked"])
async def test_a_page_of_another_site_shows_a_number(tmp_path: Path, home: Site, page: Tab, snippet: str) -> None:
    entry = {"scopes": ["read"], "prefixes": ["page:"], "origins": [home.origin], "publishable": True}
    file, keys = keys_file(tmp_path, mine={}, site=entry)
    async with running(tmp_path, keys_file=str(file)) as service:
        mine = {"Authorization": f"Bearer {keys['mine']}"}

        async def count(delta: int) -> None:
            body = b'{"delta": %d}' % delta
            assert (await service.ask("POST", "/v1/counters/page:home", body, mine)).status == 202

        await count(1_234)
        home.page = snippet.replace("https://counts.example.com", service.url).replace("cpk_site_…", keys["site"])
        await page.go(home.origin)
        await page.until(SHOWS.format("1,234"))
        if snippet is LIVE:
            await count(5)
            await page.until(SHOWS.format("1,239"))


async def test_without_a_service_the_page_says_so(home: Site, page: Tab) -> None:
    home.page = ASKED.replace("https://counts.example.com", "http://127.0.0.1:1")
    await page.go(home.origin)
    await page.until(SHOWS.format("many"))


async def test_a_page_shows_the_largest_and_keeps_up(tmp_path: Path, home: Site, page: Tab) -> None:
    entry = {"scopes": ["read"], "prefixes": ["score:"], "origins": [home.origin], "publishable": True, "rate": 10**5}
    file, keys = keys_file(tmp_path, mine={}, board=entry)
    async with running(tmp_path, keys_file=str(file)) as service:
        mine = {"Authorization": f"Bearer {keys['mine']}"}

        async def count(body: bytes) -> None:
            assert (await service.ask("POST", "/v1/increments", body, mine)).status == 202

        await count(b'{"counters": {"score:alice": 1200, "score:bob": 45, "other": 9999}}')
        snippet = LARGEST.replace("https://counts.example.com", service.url).replace("cpk_board_\u2026", keys["board"])
        home.page = snippet.replace("setTimeout(again, 5000)", "setTimeout(again, 50)").replace(
            "max_age=5", "max_age=0"
        )
        await page.go(home.origin)
        shown = "[...document.querySelectorAll('#board li')].map(line => line.textContent).join() == {!r}"
        await page.until(shown.format("alice 1,200,bob 45"))
        await count(b'{"counters": {"score:bob": 1955}}')
        await page.until(shown.format("bob 2,000,alice 1,200"))
