"""Calls Redis over few connections, knows whether it is up or away, and checks whether it is fit for the overlay. While
it is away, calls fail at once.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple

from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError

from shared.config.findings import FAIL, OK, WARN, Finding
from shared.config.urls import shown
from shared.model.errors import SettingsError, TransientError
from shared.model.fleet import NamedOverlay
from shared.redis.scripts import MAKE, WHO, Script

# The connections. No command is repeated, except when the server said that it did not run.


TIMEOUT: Final = 0.5
MOST: Final = 8
"""The most connections in use. Further calls wait."""


class AwayError(TransientError):
    """Redis does not answer, or takes no writes. The command may have been done, or may still be done."""


class FullError(AwayError):
    """Redis has no memory left. Nothing was written; it can be read."""


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
        raise AwayError(f"Redis is unavailable: {error}") from error


async def _ask(link: AbstractConnection, *command: Any) -> Any:
    if not link.is_connected:
        raise ConnectionError("the connection was lost")  # `send_command` would reconnect, perhaps to another server
    await link.send_command(*command, check_health=False)
    return await link.read_response()


async def _end(link: AbstractConnection) -> None:
    with contextlib.suppress(RedisError, OSError):
        await link.disconnect(nowait=True)


# Whether it is up or away.


_log = logging.getLogger(__name__)

_PREFIX: Final = "countersink:"
"""Part of the protocol: a process with another prefix would not find the epoch, and would name another overlay."""


class Identity(NamedTuple):
    """Which server answers, and whether it is fit for use."""

    name: str
    master: bool
    holds: bool
    """Whether it holds the epoch that was asked for."""
    policy: str = ""
    """Its `maxmemory-policy`; empty if it does not say."""


def prefix_of(overlay: NamedOverlay) -> bytes:
    return f"{_PREFIX}{overlay.nonce}:".encode()


class Server:
    """The server of the overlay. While it is away every call fails at once, unless it is `looking` for the server."""

    def __init__(self, url: str, links: Links) -> None:
        self.shown = shown(url)
        self.place = sha256(self.shown.encode()).hexdigest()[:12]
        """Stands for its address, so that members can tell whether they use the same one."""
        self._links = links
        self.up = False
        self.wake = asyncio.Event()
        """Set when the task that looks for Redis has something to do."""
        self._said = ""

    async def ask(self, script: Script, overlay: NamedOverlay, *arguments: Any, looking: bool = False) -> list[Any]:
        """Run the script on the overlay. Returns a word, then data. The word `bad`: the overlay is not on this server.

        Raises `AwayError` if the script may have run, or may still run, and `FullError` if it did not.
        """
        identity = overlay.identity.encode()
        reply: list[Any] = await self._run(script, prefix_of(overlay), identity, *arguments, looking=looking)
        if reply[0] == b"bad":
            self.wake.set()
        return reply

    async def plain(self, *command: Any) -> Any:
        """Run a plain command that changes nothing of the overlay, even while Redis seems to be away."""
        return await self._call(partial(self._links.call, *command), looking=True)

    async def who(self, overlay: NamedOverlay) -> Identity:
        """Look for Redis. Returns which server answers, and whether it holds the epoch."""
        name, master, holds, policy = await self._run(WHO, prefix_of(overlay), looking=True)
        self.up = True
        return Identity(name.decode(), bool(master), bool(holds), policy.decode())

    async def make(self, nonce: str) -> str | None:
        """Make a new epoch's own key. Returns the identity of the server, or None if it takes no writes."""
        reply = await self._run(MAKE, prefix_of(NamedOverlay(nonce=nonce)), looking=True)
        return reply[1].decode() if reply[0] == b"ok" else None

    async def _run(self, script: Script, prefix: bytes, *arguments: Any, looking: bool) -> Any:
        return await self._call(partial(self._links.run, script, prefix, *arguments), looking=looking)

    async def _call(self, call: Callable[[], Awaitable[Any]], *, looking: bool) -> Any:
        if not self.up and not looking:
            raise AwayError(f"Redis is unavailable: {self.shown}")
        try:
            return await call()
        except FullError as error:
            self.say(str(error))
            raise
        except AwayError as error:
            await self._lost(error)
            raise

    def found(self) -> None:
        """Note that Redis answers and takes writes."""
        if self._said:
            _log.warning("Redis at %s is back", self.shown)
        self._said = ""

    async def _lost(self, error: AwayError) -> None:
        if self.up:
            self.wake.set()  # only once: while it stays away, the task that looks for it keeps its pauses
        self.up = False
        self.say(str(error))
        await self._links.drop()

    def say(self, why: str) -> None:
        """Log why Redis can't be the overlay now, once until it can."""
        if not self._said:
            _log.warning(
                "%s (%s): increments are still accepted, but reads are not exact until Redis can be used again",
                why,
                self.shown,
            )
            self._said = why

    async def close(self) -> None:
        self.up = False
        await self._links.close()


