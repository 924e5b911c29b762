"""Drives a page of Chromium over its DevTools protocol."""

import asyncio
import base64
import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.browsers.chromium import FLAGS, chromium

PATIENCE: Final = 20.0


class Tab:
    """One page, and what went wrong in it."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count(1)
        self.flaws: list[str] = []
        """Exceptions, errors on the console and violations of the policy. A refused request is none."""

    async def listen(self) -> None:
        async for message in self._socket:
            said = message.json()
            if "id" in said:
                self._answers.pop(said["id"]).set_result(said)
            elif said["method"] == "Runtime.exceptionThrown":
                self.flaws.append(str(said["params"]["exceptionDetails"]))
            elif said["method"] == "Runtime.consoleAPICalled" and said["params"]["type"] in {"error", "warning"}:
                self.flaws.append(str(said["params"]["args"]))
            elif said["method"] == "Log.entryAdded":
                entry = said["params"]["entry"]
                if entry["level"] in {"error", "warning"} and entry["source"] != "network":
                    self.flaws.append(str(entry))

    async def call(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(PATIENCE):
            found = await answer
        assert "error" not in found, (method, found)
        return found["result"]

    async def run(self, script: str) -> Any:
        """The value of an expression, which may be a promise."""
        found = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, (script[:200], found)
        return found["result"].get("value")

    async def until(self, script: str) -> None:
        """Wait until an expression is true."""
        async with asyncio.timeout(PATIENCE):
            while not await self.run(script):
                await asyncio.sleep(0.05)

    async def looks(self, width: int, height: int, scheme: str) -> None:
        """Change the size of the window and the colour scheme that the user prefers."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        await self.call("Emulation.setEmulatedMedia", features=features)

    async def picture(self, file: Path) -> None:
        found = await self.call("Page.captureScreenshot", format="png")
        await asyncio.to_thread(file.write_bytes, base64.b64decode(found["data"]))


@contextlib.asynccontextmanager
async def browsing(folder: Path) -> AsyncIterator[Tab]:
    """A tab of a browser of its own, with an empty profile in this folder."""
    profile = folder / "profile"
    process = await asyncio.create_subprocess_exec(
        *(chromium(), f"--user-data-dir={profile}", *FLAGS, "about:blank"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with aiohttp.ClientSession() as session:
            async with asyncio.timeout(PATIENCE):
                while not (port := _port(profile)):
                    await asyncio.sleep(0.05)
                async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    (url,) = [one["webSocketDebuggerUrl"] for one in await answer.json() if one["type"] == "page"]
            async with session.ws_connect(url, max_msg_size=0) as socket:
                tab = Tab(socket)
                listening = asyncio.create_task(tab.listen())
                for domain in ("Page", "Runtime", "Log"):
                    await tab.call(f"{domain}.enable")
                yield tab
            await listening
    finally:
        process.terminate()
        await process.wait()


def _port(profile: Path) -> str:
    with contextlib.suppress(FileNotFoundError):
        return (profile / "DevToolsActivePort").read_text().partition("\n")[0]
    return ""
