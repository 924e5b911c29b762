"""The pages of docs/live-number.md and of the leaderboard, from another origin, in a real browser."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.browsers.site import Site
from tests.browsers.tab import Tab
from tests.http.keys import keys_file
from tests.http.service import running

PAGE: Final = Path(__file__).parents[2] / "docs" / "live-number.md"
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


@pytest.mark.parametrize("snippet", [ASKED])
async def test_without_a_service_the_page_says_so(home: Site, page: Tab, snippet: str) -> None:
    home.page = snippet.replace("https://counts.example.com", "http://127.0.0.1:1")
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
