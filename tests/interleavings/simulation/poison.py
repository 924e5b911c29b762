"""A store that refuses some counters for a while, and those who replay what became a dead letter meanwhile."""

import asyncio
import random
from collections.abc import Callable, Sequence
from math import inf
from typing import Final

from flusher.dead_letters.desk import Replay
from flusher.dead_letters.letters import open_letter, open_receipt
from flusher.flush.commit_loop import FlushTools
from shared.model.buckets import Instant, StoreMillis
from shared.model.errors import GoneError, RefusedError, TransientError
from shared.model.receipts import Tally, read_note
from shared.model.words import Commit
from shared.ports.broker import DeadLetters
from shared.runtime.clock import Clock
from tests.interleavings.steps.changes import ChangedStore
from tests.world.memory.broker import MemoryBroker

LETTERS: Final = 0.7
"""How often a replay goes on with the letters before it asks the store, which has the rest."""


class PickyStore(ChangedStore):
    """In one file with a broker, a commit fails whose messages are settled. `refused`: counters, and until when.
    `tally`: what all commits said; `swept`: receipts that have expired.
    """

    def __init__(self, clock: Clock, broker: MemoryBroker | None = None) -> None:
        super().__init__(clock, broker)
        self.refused: dict[str, float] = {}
        self.tally = Tally()
        self.swept = Tally()
        self.has_swept = False

    async def apply(self, commit: Commit) -> Instant:
        now = asyncio.get_running_loop().time()
        if any(self.refused.get(add.counter, 0.0) > now for add in commit.adds):
            raise RefusedError("poison")
        if self.file is not None and (gone := {*commit.bounds.messages} - {*map(str, self.file._messages)}):
            raise GoneError(gone)
        time = await super().apply(commit)
        self.tally = total([self.tally, commit.tally])
        return time

    async def sweep(self, now: StoreMillis, limit: int) -> int:
        before = self._receipts
        swept = await super().sweep(now, limit)
        self.has_swept |= swept > 0
        gone = [read_note(receipt.note).tally for key, receipt in before.items() if key not in self._receipts]
        self.swept = total([self.swept, *gone])
        return swept


def total(tallies: Sequence[Tally]) -> Tally:
    return Tally(*map(sum, zip(*tallies, strict=True)))


async def replaying(chance: random.Random, tools: FlushTools, letters: Callable[[], DeadLetters]) -> None:
    """Again and again, some letters at a time."""
    while True:
        await asyncio.sleep(chance.expovariate(1.5))
        try:
            way = letters()
            replay = Replay(tools, way)
            while chance.random() < LETTERS and (found := await way.pull(3, 10**6)):
                await replay.run([open_letter(letter, "memory") for letter in found], inf)
            after = ""
            while page := await tools.store.dead(after, 3):
                await replay.run([open_receipt(receipt) for receipt in page], inf)
                after = page[-1].key
        except TransientError:
            continue
