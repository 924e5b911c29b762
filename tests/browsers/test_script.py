"""Pages of another origin count with /countersink.js, in a real browser."""

from pathlib import Path

from tests.browsers.chromium import IN_CHROMIUM
from tests.browsers.site import Site
from tests.browsers.tab import Tab
from tests.browsers.waiting import until, until_total
from tests.http.keys import keys_file
from tests.http.service import Service, running

FIRST_ANSWER_IS_LOST = """
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
REPORTS = """
<script>
    const real = fetch
    window.fetch = (...request) => real(...request).then(answer => real("/said/" + answer.status))
</script>"""
FETCH_HANGS = "<script>window.fetch = () => new Promise(() => {})</script>"
LEAVE = "<script>addEventListener('load', () => setTimeout(() => { location = '/elsewhere' }))</script>"


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
