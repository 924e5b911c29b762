"""The pages of docs/live-number.md, from another origin, in a real browser."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.browsers.site import Site
from tests.browsers.tab import Tab
from tests.http.keys import keys_file
from tests.http.service import running

PAGE: Final = Path(__file__).parents[2] / "docs" / "live-number.md"
LIVE, ASKED = re.findall(r"```html\n(.*?)```", PAGE.read_text(), re.DOTALL)
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
