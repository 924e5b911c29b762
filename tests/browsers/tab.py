"""One page of a browser, whichever browser it is, and what a test does with it."""

import asyncio
import base64
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp

PATIENCE: Final = 20.0
REPORTS_VIOLATIONS: Final = """
addEventListener("securitypolicyviolation", found => console.error(`${found.violatedDirective}: ${found.blockedURI}`))
"""


class NavigatedError(Exception):
    """The page went to another one before it answered."""


class Tab(ABC):
    """One page, and what went wrong in it. Commands and events are JSON on a websocket."""

    has_schemes = False
    """Whether a test can choose the colour scheme that the user prefers."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count(1)
        self.flaws: list[str] = []
        """Exceptions, errors on the console and violations of the policy. A refused request is none."""

    async def listen(self) -> None:
        async for message in self._socket:
            said = message.json()
            if said.get("id") in self._answers:
                self._answers.pop(said["id"]).set_result(said)
            elif "method" in said:
                self.flaws += self._flaws_of(said["method"], said["params"])

    async def call(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(PATIENCE):
            found = await answer
        if "navigated" in str(found.get("error")):
            raise NavigatedError(method, found)
        assert "error" not in found, (method, found)
        return found["result"]

    async def until(self, script: str) -> None:
        """Wait until an expression is true."""
        async with asyncio.timeout(PATIENCE):
            while not await self._holds(script):
                await asyncio.sleep(0.05)

    async def _holds(self, script: str) -> bool:
        try:
            return bool(await self.run(script))
        except NavigatedError:
            return False

    async def show(self, url: str, text: str) -> None:
        """Go to a page, and wait until it shows this text."""
        await self.go(url)
        await self.until(f"document.readyState === 'complete' && document.body.innerText.includes({text!r})")

    async def picture(self, file: Path) -> None:
        await asyncio.to_thread(file.write_bytes, base64.b64decode(await self._picture()))

    @abstractmethod
    async def run(self, script: str) -> Any:
        """The value of a script's last expression, which may be a promise."""

    @abstractmethod
    async def go(self, url: str) -> None:
        """Go to a page, and wait until all of its HTML is there."""

    @abstractmethod
    async def before(self, script: str) -> None:
        """Run a script in each page before its own."""

    @abstractmethod
    async def press(self, key: str, *, shift: bool = False) -> None:
        """Press a key: Tab, Enter, Escape or "/"."""

    @abstractmethod
    async def type(self, text: str) -> None:
        """Type a text where the focus is."""

    @abstractmethod
    async def looks(self, width: int, height: int, scheme: str) -> None:
        """Change the size of the window, and the colour scheme if `has_schemes`."""

    @abstractmethod
    async def _picture(self) -> str:
        """A PNG of the visible part, in Base64."""

    @abstractmethod
    def _flaws_of(self, event: str, params: Mapping[str, Any]) -> Iterator[str]: ...


async def use_key(tab: Tab, url: str, key: str) -> None:
    """Let the console of this service have a key from the start."""
    await tab.show(f"{url}/console/uplot-LICENSE.txt", "MIT")
    await tab.run(f"sessionStorage.setItem('countersink-key', {key!r})")