# Finds out whether a Redis can hold the overlay.


PART: Final = "overlay"
OLDEST: Final = (6, 0)
KEEPS: Final = "noeviction"
PROBE: Final = f"{_PREFIX}doctor"
"""A key that doctor writes, to see whether there is memory left. It expires after seconds."""
FULL: Final = (
    "it is full: raise its maxmemory, or start flushers if many increments wait; until then each increment takes two"
    " seconds, reads are not exact while one waits, and counters can't be set"
)
UNSAID: Final = (
    f"does not say whether it drops entries when its memory is full: set its maxmemory-policy to {KEEPS}, or reads"
    " could miss increments and say that they are exact"
)


def flaw_of_policy(policy: str) -> str | None:
    """Why a server with this policy can't be the overlay; None if it can, or does not say.

    Nobody is told of an entry that is dropped, and reads would miss it. Our keys never expire, so they survive policies
    that drop only keys with an expiry (`volatile-…`, the default of some managed services).
    """
    if policy in {"", KEEPS} or policy.startswith("volatile-"):
        return None
    return f"Redis has maxmemory-policy {policy} and may drop entries: set its maxmemory-policy to {KEEPS}"


async def findings_of(server: Server) -> list[Finding]:
    """A finding for each thing that is wrong, with what to do."""
    info = _read(await server.plain("INFO"))
    found = [*_findings(info)]
    if all(mark != FAIL for mark, _ in found):  # a replica, or a cluster, takes no such write
        try:
            await server.plain("SET", PROBE, "", "EX", 10)
        except FullError:
            found.append((FAIL, FULL))
    return [Finding(mark, PART, f"{server.shown}: {said}") for mark, said in found]


def _findings(info: dict[str, str]) -> Iterator[tuple[str, str]]:
    version = info.get("redis_version", "0")
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        yield FAIL, f"it is Redis {version}; {OLDEST[0]}.{OLDEST[1]} or later is needed"
    if info.get("cluster_enabled") == "1":
        yield FAIL, "it is a cluster; the overlay needs a single server, with replicas or without"
    policy = info.get("maxmemory_policy", "")
    if not policy:
        yield WARN, f"it {UNSAID}"
    if flaw := flaw_of_policy(policy):
        yield FAIL, f"{flaw}; until then no process uses it, and no read is exact"
    if info.get("role") not in {None, "master"}:
        yield FAIL, "it is a replica; name the server that takes writes"


def _read(text: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in text.decode().splitlines() if ":" in line)
    return {name: value for name, _, value in lines}


# Checks whether a Redis is fit for the overlay.


class RedisSetup:
    """Only looks at Redis; it is no member of the fleet."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def provision(self) -> AsyncIterator[Finding]:
        yield Finding(OK, PART, f"{self._server.shown}: nothing to do, the first process makes what it needs")

    async def findings(self) -> AsyncIterator[Finding]:
        try:
            found = await findings_of(self._server)
        except TransientError as error:
            said = f"{self._server.shown}: can't be reached ({error}): check that it runs and COUNTERSINK_OVERLAY names"
            yield Finding(FAIL, PART, f"{said} it; until then, reads are not exact")
            return
        yield Finding(OK, PART, f"{self._server.shown}: can be reached")
        for finding in found:
            yield finding
