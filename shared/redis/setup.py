"""Checks whether a Redis is fit for the overlay."""

from collections.abc import AsyncIterator

from shared.config.findings import FAIL, OK, Finding
from shared.model.errors import TransientError
from shared.redis.server import Server
from shared.redis.server_checks import PART, findings_of


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
            said = f"{self._server.shown}: can't be reached ({error}): see that it runs and COUNTERSINK_OVERLAY names"
            yield Finding(FAIL, PART, f"{said} it; until then, reads are not exact")
            return
        yield Finding(OK, PART, f"{self._server.shown}: can be reached")
        for finding in found:
            yield finding
