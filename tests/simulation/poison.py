"""A store that refuses some counters for a while, and those who replay what became a dead letter meanwhile."""

import asyncio
import random
from collections.abc import Callable
from math import inf

from flusher.flush import Tools
from flusher.letters import open_letter
from flusher.replay import Replay
from shared.clock import Clock
from shared.errors import RefusedError, TransientError
from shared.ports import DeadLetters
from shared.words import Commit, Tally
from tests.path.changes import ChangedStore


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
            while found := await way.pull(3, 10**6):
                await Replay(tools, way, ages=False).run([open_letter(letter, "memory") for letter in found], inf)
        except TransientError:
            continue
