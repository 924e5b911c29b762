"""Countersink as it runs in the cloud, on emulators: its own topic and namespace, ingest and flusher apart."""

import asyncio
import contextlib
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from bench import servers
from bench.emulators import PROJECT, PUBSUB, Emulators
from bench.entities import Entities
from bench.servers import COUNTERSINK, Server
from shared.pubsub.client import PubsubClient, PubsubPlace
from shared.pubsub.setup import provision

LONGEST: Final = 60.0
"""Seconds until all that was accepted must be applied."""
LEASE: Final = 60.0
RETENTION: Final = 604_800
_LOOK: Final = 0.02
_OPERATIONS: Final = re.compile(rb'^countersink_datastore_operations_total\{operation="(\w+)"\} (\S+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Operations:
    """On Datastore."""

    reads: int = 0
    writes: int = 0
    deletes: int = 0

    @property
    def all(self) -> int:
        return self.reads + self.writes + self.deletes

    def __sub__(self, other: "Operations") -> "Operations":
        return Operations(self.reads - other.reads, self.writes - other.writes, self.deletes - other.deletes)

    def __add__(self, other: "Operations") -> "Operations":
        return Operations(self.reads + other.reads, self.writes + other.writes, self.deletes + other.deletes)


@dataclass(frozen=True, slots=True)
class Deployment:
    """While it runs."""

    ingests: Sequence[Server]
    flusher: Server
    entities: Entities

    def applied(self) -> tuple[int, float]:
        """Wait until the store's total has all that was accepted; the total, and when it was seen."""
        until = time.monotonic() + LONGEST
        while True:
            total = self.entities.total()
            accepted = self.accepted()  # later: of what the generators gave up on some may have come meanwhile
            if total == accepted:
                return total, time.monotonic()
            if time.monotonic() > until:
                raise RuntimeError(f"{accepted} were accepted, {total} were counted after {LONGEST:g} s")
            time.sleep(_LOOK)

    def accepted(self) -> int:
        return sum(server.accepted() for server in self.ingests)

    def operations(self) -> Operations:
        return sum(map(_operations, (*self.ingests, self.flusher)), Operations())


@contextlib.contextmanager
def deployed(emulators: Emulators, store: str, ingests: int = 1, **settings: str) -> Iterator[Deployment]:
    """Both on whatever processor is free, as the emulators are."""
    namespace = f"ours-{uuid4().hex}"
    place = PubsubPlace(PROJECT, f"t-{namespace}", f"s-{namespace}")
    hosts = {"PUBSUB_EMULATOR_HOST": emulators.host(PUBSUB), "DATASTORE_EMULATOR_HOST": emulators.host(store)}
    asyncio.run(_provision(hosts["PUBSUB_EMULATOR_HOST"], place))
    settings = hosts | {
        "COUNTERSINK_BROKER": f"pubsub://{PROJECT}/{place.topic_id}?subscription={place.subscription_id}",
        "COUNTERSINK_STORE": f"datastore://{PROJECT}?namespace={namespace}",
    } | settings  # fmt: skip
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="countersink-bench-"))
        settings.setdefault("COUNTERSINK_SPOOL", f"{folder}/spool.db")
        settings.setdefault("COUNTERSINK_SPOOL_DISK", "durable")
        ingest = (*COUNTERSINK, "ingest", "--port", "0")
        made = [stack.enter_context(servers.running(ingest, None, **settings)) for _ in range(ingests)]
        flusher = stack.enter_context(servers.running((*COUNTERSINK, "flusher", "--port", "0"), None, **settings))
        entities = Entities(hosts["DATASTORE_EMULATOR_HOST"], namespace)
        stack.callback(entities.close)
        yield Deployment(made, flusher, entities)


async def _provision(host: str, place: PubsubPlace) -> None:
    client = PubsubClient(host)
    await provision(client, place, lease=LEASE, retention=RETENTION)
    await client.close()


def _operations(server: Server) -> Operations:
    _, _, body = server.ask("/metrics")
    found = {name.decode(): int(float(value)) for name, value in _OPERATIONS.findall(body)}
    return Operations(found.get("read", 0), found.get("write", 0), found.get("delete", 0))
