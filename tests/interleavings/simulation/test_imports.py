"""Several imports of one source at once, over a network with faults, killed at any point, beside those who count and
set: nothing of it is counted twice or lost.
"""

import asyncio
import contextlib
import random
from collections import Counter

import pytest

from countersink_server.cli.audit import AGREES, judge, look
from countersink_server.move.importer import Importer, ImportOptions, ImportOutcome
from shared.counters.reader import Reader
from shared.counters.setter import DELETE, SET, ChangeRequest, Setter
from shared.memory import ProcessOverlay
from shared.model.buckets import DAY, Instant
from shared.model.errors import CountersinkError
from shared.model.receipts import read_note
from shared.model.words import Commit
from tests.contracts.audit_data import noted
from tests.interleavings.simulation.loop import VirtualLoop
from tests.interleavings.simulation.network import Network
from tests.interleavings.simulation.system import LoopClock
from tests.interleavings.steps.network import remote_store
from tests.world.memory.exact_overlay import ExactOverlay
from tests.world.memory.store import MemoryStore
from tests.world.sources import FakeSource

SECONDS = 20.0
NAMES = [f"counter-{number}" for number in range(8)]


class SummedStore(MemoryStore):
    """Keeps what others than imports added, and looks after each commit whether all adds up."""

    def __init__(self, clock: LoopClock) -> None:
        super().__init__(clock)
        self.others: Counter[str] = Counter()
        self.flaws: list[str] = []

    async def apply(self, commit: Commit) -> Instant:
        time = await super().apply(commit)
        if not commit.marks:
            for receipt in commit.receipts:
                self.others.update(read_note(receipt.note).sums)
        for name in NAMES:
            held = sum(count for (counter, _), count in self._shards.items() if counter == name)
            if held != self._marks.get(("there", name), 0) + self.others[name]:
                self.flaws.append(f"{name} holds {held} after {commit}")
        return time


class Migration:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.loop = VirtualLoop()
        self.clock = LoopClock(self.loop)
        self.network = Network(self.random, loss=self.random.choice([0.0, 0.03, 0.1]))
        self.store = SummedStore(self.clock)
        self.source = FakeSource(dict.fromkeys(NAMES[:4], 5))
        self.shrinks = self.random.random() < 0.3
        self.mistaken: list[ImportOutcome] = []
        """Said to have gone back, though it did not."""
        self.kills = 0
        self.ended = 0

    def run(self) -> None:
        self.loop.run_to_end(self._main())

    async def _main(self) -> None:
        doing = [self._importing(f"i-{number}") for number in range(3)]
        await asyncio.gather(*doing, self._old_application(), self._counting(), self._changing())
        self.network.loss = 0.0
        await asyncio.sleep(60)  # what was late has come
        await self._importer("last").run("", lambda _: None)
        assert not self.store.flaws
        assert not self.mistaken
        for name in NAMES:
            assert self.store._marks.get(("there", name), 0) == self.source.counts.get(name, 0)
        ledger = await look(self.store, (), 0)
        assert all(judge(line, 0).mark == AGREES for line in ledger.lines())
        ledger.close()

    def _importer(self, owner: str) -> Importer:
        store = remote_store(self.network, owner, self.store)
        overlay = ProcessOverlay(self.clock)
        return Importer(
            self.source, store, overlay, self.clock, ImportOptions(DAY, shrink=self.shrinks), pick=self.random.randrange
        )

    async def _importing(self, owner: str) -> None:
        """Again and again, and now and then it is killed, and started anew."""
        number = 0
        while self.loop.time() < SECONDS:
            number += 1
            process = f"{owner}-{number}"
            task = self.loop.start(process, self._importer(process).run("", self._tell))
            killed = self.random.random() < 0.5
            await asyncio.wait([task], timeout=self.random.expovariate(5) if killed else None)
            if not task.done():
                self.kills += 1
                self.network.dead.add(process)
                self.loop.kill(process)
                await asyncio.wait([task])
            elif task.exception() is None:
                self.ended += 1
            await asyncio.sleep(self.random.expovariate(2))

    def _tell(self, one: ImportOutcome | str) -> None:
        if isinstance(one, ImportOutcome) and one.flaw:
            self.mistaken.append(one)

    async def _old_application(self) -> None:
        while self.loop.time() < SECONDS:
            name = self.random.choice(NAMES)
            there = self.source.counts.get(name, 0)
            assert isinstance(there, int)
            less = self.shrinks and self.random.random() < 0.2
            self.source.counts[name] = self.random.randint(0, there) if less else there + self.random.randint(1, 9)
            await asyncio.sleep(self.random.expovariate(10))

    async def _counting(self) -> None:
        for number in range(100):
            await self.store.apply(noted(self.random.choice(NAMES), number, f"k{number}", shard=number % 3))
            await asyncio.sleep(self.random.expovariate(5))

    async def _changing(self) -> None:
        overlay = ExactOverlay(self.clock)
        reader = Reader(self.store, overlay, self.clock, 1.0)
        setter = Setter(reader, self.store, overlay, self.clock, DAY)
        while self.loop.time() < SECONDS:
            name = self.random.choice(NAMES)
            wish = self.random.choice([ChangeRequest(SET, 1_000), ChangeRequest(DELETE)])
            with contextlib.suppress(CountersinkError):
                await setter.set(name, wish)
            await asyncio.sleep(self.random.expovariate(3))
            before = self.store.others[name], self.store._marks.get(("there", name), 0)
            if await self.store.remove(name):
                assert sum(before) == 0


@pytest.mark.parametrize("chunk", range(4))
def test_whatever_fails_each_difference_is_added_once(chunk: int) -> None:
    kills = ended = 0
    for seed in range(chunk * 15, chunk * 15 + 15):
        random.seed(seed)
        migration = Migration(seed)
        migration.run()
        kills += migration.kills
        ended += migration.ended
    assert kills > 20
    assert ended > 20
