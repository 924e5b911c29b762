"""The ground of the command: emulators and Redis servers of its own, of which nothing is left over."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.emulators.datastore_fixtures import FIRESTORE, Datastore
from tests.emulators.own import OwnEmulator
from tests.emulators.pubsub_fixtures import PUBSUB
from tests.emulators.redis_fixtures import RedisServer
from tests.processes.fleet.pairs import Embedded, Emulated, Pair, emulated
from tests.reliability.rows import CLOUD, SQLITE, Row


class Own:
    """Emulators are started when a row first needs them, and stay for the next."""

    def __init__(self, base: Path, stack: ExitStack) -> None:
        self._base = base
        self._stack = stack
        self._emulators: dict[str, OwnEmulator] = {}
        self.folder = base

    @contextmanager
    def fresh(self) -> Iterator[None]:
        """A folder for one row."""
        with tempfile.TemporaryDirectory(dir=self._base) as folder:
            self.folder = Path(folder)
            yield

    async def pair(self, row: Row, name: str) -> Pair:
        if name == SQLITE:
            return Embedded(self.folder)
        return await on(self.emulator("pubsub").host, self.emulator(name).host)

    def emulator(self, name: str) -> OwnEmulator:
        if name not in self._emulators:
            one = self._emulators[name] = OwnEmulator(name, self._arguments(name), self._base)
            self._stack.callback(one.end)
            one.start()
        return self._emulators[name]

    def _arguments(self, name: str) -> Sequence[str]:
        return {"pubsub": PUBSUB, CLOUD: FIRESTORE}[name]

    def redis(self) -> RedisServer:
        server = RedisServer(self.folder)
        self._stack.callback(server.kill)
        server.start()
        return server


async def on(pubsub: str, datastore: str) -> Emulated:
    return await emulated(pubsub, Datastore(datastore))


@contextmanager
def own() -> Iterator[Own]:
    with tempfile.TemporaryDirectory(prefix="countersink-") as base, ExitStack() as stack:
        yield Own(Path(base), stack)
