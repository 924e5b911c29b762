"""Knows whether Redis is up or away. While it is away, calls fail at once, and one task looks for it."""

import asyncio
import logging
from hashlib import sha256
from typing import Any, Final, NamedTuple

from shared.config.urls import shown
from shared.model.fleet import NamedOverlay
from shared.redis.links import AwayError, FullError, Links, Script
from shared.redis.member_scripts import MAKE, WHO

_log = logging.getLogger(__name__)

_PREFIX: Final = "countersink:"


class Identity(NamedTuple):
    """Which server answers, and whether it is fit for use."""

    name: str
    master: bool
    holds: bool
    """Whether it holds the epoch that was asked for."""
    policy: str = ""
    """Its `maxmemory-policy`; empty if it does not say."""


def prefix_of(overlay: NamedOverlay) -> bytes:
    """The prefix of all keys of an epoch."""
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

    async def plain(self, *command: Any, looking: bool = False) -> Any:
        """Run a plain command that changes nothing of the overlay."""
        self._check(looking=looking)
        try:
            return await self._links.call(*command)
        except AwayError as error:
            await self._lost(error)
            raise

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
        self._check(looking=looking)
        try:
            return await self._links.run(script, prefix, *arguments)
        except FullError as error:
            self.say(str(error))
            raise
        except AwayError as error:
            await self._lost(error)
            raise

    def _check(self, *, looking: bool) -> None:
        if not self.up and not looking:
            raise AwayError(f"Redis is away: {self.shown}")

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
                "%s (%s): increments are still accepted, but reads are not exact until it is back",
                why,
                self.shown,
            )
            self._said = why

    async def close(self) -> None:
        self.up = False
        await self._links.close()
