"""Counters in Datastore that several processes set, delete and remove while others count: all is accounted for."""

import asyncio
import random

from countersink_server.cli.audit import AGREES, UNKNOWN, judge
from shared.counters.reader import Reader
from shared.counters.setter import DELETE, RESET, SET, Change, ChangeRequest, Setter
from shared.datastore.store import DatastoreStore
from shared.model.errors import AlreadyAppliedError, TransientError
from shared.model.receipts import DAY, Tally, key_of_envelope, notes_of_commit
from shared.model.words import Commit, Envelope, Receipt, ShardAdd
from tests.contracts.store import LATER
from tests.emulators.datastore_fixtures import Datastore, audited
from tests.world.memory.exact_overlay import ExactOverlay

SHARDS = 3


class Crowd:
    """Processes on one namespace. Their overlay stands for one that all of them see."""

    def __init__(self, datastore: Datastore) -> None:
        self.datastore = datastore
        self.overlay = ExactOverlay(datastore.clock)
        self.random = random.Random(1)
        self.changes: list[Change] = []
        self.counted = 0

    async def setter(self) -> Setter:
        store = await self.datastore.store()
        reader = Reader(store, self.overlay, self.datastore.clock, 1.0)
        return Setter(reader, store, self.overlay, self.datastore.clock, DAY)

    async def count(self, store: DatastoreStore, name: str, deltas: list[int]) -> None:
        """Accepted, and some time later applied and settled, as an ingest and a flusher do together."""
        for number, delta in enumerate(deltas):
            envelope = Envelope(f"{name}-{number}", {"a": delta})
            async with self.overlay.entered([envelope]):
                await asyncio.sleep(0)
            self.counted += delta
            await asyncio.sleep(self.random.random() * 0.02)
            key = await self._apply(store, f"{name}-{number}", delta)
            await self.overlay.settle([key], (await store.receipts([key])).time)

    async def _apply(self, store: DatastoreStore, name: str, delta: int) -> str:
        (note,) = notes_of_commit([""], name, Tally(applied=1), {"a": delta})
        receipt = Receipt(key_of_envelope(name), LATER, note=note)
        shard = self.random.randrange(SHARDS)
        while True:
            try:
                await store.apply(Commit((receipt,), (ShardAdd("a", shard, delta, SHARDS),)))
            except TransientError:
                continue
            except AlreadyAppliedError:
                pass
            return receipt.key

    async def change(self, setter: Setter, wishes: list[ChangeRequest]) -> None:
        for wish in wishes:
            while True:
                try:
                    self.changes.append(await setter.set("a", wish))
                except TransientError:
                    continue
                break

    async def check(self) -> None:
        """What each set found, and what has come since, is all there was; and the receipts say it, too."""
        store = await self.datastore.store()
        async with store.snapshot() as snapshot:
            left = (await snapshot.read(["a"], ()))[0]["a"].value
        assert sum(change.before - change.after for change in self.changes) + left == self.counted
        line = await audited(store)
        assert (line.held, line.said, line.unread) == (left, left, 0)
        assert judge(line, 0).mark in {AGREES, UNKNOWN}


def wishes(name: str, number: int) -> list[ChangeRequest]:
    kinds = [SET, RESET, DELETE, SET, DELETE]
    return [ChangeRequest(kind, 1_000 * (kind == SET), f"{name}-{at}") for at, kind in enumerate(kinds[:number])]


async def test_sets_increments_and_removals_at_once_are_all_accounted_for(datastore: Datastore) -> None:
    crowd = Crowd(datastore)
    setters = [await crowd.setter() for _ in range(2)]
    stores = [await datastore.store() for _ in range(3)]
    done = asyncio.Event()

    async def remove() -> None:
        while not done.is_set():
            await stores[2].remove("a")
            await asyncio.sleep(0)

    removing = asyncio.create_task(remove())
    async with asyncio.timeout(60):
        await asyncio.gather(
            *(crowd.count(stores[number % 2], f"n{number}", [3**number, -1] * 4) for number in range(4)),
            *(crowd.change(setters[number % 2], wishes(f"w{number}", 5)) for number in range(3)),
        )
        done.set()
        await removing
    await crowd.check()
