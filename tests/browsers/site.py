"""A web site of another origin, whose pages use a service."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from tests.world.serving import serving


class Site:
    """A web site. It serves `page` at every path, and keeps what pages report with `fetch("/said/…")`."""

    def __init__(self) -> None:
        self.page = ""
        self.origin = ""
        self.said: list[str] = []

    async def answer(self, request: web.BaseRequest) -> web.Response:
        _, said, what = request.path.partition("/said/")
        if said:
            self.said.append(what)
            return web.Response()
        page = self.page if request.path == "/" else request.path
        return web.Response(text=f"<!doctype html><meta charset=utf-8><body>{page}", content_type="text/html")


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    """A site at `localhost`, which is another site than 127.0.0.1 for a browser."""
    found = Site()
    async with serving(web.ServerRunner(web.Server(found.answer))) as port:
        found.origin = f"http://localhost:{port}"
        yield found
