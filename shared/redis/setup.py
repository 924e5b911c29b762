"""Whether a Redis is fit for the overlay, and what makes its readings inexact now."""

from collections.abc import AsyncIterator
from typing import Final

from shared.errors import TransientError
from shared.findings import FAIL, OK, WARN, Finding
from shared.redis.flaws import flaws_of
from shared.redis.fleet_scripts import TRUST
from shared.redis.server import Server

_PART: Final = "overlay"


class RedisSetup:
    """Looks on; it is no member of the fleet."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def provision(self) -> AsyncIterator[Finding]:
        yield Finding(OK, _PART, f"{self._server.shown}: nothing is to be done, the first process makes what it needs")

    async def findings(self) -> AsyncIterator[Finding]:
        try:
            flaws = await flaws_of(self._server)
            yield Finding(OK, _PART, f"{self._server.shown}: can be reached")
            for flaw in flaws:
                yield Finding(FAIL, _PART, flaw)
            for finding in await self._exactness():
                yield finding
        except TransientError as error:
            said = (
                f"{self._server.shown}: can't be reached ({error}): see that it runs and COUNTERSINK_OVERLAY names it;"
            )
            said += " until it can, reads are not exact, and an ingest that starts now accepts nothing"
            yield Finding(FAIL, _PART, said)

    async def trust(self) -> None:
        """Nothing that it has lost is unapplied."""
        await self._server.ask(TRUST, looking=True)

    async def _exactness(self) -> list[Finding]:
        server = self._server
        seconds, _ = await server.plain("TIME", looking=True)
        members = await server.plain("HGETALL", server.key("members"), looking=True)
        (suspect,) = await server.plain("HMGET", server.key("server"), "suspect", looking=True)
        lapsed = sum(int(until) <= int(seconds) * 1_000 for until in members[1::2])
        found = []
        if lapsed:
            said = f"{lapsed} of {len(members) // 2} ingests have not been heard of: reads are not exact until they are"
            found.append(Finding(WARN, _PART, f"{said}, or the others have made sure that they accept nothing"))
        if suspect is not None:
            said = "Redis lost what may not be applied yet: reads are not exact until flushers have seen nothing so old"
            found.append(
                Finding(WARN, _PART, f"{said} for a while (or you say so: countersink doctor --trust-overlay)")
            )
        return found or [Finding(OK, _PART, f"{len(members) // 2} ingests write to it, nothing makes reads inexact")]
