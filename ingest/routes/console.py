"""Serves the files of the console. They hold no data: the scripts read it over the API, with the user's key."""

from collections.abc import Awaitable, Callable
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

from aiohttp import web

from ingest.access.rules import CONSOLE_FILES
from ingest.http.requests import Query
from ingest.http.responses import SECURE

Serve = Callable[[web.BaseRequest, Query], Awaitable[web.Response]]

_PAGE: Final = "index.html"
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def console() -> dict[str, Serve]:
    """Handlers of GET by path: of the pages, which are one file, and of the files that it loads."""
    return {
        "/": _serves(_PAGE),
        "/docs": _serves(_PAGE),
        **{path: _serves(path.rpartition("/")[2]) for path in CONSOLE_FILES},
    }


def _serves(name: str) -> Serve:
    async def serve(request: web.BaseRequest, _: Query) -> web.Response:
        body, headers = _read(name)
        if headers["ETag"] in request.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers=headers)
        return web.Response(body=body, headers=headers)

    return serve


@cache
def _read(name: str) -> tuple[bytes, dict[str, str]]:
    """The file and its headers. Browsers keep it, and ask each time whether it has changed."""
    body = (files("ingest.console") / "files" / name).read_bytes()
    headers = {
        "Content-Type": _TYPES[name.rpartition(".")[2]],
        "Content-Security-Policy": _POLICY,
        "Cache-Control": "no-cache",
        "ETag": f'"{sha256(body).hexdigest()[:32]}"',
        **SECURE,
    }
    return body, headers
