"""Owns how a test opens a page in Chromium, and the site that the page belongs to."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NoReturn

import pytest
from aiohttp import web

FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars"),
    "--remote-debugging-port=0",  # else it ends when the page is there
)


def missing(reason: str) -> NoReturn:
    """Skip the test, or fail it if nothing may be missing."""
    if os.environ.get("COUNTERSINK_REQUIRE_ALL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def chromium() -> str:
    """The program. Skips the test, or fails it, if there is none."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        missing("Chromium is missing: install the package chromium")
    return found


@asynccontextmanager
async def opened(url: str, folder: Path) -> AsyncIterator[None]:
    """Show this page in a new browser until the end of the block."""
    process = await asyncio.create_subprocess_exec(
        chromium(),
        *FLAGS,
        f"--user-data-dir={folder / 'chromium'}",
        url,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


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
    runner = web.ServerRunner(web.Server(found.answer))
    await runner.setup()
    try:
        listener = web.TCPSite(runner, "127.0.0.1", 0)
        await listener.start()
        found.origin = f"http://localhost:{runner.addresses[0][1]}"
        yield found
    finally:
        await runner.cleanup()
