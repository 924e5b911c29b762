"""Serves data to this process alone, so that a command can do to them what a service would do."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from tempfile import TemporaryDirectory

from countersink_server.serve.run import ingest_of
from countersink_server.serve.sockets import PREFIX, Address, listening
from shared.config.settings import Settings
from shared.wiring.process import connect


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[str]:
    """The URL of the data inside it: a Unix socket in a folder that only this user can open, so keys are not needed.

    Nothing is applied here: accepted increments wait for the next flusher, and reads include them.
    """
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that the folder is removed
    settings = replace(settings, keys_file="", linger_ms=0)
    parts = connect(settings)
    try:
        await parts.open()
        service = ingest_of(parts, settings)
        with TemporaryDirectory(prefix="countersink-") as folder:
            address = Address(f"{PREFIX}{folder}/socket", 0)
            with listening(address, keys=False) as sockets:
                async with asyncio.TaskGroup() as tasks:
                    tender = tasks.create_task(service.tend(), name="tend")
                    try:
                        assert sockets.public is not None  # noqa: S101 (it is the address above)
                        await service.start(sockets.public)
                        yield address.host
                    finally:
                        await service.stop()
                    tender.cancel()
    finally:
        await parts.close()
