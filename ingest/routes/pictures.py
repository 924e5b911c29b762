"""The routes of pictures: pixels that count, and badges that show a total."""

from hashlib import sha256
from typing import Final

from aiohttp import web

from ingest.access.caller import CALLER
from ingest.access.pictures import Pictures
from ingest.http.problems import Problem
from ingest.http.requests import Query
from ingest.http.responses import PUBLIC, cached, line
from ingest.publishing.publishing import Publishing
from ingest.routes.badge import COLORS, STYLES, Badge, color_of
from ingest.routes.increments import IncrementRoutes
from shared.counters.reader import Reader
from shared.model.words import flaw_of_id, flaw_of_name

MAX_AGE: Final = 30
"""Seconds for which browsers and proxies keep a badge. Its stored part may be as old already."""
DEFAULT_COLOR: Final = "blue"
GIF: Final = b"GIF89a\x01\0\x01\0\x80\0\0\xff\xff\xff\0\0\0!\xf9\x04\x01\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;"
"""One transparent pixel."""


class PictureRoutes:
    """Only counters under the prefixes of a setting have pictures."""

    def __init__(self, pictures: Pictures, writes: IncrementRoutes, publishing: Publishing, reader: Reader) -> None:
        self._pictures = pictures
        self._writes = writes
        self._publishing = publishing
        self._reader = reader

    async def pixel(self, request: web.BaseRequest, name: str, query: Query) -> web.Response:
        """GET /v1/counters/{name}/pixel.gif"""
        _check(name, self._pictures.pixels, "COUNTERSINK_PIXELS")
        id_ = query.one("id")
        query.done()
        if id_ is not None and (flaw := flaw_of_id(id_)):
            raise Problem(422, f"'id' {flaw}", field="id")
        if request.method == "GET":
            draft = await self._writes.take(name, 1, id_, request[CALLER])
            await self._publishing.durable(draft)
        return web.Response(body=GIF, headers={"Content-Type": "image/gif", "Cache-Control": "no-store", **PUBLIC})

    async def badge(self, request: web.BaseRequest, name: str, query: Query, *, drawn: bool) -> web.Response:
        """GET /v1/counters/{name}/badge.svg and badge.json"""
        _check(name, self._pictures.badges, "COUNTERSINK_BADGES")
        label = query.one("label")
        wanted = query.one("color")
        color = color_of(DEFAULT_COLOR if wanted is None else wanted)
        style = (query.choice("style", *STYLES) if drawn else None) or STYLES[0]
        query.done()
        if label is not None and (flaw := flaw_of_name(label)):
            raise Problem(422, f"'label' {flaw}", field="label")
        if color is None:
            raise Problem(422, f"'color' must be 3 or 6 hexadecimal digits, or {', '.join(COLORS)}", field="color")
        (reading,) = await self._reader.read([name], MAX_AGE)
        badge = Badge(name if label is None else label, reading.value, color, style)
        body, media_type = (badge.svg(), "image/svg+xml") if drawn else (line(badge.json()), "application/json")
        headers = {"Content-Type": media_type, "Content-Security-Policy": "default-src 'none'", **PUBLIC}
        return cached(request, body, f'"{sha256(body).hexdigest()[:16]}"', headers, MAX_AGE)


def _check(name: str, prefixes: tuple[str, ...], setting: str) -> None:
    if not prefixes or not name.startswith(prefixes):
        raise Problem(404, f"pictures of this counter are off: {setting} lists the prefixes of counters that have them")
