"""The connections of one process to a Redis of the simulation, in place of `shared.redis.server.Links`."""

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from shared.model.errors import TransientError
from shared.redis.scripts import Script
from shared.redis.server import AwayError, FullError
from tests.interleavings.simulation.network import Network
from tests.interleavings.simulation.servers import OutOfMemoryError, RedisServer, Site


class SimulatedLinks:
    """Every call goes out once. It may arrive when nobody waits for it any more, or its answer may be lost."""

    def __init__(self, network: Network, owner: str, site: Site, url: str) -> None:
        self._network = network
        self._owner = owner
        self._site = site
        self._host = urlsplit(url).hostname or ""

    async def run(self, script: Script, prefix: bytes, *arguments: Any) -> Any:
        return await self._call(lambda server: server.run(script.text, prefix, arguments))

    async def call(self, *command: Any) -> Any:
        return await self._call(lambda server: server.ask(command))

    async def _call(self, effect: Callable[[RedisServer], Any]) -> Any:
        server = self._site.server(self._owner, self._host)
        run = server.run_id

        async def arrives() -> Any:
            now = asyncio.get_running_loop().time()
            if server.hangs_until > now:
                await asyncio.sleep(server.hangs_until - now)
            if not server.up or server.run_id != run:
                raise AwayError("the connection was lost")
            try:
                return effect(server)
            except OutOfMemoryError:
                raise FullError("Redis is full") from None

        try:
            return await self._network.call(self._owner, f"redis {server.name}", arrives)
        except AwayError:
            raise
        except TransientError as error:
            raise AwayError(f"Redis is unavailable: {error}") from error

    async def drop(self) -> None:
        """A call asks anew who is there, always."""

    async def close(self) -> None:
        """Nothing is kept open."""
