"""One request as its handler sees it, and the handler's reply."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, TypeVar

from aiohttp import web
from msgspec import Struct
from msgspec.json import Encoder
from multidict import CIMultiDictProxy

from ingest.access.callers import Caller
from ingest.http.bodies import Bodies
from shared.http.front import has_gone, told_when_it_leaves

T = TypeVar("T")

encode: Final = Encoder().encode
"""The JSON of a struct, with integers of any size."""


class Reply(NamedTuple):
    """An answer that is not just 200 and JSON."""

    body: "bytes | Struct | dict[str, Any]"
    status: int = 200
    headers: Mapping[str, str] | None = None
    """All that matter; None for those of JSON."""


class Call:
    """Who asks, and what is not among the parameters that the route declares. Only streams use `request` itself."""

    __slots__ = ("_bodies", "caller", "request")

    def __init__(self, request: web.BaseRequest, caller: Caller, bodies: Bodies) -> None:
        self.request = request
        self.caller = caller
        self._bodies = bodies

    @property
    def headers(self) -> CIMultiDictProxy[str]:
        return self.request.headers

    @property
    def only_head(self) -> bool:
        """Whether the method is HEAD: the answer's body is not sent."""
        return self.request.method == "HEAD"

    def read_one(self, parse: Callable[[bytes], T]) -> Awaitable[T]:
        """What `parse` returns for the body of a request about one counter or one job."""
        return self._bodies.read_one(self.request, parse)

    def read_many(
        self, parse: Callable[[bytes], T], quick: Callable[[bytes], T | None] | None = None
    ) -> Awaitable[tuple[T, int]]:
        """The same for a batch, and the size of the body. See `Bodies.read_many`."""
        return self._bodies.read_many(self.request, parse, quick)

    def announced(self) -> int:
        """The size of the body as the headers announce it, or 0. Raises a 413 if that is too large."""
        return self._bodies.announced(self.request)

    def gone(self) -> bool:
        """Whether the client has hung up."""
        return has_gone(self.request)

    def told_when_it_leaves(self, tell: Callable[[], None]) -> AbstractContextManager[None]:
        """In this context, `tell` is called when the client seems to hang up."""
        return told_when_it_leaves(self.request, tell)

    def cached(self, body: bytes, tag: str, headers: dict[str, str], max_age: int) -> Reply:
        """A reply that may be kept for so many seconds; 304 if the client has the one with this tag."""
        headers = headers | {"ETag": tag, "Cache-Control": f"public, max-age={max_age}"}
        known = self.headers.get("If-None-Match", "")
        has_it = known.strip() == "*" or tag in [one.strip().removeprefix("W/") for one in known.split(",")]
        return Reply(b"", 304, headers) if has_it else Reply(body, 200, headers)
