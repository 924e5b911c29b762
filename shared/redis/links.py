"""The few connections to Redis. No command is repeated, except when the server said that it did not run."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha1
from typing import Any, Final

from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError

from shared.config.urls import shown
from shared.model.errors import SettingsError, TransientError

TIMEOUT: Final = 0.5
MOST: Final = 8
"""The most connections in use. Further calls wait."""


class AwayError(TransientError):
    """Redis does not answer, or takes no writes. The command may have been done, or may still be done."""


class FullError(AwayError):
    """Redis has no memory left. Nothing was written; it can be read."""


class Script:
    """A script that runs inside Redis as one atomic step, called by its hash."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = sha1(text.encode(), usedforsecurity=False).hexdigest()


class Links:
    """The connections to one address. Each script finds out by itself which server runs it."""

    def __init__(self, url: str, timeout: float = TIMEOUT) -> None:
        try:
            self._pool = ConnectionPool.from_url(
                url.replace("valkey", "redis", 1) if url.startswith("valkey") else url,
                socket_timeout=None,  # `_translated` limits the whole call
                socket_connect_timeout=timeout,
                retry=Retry(NoBackoff(), 0),
                protocol=2,
            )
            self._new()  # only this notices an unknown option
        except (TypeError, ValueError) as error:
            raise SettingsError(f"{shown(url)}: this URL or an option after its ? can't be used: {error}") from error
        self._timeout = timeout
        self._turn = asyncio.Semaphore(MOST)
        self._idle: list[AbstractConnection] = []
        self._dropped = 0
        """How often `drop` was called."""
        self._closed = False

    async def run(self, script: Script, prefix: bytes, *arguments: Any) -> Any:
        """Run the script with the prefix as its only key, and return its answer."""
        async with self._lent() as link:
            try:
                return await _ask(link, "EVALSHA", script.sha, 1, prefix, *arguments)
            except NoScriptError:
                return await _ask(link, "EVAL", script.text, 1, prefix, *arguments)

    async def call(self, *command: Any) -> Any:
        """Run a plain command that changes nothing of the overlay."""
        async with self._lent() as link:
            return await _ask(link, *command)

    @asynccontextmanager
    async def _lent(self) -> AsyncIterator[AbstractConnection]:
        """Lend a connection, in turn. A caller that waits for its turn while Redis goes away fails when it gets it;
        otherwise such callers would time out one after the other.
        """
        dropped = self._dropped
        async with self._turn, _translated(self._timeout):
            if dropped != self._dropped:
                raise AwayError("Redis went away while this call waited for a connection")
            link = await self._take()
            try:
                yield link
            except BaseException as error:
                await self._put(link, error)
                raise
            await self._put(link)

    async def drop(self) -> None:
        """Close the idle connections, so that the next calls connect again."""
        self._dropped += 1
        while self._idle:
            await _end(self._idle.pop())

    async def close(self) -> None:
        """Close the idle connections now, and the others when their calls have ended."""
        self._closed = True
        await self.drop()

    def _new(self) -> Any:
        """Make a connection; the library types this only in part."""
        return self._pool.make_connection()  # type: ignore[no-untyped-call]

    async def _take(self) -> Any:
        while self._idle:
            idle = self._idle.pop()
            if idle.is_connected:
                return idle
        link = self._new()
        try:
            await link.connect()
        except BaseException:
            await _end(link)
            raise
        return link

    async def _put(self, link: AbstractConnection, error: BaseException | None = None) -> None:
        """Keep the connection for others, unless an answer may still arrive on it."""
        if not self._closed and (error is None or isinstance(error, ResponseError)):
            self._idle.append(link)
        else:
            await _end(link)


@asynccontextmanager
async def _translated(timeout: float) -> AsyncIterator[None]:
    """Translate the vendor's errors into ours, and end a call that takes too long."""
    try:
        async with asyncio.timeout(timeout):
            yield
    except TimeoutError as late:
        raise AwayError("Redis does not answer in time") from late
    except (RedisError, OSError) as error:
        if isinstance(error, ResponseError) and "maxmemory" in str(error):
            raise FullError(f"Redis is full: {error}") from error
        raise AwayError(f"Redis is away: {error}") from error


async def _ask(link: AbstractConnection, *command: Any) -> Any:
    if not link.is_connected:
        raise ConnectionError("the connection was lost")  # `send_command` would reconnect, perhaps to another server
    await link.send_command(*command, check_health=False)
    return await link.read_response()


async def _end(link: AbstractConnection) -> None:
    with contextlib.suppress(RedisError, OSError):
        await link.disconnect(nowait=True)
