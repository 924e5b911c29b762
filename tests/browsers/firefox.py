"""Drives pages of Firefox over WebDriver BiDi, which Firefox speaks itself."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.browsers.process import OUTPUT, Process
from tests.browsers.tab import REPORTS_VIOLATIONS, Tab
from tests.needs import program

KEYS: Final = {"Tab": "\ue004", "Enter": "\ue007", "Escape": "\ue00c", "/": "/"}
SHIFT: Final = "\ue008"
PREFERENCES: Final = 'user_pref("ui.prefersReducedMotion", 1);\n'


class Firefox(Process):
    """A running Firefox. It serves one tab at a time."""

    def command(self, profile: Path) -> list[str]:
        (profile / "user.js").write_text(PREFERENCES)
        found = program("firefox-esr", "firefox")
        return [found, "--headless", "--no-remote", "--profile", str(profile), "--remote-debugging-port=0"]

    def address(self, profile: Path) -> str | None:
        found = re.search(r"BiDi listening on (ws://\S+)", (profile / OUTPUT).read_text())
        return f"{found[1]}/session" if found else None

    @contextlib.asynccontextmanager
    async def tab(self) -> AsyncIterator[Tab]:
        async with aiohttp.ClientSession() as session, session.ws_connect(self.url, max_msg_size=0) as socket:
            tab = _Page(socket)
            listening = asyncio.create_task(tab.listen())
            await tab.call("session.new", capabilities={"alwaysMatch": {}})
            try:
                context = await tab.call("browser.createUserContext")  # like a private window
                tab.page = await tab.call("browsingContext.create", type="tab", **context)
                await tab.call("session.subscribe", events=["log.entryAdded"])
                await tab.before(REPORTS_VIOLATIONS)
                yield tab
                await tab.call("browser.removeUserContext", **context)
            finally:
                await tab.call("session.end")
            await socket.close()
            await listening


class _Page(Tab):
    page: Mapping[str, str]
    """Says in commands which page is meant."""

    async def run(self, script: str) -> Any:
        asked = {"expression": script, "target": self.page, "awaitPromise": True}
        found = await self.call("script.evaluate", **asked)
        assert found["type"] == "success", (script[:200], found)
        return _value(found["result"])

    async def go(self, url: str) -> None:
        await self.call("browsingContext.navigate", url=url, wait="interactive", **self.page)

    async def before(self, script: str) -> None:
        await self.call("script.addPreloadScript", functionDeclaration=f"() => {{{script}}}")

    async def press(self, key: str, *, shift: bool = False) -> None:
        keys = [SHIFT, KEYS[key]] if shift else [KEYS[key]]
        await self._act([("keyDown", one) for one in keys] + [("keyUp", one) for one in reversed(keys)])

    async def type(self, text: str) -> None:
        await self._act([(what, one) for one in text for what in ("keyDown", "keyUp")])

    async def _act(self, keys: Sequence[tuple[str, str]]) -> None:
        actions = [{"type": what, "value": key} for what, key in keys]
        await self.call(
            "input.performActions", actions=[{"type": "key", "id": "keys", "actions": actions}], **self.page
        )

    async def looks(self, width: int, height: int, scheme: str) -> None:
        await self.call("browsingContext.setViewport", viewport={"width": width, "height": height}, **self.page)

    async def _picture(self) -> str:
        found: str = (await self.call("browsingContext.captureScreenshot", **self.page))["data"]
        return found

    def _flaws_of(self, event: str, params: Mapping[str, Any]) -> Iterator[str]:
        if event == "log.entryAdded" and params["level"] in {"error", "warn"}:
            yield str(params)


def _value(told: Mapping[str, Any]) -> Any:
    """What a script returned. Arrays and objects come with the types of their parts."""
    match told["type"]:
        case "array":
            return [_value(one) for one in told["value"]]
        case "object":
            return {name: _value(one) for name, one in told["value"]}
        case "string" | "number" | "boolean":
            return told["value"]
        case _:
            return None
