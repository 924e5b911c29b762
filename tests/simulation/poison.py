"""A store that refuses some counters for a while, and those who replay what became a dead letter meanwhile."""

import asyncio
import random
from collections.abc import Callable
from math import inf
from typing import Final

from flusher.dead_letters.opened import open_letter, open_receipt
from flusher.dead_letters.replay import Replay
from flusher.flush.tools import Tools
from shared.model.errors import RefusedError, TransientError
from shared.model.words import Commit, Tally
from shared.ports.broker import DeadLetters
from shared.runtime.clock import Clock
from tests.path.changes import ChangedStore

LETTERS: Final = 0.7
"""How often a replay goes on with the letters before it asks the store, which has the rest."""


class PickyStore(ChangedStore):
    """`refused`: counters, and until when. `tally`: what all commits said."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.refused: dict[str, float] = {}
        self.tally = Tally()

    async def apply(self, commit: Commit) -> int:
        now = asyncio.get_running_loop().time()
        if any(self.refused.get(add.counter, 0.0) > now for add in commit.adds):
            raise RefusedError("poison")
        time = await super().apply(commit)
        self.tally = Tally(*[one + other for one, other in zip(self.tally, commit.tally, strict=True)])
        return time


async def replaying(chance: random.Random, tools: Tools, letters: Callable[[], DeadLetters]) -> None:
    """Again and again, some letters at a time."""
    while True:
        await asyncio.sleep(chance.expovariate(1.5))
        try:
            way = letters()
            replay = Replay(tools, way, ages=False)
            while chance.random() < LETTERS and (found := await way.pull(3, 10**6)):
                await replay.run([open_letter(letter, "memory") for letter in found], inf)
            after = ""
            while page := await tools.store.dead(after, 3):
                await replay.run([open_receipt(receipt) for receipt in page], inf)
                after = page[-1].key
        except TransientError:
            continue
