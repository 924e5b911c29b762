"""The page of the API: it shows every operation, and sends requests."""

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.browsers.chromium import IN_CHROMIUM, Chromium
from tests.browsers.judging import see
from tests.browsers.tab import Tab, use_key
from tests.http import contract
from tests.http.keys import keys_file
from tests.http.service import Service, running

DIALOG: Final = "document.querySelector('dialog[aria-labelledby=ask-title]')"


class Trial:
    """The form of one operation."""

    def __init__(self, tab: Tab, operation: str) -> None:
        self._tab = tab
        self._details = f"document.querySelector('#{operation}')"
        self._form = f"{self._details}.querySelector('form')"

    async def open(self) -> "Trial":
        await self._tab.run(
            f"for (const one of [{self._details}, {self._details}.querySelector('details')]) one.open = true"
        )
        await self._tab.until(f"{self._form} !== null")
        return self

    async def fill(self, label: str, text: str) -> None:
        await self._tab.run(f"""{{
            const label = [...{self._form}.querySelectorAll('label')].find(one => one.firstChild.data === {label!r})
            const field = document.getElementById(label.htmlFor)
            field.value = {json.dumps(text)}
            field.dispatchEvent(new Event('input', {{bubbles: true}}))
        }}""")

    async def submit(self) -> None:
        await self._tab.run(f"{self._form}.requestSubmit()")

    async def says(self, selector: str) -> Any:
        return await self._tab.run(f"{self._form}.querySelector('{selector}').textContent")

    async def until(self, selector: str, text: str) -> None:
        await self._tab.until(f"{self._form}.querySelector('{selector}')?.textContent.includes({text!r})")

    async def command(self) -> str:
        found: str = await self.says(".step code")
        return found


async def opened(tab: Tab, service: Service, operation: str) -> Trial:
    await tab.show(f"{service.url}/docs", "Send increments")
    return await Trial(tab, operation).open()


async def test_it_shows_every_operation(service: Service, tab: Tab, axe: str, tmp_path: Path) -> None:
    await tab.show(f"{service.url}/docs", "Send increments")
    wanted = {
        one["operationId"] for item in contract.DOCUMENT["paths"].values() for one in item.values() if "tags" in one
    }
    assert set(await tab.run("[...document.querySelectorAll('details[id]')].map(one => one.id)")) == wanted
    await tab.run("for (const one of document.querySelectorAll('details')) one.open = true")
    await tab.until("document.querySelectorAll('form.try').length === document.querySelectorAll('details[id]').length")
    await see(tab, axe, "docs", tmp_path)


async def test_a_request_is_sent_and_its_command_does_the_same(service: Service, tab: Tab) -> None:
    trial = await opened(tab, service, "increment")
    await trial.fill("name", "it's/here")
    await trial.fill("by", "4")
    await trial.fill("Body", "")
    assert await trial.command() == f"curl -X POST '{service.url}/v1/counters/it''s%2Fhere?by=4'".replace("''", "'\\''")
    await trial.submit()
    await trial.until(".status", "202 Accepted")
    await trial.until(".status ~ pre", '"accepted": 1')
    assert await trial.says(".status ~ dl dd") == "application/json"
    await trial.fill("by", "")
    await trial.fill("Body", '{\n"delta": 3, "id": "it\'s one"}')
    process = await asyncio.create_subprocess_exec("bash", "-c", f"{await trial.command()} -sS -o /dev/null")
    assert await process.wait() == 0
    assert await service.value("it's/here") == 7


