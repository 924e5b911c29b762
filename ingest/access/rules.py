"""Tells which scopes a request needs, and what metrics call it: both follow from the table of routes. Pure.

A path that is not in the table needs any key: it is answered 404.
"""

from typing import Final

from ingest.access.origins import COUNTERS
from ingest.access.scopes import ANY, OPEN, TO_COUNT
from ingest.api.routes import ROUTES, Route, split

WITHOUT_KEY: Final = frozenset(route.path for route in ROUTES if route.need == OPEN)
"""These paths need no key."""
STREAMS: Final = frozenset(route.label for route in ROUTES if route.streams)
"""Routes whose answers go on until the client leaves."""
OTHER: Final = "other"
"""The route of a request that has no handler."""
_ROUTES: Final = {(route.method, route.path): route for route in ROUTES}


def find(method: str, path: str) -> Route | None:
    """The route of a request. `path` is as it was sent."""
    return _ROUTES.get(("GET" if method == "HEAD" else method, split(path)[0]))


def needs(method: str, path: str) -> frozenset[str]:
    """The scopes that allow a request: its key needs one of them. `path` is as it was sent."""
    if method == "POST" and path.startswith(COUNTERS) and path.find("/", len(COUNTERS)) < 0:
        return TO_COUNT  # the most common one; the table says the same
    route = find(method, path)
    return ANY if route is None else route.need or ANY


def route_of(method: str, path: str) -> str:
    """What metrics call a request. There are few routes, whatever clients send."""
    route = find(method, path)
    return OTHER if route is None else route.label


def counts(path: str) -> bool:
    """Whether a POST to this path counts."""
    return needs("POST", path) is TO_COUNT
