"""Owns the step that every request passes before anything else is done with it: who sends it, and whether they may.

The connection calls it, whichever way a request takes through the server: the fast path, aiohttp and a handler, or only
to be told that it is not HTTP. What it returns goes with the request, so that nothing behind it looks at the headers or
the peer again to find out who the client is.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from aiohttp import web

from ingest.access.tenants import tenant_of


class Caller(NamedTuple):
    """Who sends a request, as far as the service has to know."""

    tenant: str
    """The client whose share of the room a request takes."""


CALLER: Final = web.RequestKey("caller", Caller)
"""Handlers find the caller in the request under this key."""


class Door:
    """The one place for access control. There is none yet: everybody is let in, and told apart by address."""

    def enter(self, method: str, path: str, query: str, headers: Mapping[str, str], peer: str) -> Caller:
        """Return who the caller is, or raise the `Problem` or `CountersinkError` that the request is answered with.

        It is called exactly once for each request, before the path is routed, the query is parsed or the body is read.
        After an error nothing else is done with the request. `path` and `query` are as they were sent, with their
        percent-encoding; names of `headers` are found in upper and lower case; `peer` is the address of the other end
        of the connection, or empty. A request that is not HTTP is shown as method UNKNOWN of `/` without headers.

        It must not block: each request of the fast path pays for it.
        """
        del method, path, query, headers  # these are for access control
        return _caller_at(peer)


@lru_cache(maxsize=4_096)
def _caller_at(peer: str) -> Caller:
    return Caller(tenant_of(peer))
