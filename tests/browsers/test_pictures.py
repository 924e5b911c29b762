"""Pages of other sites show pixels and badges, in a real browser."""

from pathlib import Path

from tests.browsers.chromium import IN_CHROMIUM
from tests.browsers.site import Site
from tests.browsers.tab import Tab
from tests.browsers.waiting import until, until_total
from tests.http.keys import keys_file
from tests.http.service import Service, running


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


@IN_CHROMIUM
async def test_a_counter_without_a_rule_is_not_counted(tmp_path: Path, home: Site, page: Tab) -> None:
    async with running(tmp_path, pixels=("mail:",)) as service:
        home.page = picture(service, "page:home/pixel.gif")
        await page.go(home.origin)
        await until(lambda: home.said == ["refused"])
        assert await service.totals() == {}


async def test_a_browser_draws_the_badge(tmp_path: Path, home: Site, page: Tab) -> None:
    async with running(tmp_path, badges=("page:",)) as service:
        home.page = picture(service, "page:home/badge.svg?label=%3Cb%3E%20%26")
        await page.go(home.origin)
        await until(lambda: home.said == ["showntrue"])
