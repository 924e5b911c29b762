"""Owns the log of requests: how many are logged, and what a line says."""

import asyncio
import logging
from typing import Final

from ingest.access.caller import Caller

NAME: Final = "countersink.requests"
"""The logger. Its lines are written whatever the log level."""
LONGEST: Final = 1_000
"""Characters of what a client sent."""
_log = logging.getLogger(NAME)
_log.setLevel(logging.INFO)


class RequestLog:
    """Logs some requests of each second."""

    def __init__(self) -> None:
        self.left = 0
        """How many more requests are logged in this second. They do not take the fast path."""
        self._each = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self, each: int) -> None:
        """Log so many requests a second from now on, until `stop`."""
        self._each = each
        if each:
            self._next_second()

    def stop(self) -> None:
        self.left = 0
        if self._timer is not None:
            self._timer.cancel()

    def _next_second(self) -> None:
        self.left = self._each
        self._timer = asyncio.get_running_loop().call_later(1, self._next_second)

    def takes(self) -> bool:
        """Whether the request that has just come is logged."""
        if self.left <= 0:
            return False
        self.left -= 1
        return True


LOG: Final = RequestLog()


def note(
    method: str,
    path: str,
    status: int,
    seconds: float,
    *,
    caller: Caller | None,
    version: str = "1.1",
    agent: str = "",
) -> None:
    """Log a request that is answered now. Its query is left out: a key may stand there."""
    path = path[:LONGEST]
    http = {
        "requestMethod": method,
        "requestUrl": path,
        "status": status,
        "latency": f"{seconds:.6f}s",
        "protocol": f"HTTP/{version}",
        "userAgent": agent[:LONGEST],
        "remoteIp": caller.client if caller is not None else "",
    }
    key = caller.key.id if caller is not None and caller.key is not None else "-"
    _log.log(
        logging.INFO if status < 500 else logging.WARNING,  # noqa: PLR2004 (where our faults begin)
        "%s %s %d in %.1f ms, key %s",
        *(method, path, status, seconds * 1_000, key),
        extra={"http": http},
    )
