"""Redis servers: one for each test that asks, empty, on its own port; it ends with the test run whatever happens."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from deploy.processes import free_port
from shared.config.settings import Settings
from shared.fleet import FleetView, Membership, new_member
from shared.model.fleet import Fleet as FleetWords
from shared.model.receipts import key_of_envelope
from shared.model.words import Envelope
from shared.ports.store import SpoolFile
from shared.redis.member import Member
from shared.redis.overlay import RedisOverlay
from shared.runtime.clock import Clock, SystemClock
from shared.wiring.files import Queue, open_spool
from tests.emulators.proxy import Proxy, proxy
from tests.needs import program
from tests.world.memory.fleet import MemoryFleetBook
from tests.world.memory.store import MemoryStore
from tests.world.scraping import until

LONGEST_START: Final = 60.0
SHORT: Final = {"every": 0.1, "look_every": 0.2, "patience": 0.3, "silent": 0.6}
"""Seconds, in tests."""
# The shell ends Redis when its own standard input ends, so when the test run is gone. It waits until the port is free.
KEPT: Final = 'redis-server "$@" >>redis.log 2>&1 & echo $!; read _; kill -9 $! 2>/dev/null; wait $! 2>/dev/null'


class RedisServer:
    """A process that can be killed, stopped and started again; what it held is gone then."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.port = free_port()
        self.host = f"127.0.0.1:{self.port}"
        self.url = f"redis://{self.host}/0"
        self._folder = folder
        self._options = options
        self._shell: subprocess.Popen[str] | None = None
        self.pid = 0

    def start(self) -> None:
        command = ["sh", "-c", KEPT, "sh", "--port", str(self.port), "--save", "", "--dir", str(self._folder)]
        self._shell = subprocess.Popen(
            [*command, "--bind", "127.0.0.1", *self._options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=self._folder,
        )
        assert self._shell.stdout is not None
        self.pid = int(self._shell.stdout.readline())
        until = time.monotonic() + LONGEST_START
        while self._ping() != b"+PONG":
            assert time.monotonic() < until, f"Redis does not start: {(self._folder / 'redis.log').read_text()}"
            time.sleep(0.01)

    def _ping(self) -> bytes:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(5)
        return b""

    def kill(self) -> None:
        shell, self._shell = self._shell, None
        if shell is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            shell.communicate("\n")

    def hang(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def ask(self, *command: str) -> str:
        """As somebody with redis-cli does."""
        done = subprocess.run(
            ["redis-cli", "-p", str(self.port), *command], capture_output=True, text=True, check=True, timeout=10
        )
        return done.stdout.strip()


Start = Callable[..., RedisServer]


async def accept(overlay: RedisOverlay, name: str, counter: str = "a") -> None:
    """An envelope is published at once."""
    async with overlay.entered([Envelope(name, {counter: 1})]):
        pass


async def names_in(overlay: RedisOverlay, counter: str = "a") -> tuple[set[str], bool]:
    """The keys of confirmed entries, and whether these are all there are."""
    view = (await overlay.view([counter]))[counter]
    return {entry.key for entry in view.entries if entry.confirmed}, view.exact


async def exact(overlay: RedisOverlay) -> bool:
    return (await names_in(overlay))[1]


async def until_exact(*overlays: RedisOverlay) -> None:
    for overlay in overlays:
        await until(partial(exact, overlay))


async def until_inexact(*overlays: RedisOverlay) -> None:
    async def inexact(overlay: RedisOverlay) -> bool:
        return not await exact(overlay)

    for overlay in overlays:
        await until(partial(inexact, overlay))


def member_of(overlay: RedisOverlay) -> Member:
    assert overlay._member is not None
    return overlay._member


def id_of(overlay: RedisOverlay) -> str:
    return member_of(overlay).membership.id


def keys(*names: str) -> set[str]:
    return {key_of_envelope(name) for name in names}


@pytest.fixture
def start_redis(tmp_path: Path) -> Iterator[Start]:
    """Call it for a server."""
    program("redis-server")
    servers: list[RedisServer] = []

    def start(*options: str) -> RedisServer:
        server = RedisServer(tmp_path, *options)
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.kill()


@pytest.fixture
def redis(start_redis: Start) -> RedisServer:
    return start_redis()


@pytest.fixture
async def network(redis: RedisServer) -> AsyncIterator[Proxy]:
    async with proxy(redis.host) as network:
        yield network


def spool_in(folder: Path, clock: Clock) -> Queue:
    """A spool of an ingest on Pub/Sub, in a file in this folder."""
    file = str(folder / "spool.db")
    settings = Settings(broker="pubsub://p/likes?subscription=flushers", spool=file, spool_disk="durable")
    spool = open_spool(settings, clock, "test", makes=True)
    assert spool is not None
    return spool


def through(network: Proxy) -> str:
    """The URL of Redis behind it."""
    return f"redis://{network.address}/0"


class Fleet:
    """Processes that share a store and a Redis. Their waits are short; looks serve nothing but the question asked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = SystemClock()
        self.use(MemoryStore(self.clock))
        self.overlays: list[RedisOverlay] = []

    def use(self, store: MemoryStore) -> None:
        self.store = store
        self.book = MemoryFleetBook(store)

    async def process(
        self,
        url: str = "",
        *,
        member: bool = True,
        opened: bool = True,
        longest_look: float = 0.0,
        spool: SpoolFile | None = None,
        **settings: Any,
    ) -> RedisOverlay:
        settings = SHORT | settings
        looks = FleetView(self.book, self.clock, longest_look)
        membership = (
            Membership(looks, self.clock, member=new_member(), topic="test", spool=spool, longest_look=longest_look)
            if member
            else None
        )
        overlay = RedisOverlay(url or self.url, looks, self.clock, membership=membership, store=self.store, **settings)
        if opened:
            await overlay.open()
            self.overlays.append(overlay)
        return overlay

    async def fleet(self) -> FleetWords:
        """What the store says."""
        return (await self.book.look()).fleet

    async def until(self, true: Callable[[FleetWords], object]) -> None:
        """Until that is true of what the store says."""

        async def is_true() -> bool:
            return bool(true(await self.fleet()))

        await until(is_true)

    async def crash(self, overlay: RedisOverlay) -> None:
        """It is gone without a word."""
        self.overlays.remove(overlay)
        overlay._member = None
        await overlay.close()

    async def leave(self, overlay: RedisOverlay) -> None:
        self.overlays.remove(overlay)
        await overlay.close()

    async def close(self) -> None:
        while self.overlays:
            await self.leave(self.overlays[0])


@pytest.fixture
async def fleet(redis: RedisServer) -> AsyncIterator[Fleet]:
    fleet = Fleet(redis.url)
    yield fleet
    await fleet.close()