@IN_CHROMIUM
async def test_what_changes_counters_is_asked_first(service: Service, tab: Tab, axe: str, tmp_path: Path) -> None:
    await service.incr("a", b'{"delta": 5}')
    trial = await opened(tab, service, "deleteCounter")
    await trial.fill("name", "a")
    await trial.submit()
    await tab.until(f"{DIALOG}?.open")
    await see(tab, axe, "sure", tmp_path)
    await tab.press("Escape")
    await tab.until(f"{DIALOG} === null")
    assert await trial.says(".status") == ""
    await trial.submit()
    await tab.until(f"{DIALOG}?.open")
    await tab.press("Enter")  # on Cancel, which has the focus
    await tab.until(f"{DIALOG} === null")
    assert await service.value("a") == 5
    await trial.submit()
    await tab.run(f"{DIALOG}.querySelector('.main').click()")
    await trial.until(".status", "200 OK")
    assert await service.value("a") == 0


async def test_a_stream_is_shown_until_it_is_stopped(service: Service, tab: Tab) -> None:
    await service.incr("a", b'{"delta": %d}' % (2**53 - 1))
    trial = await opened(tab, service, "watchCounter")
    await trial.fill("name", "a")
    await trial.submit()
    await trial.until("pre[aria-label^=Body]", "9007199254740991")
    await service.incr("a", b'{"delta": 2}')
    await trial.until("pre[aria-label^=Body]", "9007199254740993")
    assert await trial.says("[type=submit]") == "Stop"
    await trial.submit()
    await trial.until("[type=submit]", "Send")


@IN_CHROMIUM
async def test_an_error_is_shown(service: Service, tab: Tab) -> None:
    trial = await opened(tab, service, "incrementMany")
    await trial.fill("Body", "{")
    await trial.submit()
    await trial.until(".status.bad", "400 Bad Request")
    await trial.until("pre[aria-label^=Body]", '"detail":')


async def test_a_picture_is_shown(tmp_path: Path, tab: Tab) -> None:
    async with running(tmp_path, badges=("page:",)) as service:
        trial = await opened(tab, service, "getBadge")
        await trial.submit()
        await tab.until("document.querySelector('#getBadge img').naturalWidth > 50")


@IN_CHROMIUM
async def test_the_key_of_the_tab_is_sent_and_is_not_in_the_command(tmp_path: Path, tab: Tab) -> None:
    file, keys = keys_file(tmp_path, all={"scopes": ["read", "write"]})
    async with running(tmp_path, keys_file=str(file)) as service:
        await use_key(tab, service.url, keys["all"])
        trial = await opened(tab, service, "increment")
        assert '-H "Authorization: Bearer $COUNTERSINK_KEY"' in await trial.command()
        assert keys["all"] not in await trial.command()
        await trial.submit()
        await trial.until(".status", "202 Accepted")


@IN_CHROMIUM
@pytest.mark.parametrize("kind", ["application/json", "application/x-ndjson", "application/x-www-form-urlencoded"])
async def test_each_example_of_a_batch_counts(service: Service, tab: Tab, kind: str) -> None:
    trial = await opened(tab, service, "incrementMany")
    select = "document.querySelector('#incrementMany select[id]:has(option:nth-child(3))')"
    await tab.run(f"{select}.value = '{kind}'; {select}.dispatchEvent(new Event('change', {{bubbles: true}}))")
    await trial.submit()
    await trial.until(".status", "202 Accepted")
    assert await service.value("page:/home") == (3 if kind == "application/x-ndjson" else 1)


async def test_every_example_is_understood(service: Service, chromium: Chromium) -> None:
    async with chromium.tab() as tab:
        await tab.show(f"{service.url}/docs", "Send increments")
        for operation in await tab.run("[...document.querySelectorAll('details[id]')].map(one => one.id)"):
            trial = await Trial(tab, operation).open()
            await trial.submit()
            await tab.run(f"{DIALOG}?.querySelector('.main').click()")
            with contextlib.suppress(TimeoutError):
                await tab.until(f"/^\\d/.test(document.querySelector('#{operation} .status').textContent)")
            status = str(await trial.says(".status"))
            assert status[:3] in {"200", "202", "404"}, (operation, status, await trial.says("pre[aria-label^=Body]"))
            if await trial.says("[type=submit]") == "Stop":
                await trial.submit()
