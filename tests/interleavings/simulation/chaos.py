"""What goes wrong: processes die and stand still, servers too, or refuse calls, dates jump."""

import asyncio
from typing import TYPE_CHECKING

from shared.counters.setter import Compactor
from shared.model.buckets import DAY, Millis
from tests.interleavings.simulation.conservation import CountingApart
from tests.interleavings.simulation.users import COUNTERS

if TYPE_CHECKING:
    from tests.interleavings.simulation.system import System

SERVERS = (
    "apply", "publish", "pull", "ack", "view", "read", "confirm", "settle", "receipts", "letters", "forget",
    "raise",
)  # fmt: skip
"""Calls that may stand still, or be refused, each by itself."""


class Chaos:
    """Of one system."""

    def __init__(self, system: "System", lease: float) -> None:
        self._system = system
        self._random = system.random
        self._loop = system.loop
        self._lease = lease

    async def run(self, until: float) -> None:
        faults = [
            *(self._kill_ingest, self._kill_flusher, self._freeze, self._jump, self._grow),
            *(self._system.other_settings, self._compact, self._compact, self._grow, self._remove),
            *(self._stop_server, self._cut_off, self._refuse, self._reject, self._kill_replay),
        ]
        while self._loop.time() < until:
            await asyncio.sleep(self._random.expovariate(1.5))
            self._system.check()
            self._random.choice(faults)()

    def freeze_for_long(self) -> None:
        """One of those who apply, whatever it is in the middle of. Another one does its work."""
        system = self._system
        workers, start = self._random.choice(
            [(system.flushers, system.start_flusher), (system.replayers, system.start_replayer)]
        )
        owner = self._random.choice([*workers])
        workers.pop(owner)
        start()
        self._loop.freeze(owner)

    def thaw(self) -> None:
        for owner in self._loop.frozen():
            self._loop.thaw(owner)

    def _kill_ingest(self) -> None:
        """Another one finds its spool."""
        self._system.replace(self._random.choice(self._system.ingests).owner)

    def _kill_flusher(self) -> None:
        self._system.replace(self._random.choice([*self._system.flushers]))

    def _kill_replay(self) -> None:
        self._system.replace(self._random.choice([*self._system.replayers]))

    def _refuse(self) -> None:
        """One of the counters is poison for a while."""
        counter = self._random.choice(COUNTERS)
        self._system.store.refused[counter] = self._loop.time() + self._random.uniform(0.1, 3.0)

    def _reject(self) -> None:
        """The broker takes no message with one of the counters for a while, or none at all. Spools keep them."""
        broker = self._system.broker
        if isinstance(broker, CountingApart):
            name = self._random.choice(["", *COUNTERS])
            broker.refused[name] = self._loop.time() + self._random.uniform(0.1, 3.0)

    def _freeze(self) -> None:
        """Long enough for its leases to run out: it comes back as a zombie."""
        workers = [*self._system.flushers, *self._system.replayers]
        who = self._random.choice([*workers, *(ingest.owner for ingest in self._system.ingests)])
        self._stand(who, 3 * self._lease)

    def _stop_server(self) -> None:
        self._stand(self._random.choice(SERVERS), 3.0)

    def _cut_off(self) -> None:
        """From the broker, more often than not: its spools are for that."""
        call = self._random.choice([*SERVERS, *["publish"] * len(SERVERS)])
        self._system.network.cut[call] = self._loop.time() + self._random.uniform(0.1, 3.0)

    def _stand(self, who: str, longest: float) -> None:
        self._system.network.stopped[who] = self._loop.time() + self._random.uniform(0.1, longest)

    def _jump(self) -> None:
        """A date is set, hours off, in one of the processes."""
        workers = [*self._system.flushers.values(), *self._system.replayers.values()]
        clocks = [*workers, *(ingest.clock for ingest in self._system.ingests)]
        self._random.choice(clocks).off = self._random.uniform(-7_200, 7_200)

    def _remove(self) -> None:
        """What is left of a counter, if it was deleted."""
        self._loop.create_task(self._system.store.remove(self._random.choice(COUNTERS)))

    def _compact(self) -> None:
        """While increments are on their way to the highest shards."""
        system, counter = self._system, self._random.choice(COUNTERS)
        compactor = Compactor(system.store, next(iter(system.flushers.values())), Millis(7 * DAY))
        self._loop.create_task(compactor.compact(counter, self._random.randint(1, 2)))

    def _grow(self) -> None:
        raised = self._system.store.raise_shards(self._random.choice(COUNTERS), self._random.randint(1, 5))
        self._loop.create_task(raised)
