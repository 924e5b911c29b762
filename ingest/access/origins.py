"""Which web page made a browser send a request, what such a page may send (CORS), and which pictures it may show."""

import re
from collections.abc import Mapping
from ipaddress import IPv6Address, ip_address
from typing import Any, Final, NamedTuple, cast
from urllib.parse import unquote, urlsplit

from aiohttp import web

from shared.http.answers import SECURE
from shared.http.front import Handler

_OWN: Final = frozenset({"same-origin", "none"})
"""Values of Sec-Fetch-Site of requests that no other site has caused."""


_HOST: Final = re.compile(r"(?:([a-z0-9._-]+)|\[([0-9a-f:.]+)\])(?::[0-9]{1,5})?")


def host_without_port(host: str) -> str:
    """The name or address in a header Host, in lower case; empty if it is not written as one."""
    found = _HOST.fullmatch(host.lower())
    return "" if found is None else found[1] or found[2]


def is_loopback(name: str) -> bool:
    """Whether a name or an address always means this machine."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ip_address(name.partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def is_address(name: str) -> bool:
    try:
        ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


def is_foreign(headers: Mapping[str, str]) -> bool:
    """Whether the page of another origin made a browser send this request."""
    origin = headers.get("Origin")
    if origin is not None:
        return not _is_own(origin, headers.get("Host", ""))
    return headers.get("Sec-Fetch-Site", "none") not in _OWN


def _is_own(origin: str, host: str) -> bool:
    """A proxy may have ended TLS, so the schemes are not compared."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and parts.netloc.lower() == host.lower()


# Tells which counters are shown as pictures: pixels that count, and badges. Pure.


COUNTERS: Final = "/v1/counters/"
PIXEL: Final = "/pixel.gif"
BADGES: Final = ("/badge.svg", "/badge.json")


class Pictures(NamedTuple):
    """The prefixes of the counters, from COUNTERSINK_PIXELS and COUNTERSINK_BADGES."""

    pixels: tuple[str, ...] = ()
    badges: tuple[str, ...] = ()

    def show(self, path: str) -> bool:
        """Whether pages of all sites may show this. `path` is as it was sent."""
        return self.has_pixel(path) or self.has_badge(path)

    def has_pixel(self, path: str) -> bool:
        return bool(self.pixels) and path.endswith(PIXEL) and _named(path, self.pixels)

    def has_badge(self, path: str) -> bool:
        return bool(self.badges) and path.endswith(BADGES) and _named(path, self.badges)


def _named(path: str, prefixes: tuple[str, ...]) -> bool:
    name, slash, part = path.removeprefix(COUNTERS).partition("/")
    return path.startswith(COUNTERS) and bool(slash) and "/" not in part and unquote(name).startswith(prefixes)


# Tells browsers that a page of another origin may send a request and see its answer.


PREFLIGHT: Final = "OPTIONS"
ASKED: Final = frozenset({"GET", "POST"})
REMEMBERED: Final = 600
"""Seconds for which a browser need not ask again."""
_MAY: Final = {
    "Access-Control-Allow-Headers": "Authorization, Last-Event-ID, Content-Type, Content-Encoding, Idempotency-Key, "
    "traceparent, tracestate, "
    "ce-specversion, ce-id, ce-source, ce-type, ce-time, ce-subject, ce-dataschema, ce-counter, ce-delta",
    "Access-Control-Max-Age": str(REMEMBERED),
    **SECURE,
}


SHARED: Final["web.RequestKey[dict[str, str]]"] = (
    web.RequestKey("shared", dict) if hasattr(web, "RequestKey") else cast("Any", "shared")  # before aiohttp 3.14
)
"""A stream finds these headers in the request under this key, since they must be there before it is."""


def shared(handler: Handler, origin: str) -> Handler:
    """A handler for requests of pages of this origin, which may see its answers. If a browser only asks whether a page
    may send a request, it does not call `handler`.
    """

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        asked = request.headers.get("Access-Control-Request-Method")
        if request.method == PREFLIGHT and asked in ASKED:
            return web.Response(status=204, headers=_MAY | {"Access-Control-Allow-Methods": asked} | _headers(origin))
        request[SHARED] = _headers(origin)
        response = await handler(request)
        response.headers.update(request[SHARED])
        return response

    return answer


def _headers(origin: str) -> dict[str, str]:
    return {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": "Retry-After", "Vary": "Origin"}
