"""Redis as this process sees it: there or away. While it is away nothing waits for it; one task looks for it."""

import asyncio
import logging
from typing import Any

from shared.redis.fleet_scripts import LOOK
from shared.redis.links import AwayError, FullError, Links, Script
from shared.urls import shown

_log = logging.getLogger(__name__)


def server_of(url: str, space: str) -> "Server":
    """`space` names the fleet."""
    return Server(url, f"countersink:{space}:", Links(url))


class Server:
    """Every call fails at once while Redis is away, but for those of the one that looks for it."""

    def __init__(self, url: str, prefix: str, links: Links) -> None:
        self.shown = shown(url)
        self._prefix = prefix.encode()
        self._links = links
        self.up = False
        self.wake = asyncio.Event()
        """Set when the task that looks for it has something to do."""
        self._said: str | None = ""

    async def ask(self, script: Script, *arguments: Any, looking: bool = False) -> Any:
        """What the script answers. `AwayError`: it may have run, or may run yet; `FullError`: it has not."""
        if not self.up and not looking:
            raise AwayError(f"Redis is away: {self.shown}")
        try:
            answer = await self._links.run(script, self._prefix, *arguments)
        except FullError as error:
            self._say(str(error))
            raise
        except AwayError as error:
            await self._lost(error)
            raise
        return answer.reply

    def key(self, name: str) -> bytes:
        return self._prefix + name.encode()

    async def plain(self, *command: Any, looking: bool = False) -> Any:
        """A plain command that changes nothing."""
        if not self.up and not looking:
            raise AwayError(f"Redis is away: {self.shown}")
        try:
            return await self._links.call(*command)
        except AwayError as error:
            await self._lost(error)
            raise

    async def look(self) -> None:
        """Whether it is there."""
        await self.ask(LOOK, looking=True)
        self.found()

    def found(self) -> None:
        """It answers."""
        if self._said is None:
            return
        if self._said:
            _log.warning("Redis at %s is back", self.shown)
        self._said = None
        self.up = True

    async def _lost(self, error: AwayError) -> None:
        if self.up:
            self.wake.set()  # once: who looks for it in vain takes its time
        self.up = False
        self._say(str(error))
        await self._links.drop()

    def _say(self, why: str) -> None:
        """Once until it is back."""
        if not self._said:
            where = f"{why} ({self.shown})"
            _log.warning(
                "%s: reads are not exact until it is back; who has reached it before accepts all the same", where
            )
            self._said = why

    async def close(self) -> None:
        self.up = False
        await self._links.close()
