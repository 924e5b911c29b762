"""The reference of single requests: aiohttp on uvloop with a handler that does nothing. Prints its URL."""

import asyncio

import uvloop
from aiohttp import web


async def handle(_: web.Request) -> web.Response:
    return web.Response()


async def main() -> None:
    app = web.Application()
    app.router.add_post("/", handle)
    app.router.add_get("/", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    print(f"http://{host}:{port}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main())
