"""A whole ingest on a broker and a store in memory, which answers over connections without sockets."""

import asyncio
import contextlib
import hashlib
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from flusher.dead_letters.desk import OneAtATime
from ingest.access.keys import SCOPES, Key, written
from ingest.service import Ingest
from shared.config.settings import Settings
from shared.http.front import Front
from shared.http.server import HttpServer, listen
from shared.model.errors import StorageFullError
from shared.model.words import Message
from shared.ports.broker import Check, at_any_time
from shared.runtime import metrics
from tests.http.both_ways import Varying, plain
from tests.http.fuzz.line import Line
from tests.interleavings.simulation.loop import VirtualLoop
from tests.interleavings.simulation.system import LoopClock
from tests.world.memory.broker import MemoryBroker
from tests.world.memory.store import MemoryStore
from tests.world.parts import parts_of

SECRET: Final = "ab" * 32
ORIGIN: Final = "https://shop.example"
PREFIX: Final = "page:"
FULL: Final = "full"
"""A publish of this counter fails."""
BODY_TIMEOUT: Final = 0.3
MAX_BODY: Final = 2_000
SHORTLY: Final = 0.001
SETTLED: Final = 3.0
"""Virtual seconds after which nothing happens any more: longer than a refused body is read for."""
_ALL: Final = tuple(SCOPES)
KEYS: Final = (
    Key(id="all", sha256="", scopes=_ALL),
    Key(id="counts", sha256="", scopes=("write",)),
    Key(id="reads", sha256="", scopes=("read",)),
    Key(id="pages", sha256="", scopes=_ALL, prefixes=(PREFIX, "é")),
    Key(id="owned", sha256="", scopes=_ALL, owner="shop"),
    Key(id="few", sha256="", scopes=_ALL, rate=1e-3),
    Key(id="old", sha256="", scopes=_ALL, expires="2020-01-01T00:00:00Z"),
    Key(id="web", sha256="", scopes=("write",), prefixes=(PREFIX,), publishable=True, origins=(ORIGIN,)),
)
SIGNED: Final[Varying] = (re.compile(rb"own-[0-9a-f]{32}(?=[^\"]*\.minted)"), b"own-signed")
"""The signature of ids that are minted."""
_ASK_ALL: Final = b"GET /v1/counters?max_age=0&limit=1000 HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer %b\r\n\r\n"


class Told(NamedTuple):
    """What a client has seen of one connection."""

    seen: bytes
    is_open: bool


class State(NamedTuple):
    """What there is after all connections."""

    sums: dict[str, int]
    counts: dict[str, int]
    keyed: list[tuple[str, int, str]]
    batches: list[str]
    """Idempotency keys of batches, as ids."""
    totals: bytes
    refused: tuple[float, ...]
    """As metrics count it."""


def keys_file(folder: Path) -> Path:
    file = folder / "keys.json"
    digest = hashlib.sha256(SECRET.encode()).hexdigest()
    file.write_bytes(written([Key(**{**vars(key), "sha256": digest}) for key in KEYS]))
    return file


def text_of(key: str) -> str:
    return f"{'cpk' if key == 'web' else 'csk'}_{key}_{SECRET}"


class _SlowBroker(MemoryBroker):
    delay = 0.0

    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
        await asyncio.sleep(self.delay)
        if any(FULL in json.loads(message.data)["counters"] for message in messages):
            raise StorageFullError("the disk is full: free some space")
        await super().publish(messages, check)


class Side:
    """One of the servers that are compared. `short`: with the fast path."""

    def __init__(self, loop: VirtualLoop, settings: Settings, *, short: bool, delay: float) -> None:
        self._loop = loop
        clock = LoopClock(loop)
        self._broker = _SlowBroker(clock)
        self._broker.delay = delay
        parts = parts_of(self._broker, MemoryStore(clock), clock)
        self._ingest = Ingest(parts, settings, letters=OneAtATime(parts, settings), version="0", short=short)
        self._before = _refused()

    async def start(self) -> None:
        await self._ingest.start(listen("127.0.0.1", 0))

    async def stop(self) -> None:
        await self._ingest.stop()

    @contextlib.asynccontextmanager
    async def connected(self, *, slow: bool = False) -> AsyncIterator[Line]:
        line = Line(Front(self._server()), self._loop, slow=slow)
        await asyncio.sleep(SHORTLY)  # asyncio, too, reads only after the server has begun to wait for a request
        try:
            yield line
        finally:
            line.hang_up()
            await asyncio.sleep(SETTLED)

    async def told(self, data: bytes) -> Told:
        """What the server answers to this on a connection of its own."""
        async with self.connected() as line:
            line.send(data)
            await asyncio.sleep(SETTLED)
            return Told(plain(line.seen, SIGNED), not line.is_closing())

    def handled(self) -> int:
        """Requests that did not take the fast path."""
        return self._server().aiohttp.requests_count

    def _server(self) -> HttpServer:
        assert self._ingest.server is not None
        return self._ingest.server

    async def state(self) -> State:
        await self._ingest.publishing.drain()
        refused = tuple(now - before for now, before in zip(_refused(), self._before, strict=True))
        totals = await self.told(_ASK_ALL % text_of("all").encode())
        sums, counts = Counter[str](), Counter[str]()
        keyed: list[tuple[str, int, str]] = []
        batches = []
        for held in self._broker._messages.values():
            data = json.loads(held.message.data)
            sums.update(data["counters"])
            counts.update({name: data.get("counts", {}).get(name, 1) for name in data["counters"]})
            keyed += [(item["counter"], item["delta"], item["id"]) for item in data.get("keyed", ())]
            batches += [held.message.once] if held.message.once else []
        return State(dict(sums), dict(counts), sorted(keyed), sorted(batches), totals.seen, refused)


def _refused() -> tuple[float, ...]:
    return tuple(metric.get() for metric in (metrics.REJECTED, metrics.OVERLOADED, metrics.LIMITED))
