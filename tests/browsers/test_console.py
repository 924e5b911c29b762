"""The console in Chromium and Firefox: what it shows, that it is accessible, and that its policy is kept."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from ingest.api import pages
from shared.counters.reader import AllNames
from shared.model.words import Envelope
from shared.wire.codec import encode
from tests.browsers.chromium import IN_CHROMIUM, Chromium
from tests.browsers.judging import see
from tests.browsers.tab import Tab
from tests.http.keys import keys_file
from tests.http.service import Service, running
from tests.world.scraping import until

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
    await tab.run("search.value = 'page:'; search.dispatchEvent(new Event('input'))")
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
performance.now = () => 0 // so no list is slow, after which the page would rest until it asks by itself
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


@IN_CHROMIUM
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


@IN_CHROMIUM
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


@IN_CHROMIUM
async def test_the_filter_and_the_order_are_in_the_address(service: Service, tab: Tab) -> None:
    for name, by in (("page:a/b&c", 1), ("page:z", 5), ("other", 9)):
        await service.incr(name, b'{"delta": %d}' % by)
    first = "document.querySelector('tbody a')?.textContent"
    await tab.show(service.url, "3 counters.")
    await tab.run("search.value = 'page:'; search.dispatchEvent(new Event('input'))")
    await tab.run("order.value = 'value'; order.dispatchEvent(new Event('change'))")
    await tab.until(f"document.querySelectorAll('tbody tr').length === 2 && {first} === 'page:z'")
    address = await tab.run("location.href")
    await tab.run("document.querySelector('tbody a').click()")
    await tab.until("document.querySelector('.value')?.textContent === '5'")
    await tab.run("document.querySelector('[data-by=day]')?.click(); history.back()")
    await tab.until(f"{first} === 'page:z'")
    assert await tab.run("[search.value, order.value]") == ["page:", "value"]
    await tab.run("search.value = 'page:a/b&'; search.dispatchEvent(new Event('input'))")
    await tab.until(f"{first} === 'page:a/b&c'")
    await reloaded(tab)
    await tab.until(f"{first} === 'page:a/b&c' && document.querySelectorAll('tbody tr').length === 1")
    await tab.run("document.querySelector('nav a').click()")
    await tab.until("document.querySelectorAll('tbody tr').length === 3")
    await tab.go("about:blank")
    await tab.go(address)
    await tab.until(f"document.querySelectorAll('tbody tr').length === 2 && {first} === 'page:z'")


async def count(service: Service, when: datetime, **counts: int) -> None:
    """Count as if it were accepted then."""
    counters = {name.replace("_", ":"): by for name, by in counts.items()}
    stamp = int(when.timestamp() * 1_000)
    envelope = Envelope(f"{stamp}{sorted(counters)}", counters, created=stamp)
    await service.parts.publisher.publish([encode(envelope)])
    await service.apply()


@IN_CHROMIUM
async def test_a_row_has_a_spark_line_and_a_trend_where_counts_by_time_are_kept(service: Service, tab: Tab) -> None:
    now = datetime.now(UTC)
    await count(service, now - timedelta(days=10), page_home=100)
    await count(service, now - timedelta(days=3), page_home=150, other=7)
    await tab.show(service.url, "2 counters.")
    trends = "[...document.querySelectorAll('td.spark')].map(one => one.textContent.replace('\\u2013', 'none'))"
    await tab.until(f"{trends}.join() === 'none,↑ 50 %'")
    drawn = "[...document.querySelectorAll('.line')].map(one => one.getAttribute('d').length > 20)"
    assert await tab.run(drawn) == [False, True]
    assert (
        await tab.run("document.querySelectorAll('.spark[title]')[1].title")
        == "150 in 7 days, 100 in the 7 days before"
    )
    await tab.run("range.value = 'day'; range.dispatchEvent(new Event('change'))")
    await tab.until(f"{trends}.join() === 'none,'")
    await tab.run("range.value = 'month'; range.dispatchEvent(new Event('change'))")
    await tab.until(f"{trends}.join() === 'none,new'")
    await reloaded(tab)
    await tab.until(f"{trends}.join() === 'none,new'")


@IN_CHROMIUM
async def test_it_says_that_it_waits_and_why_there_are_no_trends(service: Service, tab: Tab) -> None:
    await service.incr("other")
    await tab.before(
        "const ask = fetch; window.fetch = (...all) => new Promise(go => (window.go = go)).then(() => ask(...all))"
    )
    await tab.show(service.url, "Loading…")
    await tab.until("go() || document.body.innerText.includes('1 counter. No trends: the setting COUNTERSINK_WINDOWS')")


@IN_CHROMIUM
async def test_pinned_counters_come_first_and_share_a_chart(
    service: Service, tab: Tab, axe: str, tmp_path: Path
) -> None:
    for name, by in (("page:a", 4), ("page:b", 2), ("page:c", 3), ("z", 1)):
        await service.incr(name, b'{"delta": %d}' % by)
    await service.apply()
    names = "[...document.querySelectorAll('tbody a')].map(one => one.textContent).join()"
    await tab.show(service.url, "4 counters.")
    for name in ("page:c", "page:b"):
        await tab.run(f"document.querySelector('[aria-label=\\'Pin {name}\\']').click()")
    await tab.until(f"{names} === 'page:c,page:b,page:a,z'")
    await reloaded(tab)
    await tab.until(f"{names} === 'page:c,page:b,page:a,z'")
    assert await tab.run("document.querySelectorAll('.pin[aria-pressed=true]').length") == 2
    await tab.run("[...document.querySelectorAll('a')].find(one => one.textContent === 'Pinned in one chart').click()")
    await tab.until("document.body.innerText.includes('5 in all.')")
    assert (
        await tab.run("[...document.querySelectorAll('.sums td')].map(one => one.textContent).join()")
        == "page:c,3,,,page:b,2,,"
    )
    await tab.run("against.click(); document.querySelector('[data-by=day]').click()")
    await tab.until("document.querySelectorAll('.sums td')[3].textContent === 'new'")
    await see(tab, axe, "chart", tmp_path)
    await reloaded(tab)
    await tab.until("document.querySelectorAll('.sums td')[3]?.textContent === 'new'")
    assert await tab.run("document.querySelector('[aria-pressed=true]').textContent") == "Last 90 days"


async def test_counts_between_two_dates_are_compared_with_those_before(service: Service, tab: Tab) -> None:
    noon = datetime.now().astimezone().replace(hour=12, minute=0)
    for days, by in ((9, 1), (8, 40), (7, 60), (6, 90), (5, 30), (4, 2)):
        await count(service, noon - timedelta(days=days), page_home=by)
    begin, end = [(noon - timedelta(days=days)).date().isoformat() for days in (6, 5)]
    await tab.show(f"{service.url}/#/counter/page%3Ahome", "in all.")
    await tab.run("against.click()")
    for name, value in (("from", begin), ("to", end)):
        it = f"document.getElementById('{name}')"
        await tab.run(f"{it}.value = '{value}'; {it}.dispatchEvent(new Event('change'))")
    await tab.until(
        "document.body.innerText.includes('120 in all; 100 in the 2 days before (↑ 20 %). Times are yours')"
    )
    assert await tab.run("document.querySelector('[data-by][aria-pressed=true]')") is None
    await reloaded(tab)
    await tab.until("document.body.innerText.includes('120 in all; 100 in the 2 days before (↑ 20 %)')")
    await tab.run("document.querySelector('[data-by=day]').click()")
    await tab.until("document.body.innerText.includes('223 in all')")
    assert await tab.run("document.getElementById('from').value") == ""


SAVED: Final = """
window.saved = []
URL.createObjectURL = blob => { blob.text().then(text => saved.push(text)); return "#" }
HTMLAnchorElement.prototype.click = function () { saved.push(this.download) }
"""


@IN_CHROMIUM
async def test_what_is_shown_is_saved_as_csv_without_formulas(service: Service, tab: Tab) -> None:
    for name, by in (("page:a", -5), ('=HYPERLINK("x")', 2), ("-7", 1)):
        await service.incr(name, b'{"delta": %d}' % by)
    await service.apply()
    await tab.before(SAVED)
    save = "[...document.querySelectorAll('main button')].find(one => one.textContent === 'CSV').click()"
    await tab.show(service.url, "3 counters.")
    await tab.run(save)
    await tab.until("saved.length === 2")
    text = await tab.run("saved.find(one => one.includes(','))")
    head, *lines = text.splitlines()
    assert head == '"counter","value","pending","exact","as_of"'
    assert [line.split(',"0"')[0] for line in lines] == ['"-7","1"', '"\'=HYPERLINK(""x"")","2"', '"page:a","-5"']
    await tab.run("saved.length = 0; location.hash = '#/counter/page%3Aa'")
    await tab.until("document.body.innerText.includes('in all.')")
    await tab.run(save)
    await tab.until("saved.length === 2")
    text = await tab.run("saved.find(one => one.includes(','))")
    assert text.splitlines()[0] == '"from","page:a"'
    assert text.splitlines()[-1].endswith(':00:00.000Z","-5"')


async def test_counters_are_found_by_a_part_and_a_slash_goes_to_the_search(service: Service, tab: Tab) -> None:
    for name in ("page:home", "home", "page:docs"):
        await service.incr(name)
    names = "[...document.querySelectorAll('tbody a')].map(one => one.textContent).join()"
    await tab.show(f"{service.url}/#/pipeline", "Processes")
    await tab.press("/")
    await tab.until("document.activeElement?.id === 'search'")
    await tab.type("ome")
    await tab.until(f"{names} === 'home,page:home'")
    await tab.press("/")
    await tab.until("document.body.innerText.includes('contains “ome/”')")
    assert await tab.run("location.hash") == "#/?find=ome%2F"
    await tab.run("document.querySelector('.slash').click()")
    await reloaded(tab)
    await tab.until("document.querySelector('.slash')?.getAttribute('aria-pressed') === 'false'")
    await tab.press("/")
    await tab.run("new Promise(done => setTimeout(done))")
    assert await tab.run("document.activeElement.id !== 'search'")


@IN_CHROMIUM
async def test_without_a_search_in_the_service_names_are_found_by_their_beginning(
    service: Service, tab: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AllNames, "searchable", False)
    for name in ("page:home", "home"):
        await service.incr(name)
    await tab.show(f"{service.url}/#/?find=hom", "1 counter.")
    assert await tab.run("document.querySelector('label').innerText === 'Names that begin with'") or await tab.run(
        "document.body.innerText.includes('Names that begin with')"
    )


async def test_days_are_those_of_utc_wherever_the_reader_is(service: Service, chromium: Chromium) -> None:
    """Only Chromium lets a test choose the time zone."""
    today = datetime.now(UTC)
    await service.incr("page:home")
    await service.apply()
    async with chromium.tab() as tab:
        await tab.call("Emulation.setTimezoneOverride", timezoneId="America/Phoenix")
        await tab.show(
            f"{service.url}/#/counter/page%3Ahome?by=day", "Days are those of UTC, and begin at 17:00 of your time."
        )
        where = "document.querySelector('.chart .u-over').getBoundingClientRect()"
        await tab.run("document.querySelector('.chart').scrollIntoView()")
        x, y = await tab.run(f"[{where}.right - 2, {where}.top + 50]")
        await tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        await tab.until(f"document.body.innerText.includes('1 from {today.day} {today:%b}.')")
        await tab.run("document.querySelector('[data-by=hour]').click()")
        await tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
        await tab.until("document.body.innerText.includes('Times are yours (America/Phoenix).')")


@IN_CHROMIUM
async def test_the_length_of_a_bar_is_in_the_address(service: Service, tab: Tab) -> None:
    await service.incr("page:home")
    await tab.show(f"{service.url}/#/counter/page%3Ahome", "in all.")
    await tab.run("document.querySelector('[data-by=day]').click()")
    await reloaded(tab)
    await tab.until("document.querySelector('[aria-pressed=true]')?.textContent === 'Last 90 days'")


@IN_CHROMIUM
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


async def test_each_file_has_the_headers(service: Service) -> None:
    for path in ("/", "/docs", *(f"/console/{name}" for name in pages.FILES)):
        found = await service.get(path)
        assert found.status == 200
        assert found.headers["Content-Security-Policy"].startswith("default-src 'none';")
        assert (found.headers["X-Content-Type-Options"], found.headers["Cache-Control"]) == ("nosniff", "no-cache")
        head = f"GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nIf-None-Match: {found.headers['ETag']}\r\n\r\n"
        again = await service.send(head.encode())
        assert again.startswith(b"HTTP/1.1 304 ")
        assert again.endswith(b"\r\n\r\n")


@IN_CHROMIUM
async def test_no_name_looks_like_another(service: Service, tab: Tab) -> None:
    """A sign that turns the direction of writing round would show this one as page:home."""
    name = "page:\u202eemoh"
    assert (await service.incr(name)).status == 202
    await tab.show(service.url, "page:")
    await tab.until("document.querySelector('tbody a')?.textContent === 'page:\\\\u202eemoh'")
    await tab.run("document.querySelector('tbody a').click()")
    await tab.until("document.querySelector('h1')?.textContent === 'page:\\\\u202eemoh'")
    await tab.until("document.querySelector('.value')?.textContent === '1'")
