"""What people, browsers and operators open: the console, the script for web pages, probes, metrics, and this API's
description. The console's files hold no data: its scripts read it over the API, with the user's key.
"""

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final, Literal

from msgspec import Struct
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from ingest.api.fields import AnyParameters, Read
from ingest.http.requests import Call, File, Query
from shared.http.answers import PUBLIC, SECURE
from shared.http.shares import FairLock
from shared.runtime import metrics

PAGE: Final = "index.html"
_FOLDER: Final = files("ingest.console") / "files"
FILES: Final = tuple(sorted(one.name for one in _FOLDER.iterdir() if one.name != PAGE))
SCRIPT_AGE: Final = 3_600
"""Seconds for which browsers and proxies keep the script."""
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
Ready = Callable[[], Awaitable[None]]
"""Raises the error that an increment would be answered with now."""


async def console(call: Call, _: AnyParameters) -> File:
    """The console, a page for people"""
    return call.cached(*_read(PAGE))


async def docs(call: Call, _: AnyParameters) -> File:
    """The API as a page for people"""
    return call.cached(*_read(PAGE))


def serves(name: str) -> Callable[..., Awaitable[File]]:

    async def file(call: Call, _: AnyParameters) -> File:
        return call.cached(*_read(name))

    return file


@cache
def _read(name: str) -> tuple[bytes, dict[str, str]]:
    """The file and its headers. Browsers keep it, and ask each time whether it has changed."""
    body = (_FOLDER / name).read_bytes()
    headers = {
        "Content-Type": _TYPES[name.rpartition(".")[2]],
        "Content-Security-Policy": _POLICY,
        "Cache-Control": "no-cache",
        "ETag": f'"{sha256(body).hexdigest()[:32]}"',
        **SECURE,
    }
    return body, headers


class ScriptAsks(Struct):
    v: Annotated[str | None, Read(Query.all)] = None
    """Any text. A browser that keeps a script fetches it again if this text is another one."""


@cache
def _script() -> tuple[bytes, bytes, str]:
    """The script, the same compressed, and its digest. It holds no key and no name: pages bring these themselves."""
    plain = Path(__file__).with_name("countersink.js").read_bytes()
    return plain, gzip.compress(plain, mtime=0), sha256(plain).hexdigest()[:16]


async def get_script(call: Call, _: ScriptAsks) -> File:
    """The script that web pages count with"""
    plain, packed, digest = _script()
    packs = "gzip" in call.headers.get("Accept-Encoding", "").lower()
    body, tag = (packed, f'"{digest}-gz"') if packs else (plain, f'"{digest}"')
    kept = {"Cache-Control": f"public, max-age={SCRIPT_AGE}", "ETag": tag, "Vary": "Accept-Encoding"}
    reply = call.cached(body, {"Content-Type": _TYPES["js"], **kept, **PUBLIC})
    if packs and reply.body:
        return reply._replace(headers={**reply.headers, "Content-Encoding": "gzip"})
    return reply


class Alive(Struct):
    status: Literal["alive"]


class IsReady(Struct):
    status: Literal["ready"]


class Version(Struct):
    version: str


class ServiceRoutes:
    def __init__(self, ready: Ready, version: str, document: Callable[[], bytes]) -> None:
        """`document` makes the OpenAPI document, which takes some time once."""
        self._ready = ready
        self._version = version
        self._document = document
        self._scrapes = FairLock()

    async def healthz(self, _: Call, __: AnyParameters) -> Alive:
        """The service is alive"""
        return Alive("alive")

    async def readyz(self, _: Call, __: AnyParameters) -> IsReady:
        """The service can accept increments durably"""
        await self._ready()
        return IsReady("ready")

    async def metrics(self, call: Call, _: AnyParameters) -> File:
        """Metrics for Prometheus"""
        async with call.caller.turn(self._scrapes):
            body = generate_latest(metrics.REGISTRY)
            await asyncio.sleep(0)  # others want a turn of the event loop
        return File(body, {"Content-Type": CONTENT_TYPE_LATEST, **SECURE})

    async def version(self, _: Call, __: AnyParameters) -> Version:
        """The version of the service"""
        return Version(self._version)

    async def openapi(self, _: Call, __: AnyParameters) -> bytes:
        """The description of the API"""
        return await asyncio.to_thread(self._document)
