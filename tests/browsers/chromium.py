"""Drives pages of Chromium over its DevTools protocol."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from tests.browsers.process import Process
from tests.browsers.tab import REPORTS_VIOLATIONS, Tab
from tests.needs import program

FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars"),
    "--remote-debugging-port=0",
)
KEYS: Final[dict[str, dict[str, Any]]] = {
    "Tab": {"windowsVirtualKeyCode": 9},
    "Enter": {"windowsVirtualKeyCode": 13, "text": "\r"},
    "Escape": {"windowsVirtualKeyCode": 27},
    "/": {"windowsVirtualKeyCode": 191, "text": "/"},
}


IN_CHROMIUM: Final = pytest.mark.parametrize("browser", ["chromium"], indirect=True)
"""For a test of what our scripts decide. Others run each of these scripts, pages and dialogs in Firefox, too."""


class Chromium(Process):
    """A running Chromium."""

    def command(self, profile: Path) -> list[str]:
        # The headless shell takes a third of the processor time of the whole browser.
        found = program("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
        return [found, f"--user-data-dir={profile}", *FLAGS, "about:blank"]

    def address(self, profile: Path) -> str | None:
        with contextlib.suppress(FileNotFoundError):
            port, _, path = (profile / "DevToolsActivePort").read_text().strip().partition("\n")
            return f"ws://127.0.0.1:{port}{path}" if path else None
        return None

    @contextlib.asynccontextmanager
    async def tab(self) -> AsyncIterator[Tab]:
        async with aiohttp.ClientSession() as session, session.ws_connect(self.url, max_msg_size=0) as socket:
            browser = _Page(socket)
            listening = [asyncio.create_task(browser.listen())]
            context = await browser.call("Target.createBrowserContext")  # like a private window
            target = await browser.call("Target.createTarget", url="about:blank", **context)
            page = self.url.partition("/devtools/")[0] + f"/devtools/page/{target['targetId']}"
            async with session.ws_connect(page, max_msg_size=0) as other:
                tab = _Page(other)
                listening.append(asyncio.create_task(tab.listen()))
                for domain in ("Page", "Runtime", "Log"):
                    await tab.call(f"{domain}.enable")
                await tab.call("Emulation.setFocusEmulationEnabled", enabled=True)
                await tab.before(REPORTS_VIOLATIONS)
                yield tab
            await browser.call("Target.disposeBrowserContext", **context)
            await socket.close()
            await asyncio.gather(*listening)


class _Page(Tab):
    has_schemes = True

    async def run(self, script: str) -> Any:
        found = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, (script[:200], found)
        return found["result"].get("value")

    async def go(self, url: str) -> None:
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState !== 'loading'")

    async def before(self, script: str) -> None:
        await self.call("Page.addScriptToEvaluateOnNewDocument", source=f"{{{script}}}")

    async def press(self, key: str, *, shift: bool = False) -> None:
        said = {"key": key, "code": key, "modifiers": 8 if shift else 0}
        for what in ("keyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=what, **said, **KEYS[key])

    async def type(self, text: str) -> None:
        await self.call("Input.insertText", text=text)

    async def looks(self, width: int, height: int, scheme: str) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        await self.call("Emulation.setEmulatedMedia", features=features)

    async def _picture(self) -> str:
        found: str = (await self.call("Page.captureScreenshot", format="png"))["data"]
        return found

    def _flaws_of(self, event: str, params: Mapping[str, Any]) -> Iterator[str]:
        if event == "Runtime.exceptionThrown":
            yield str(params["exceptionDetails"])
        elif event == "Runtime.consoleAPICalled" and params["type"] in {"error", "warning"}:
            yield str(params["args"])
        elif event == "Log.entryAdded":
            entry = params["entry"]
            if entry["level"] in {"error", "warning"} and entry["source"] != "network":
                yield str(entry)
