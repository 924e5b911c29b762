"""The route of the script that web pages count with."""

import gzip
from hashlib import sha256
from pathlib import Path
from typing import Final

from aiohttp import web

from ingest.http.requests import Query
from ingest.http.responses import PUBLIC, cached

MAX_AGE: Final = 3_600
"""Seconds for which browsers and proxies keep the script."""
_FILE: Final = Path(__file__).with_name("countersink.js")


class ScriptRoute:
    """Anybody may have the script: it holds no key and no name. Pages bring these as attributes of their own."""

    def __init__(self) -> None:
        self._plain = _FILE.read_bytes()
        self._packed = gzip.compress(self._plain, mtime=0)
        self._digest = sha256(self._plain).hexdigest()[:16]

    async def get(self, request: web.BaseRequest, query: Query) -> web.Response:
        """GET /countersink.js"""
        query.all("v")  # a page may name a version, so that browsers fetch a new one at once
        query.done()
        packs = "gzip" in request.headers.get("Accept-Encoding", "").lower()
        headers = {"Content-Type": "text/javascript; charset=utf-8", "Vary": "Accept-Encoding", **PUBLIC}
        body, tag = (self._packed, f'"{self._digest}-gz"') if packs else (self._plain, f'"{self._digest}"')
        answer = cached(request, body, tag, headers, MAX_AGE)
        if packs and answer.body:
            answer.headers["Content-Encoding"] = "gzip"
        return answer
