"""Writers that meet at one counter: each does what a flusher does in a commit, and they share nothing but the store.

Half a minute of a run tells how it went: how many commits a second, how long each took until it was done, how many
tries were ABORTED. At the end the counter must hold each increment once.
"""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

from flusher.flush.commit_loop import ShardBook
from flusher.flush.flusher import GROWTH_INTERVAL
from flusher.shards import CounterGrower, Growth
from shared.model.buckets import StoreMillis
from shared.model.errors import AlreadyAppliedError, ContendedError, TransientError
from shared.model.words import Commit, Receipt, Total
from shared.ports.store import Store
from shared.runtime.clock import Clock
from shared.runtime.retry import Backoff

HOT: Final = "hot"
COLD: Final = tuple(f"cold-{number}" for number in range(20))
COLD_EVERY: Final = 5.0
"""Seconds from one increment of a cold counter to the next, in each writer: they go round."""
LATER: Final = StoreMillis(2**42)
MOST: Final = 100


@dataclass
class Seen:
    """Of the part of a run that counts."""

    took: list[float] = field(default_factory=list)
    """Seconds from the first try of a commit to its end."""
    aborted: int = 0
    seconds: float = 0.0

    def document(self) -> dict[str, Any]:
        times = sorted(self.took) or [0.0]
        tries = len(self.took) + self.aborted
        return {
            "rate": len(self.took) / self.seconds,
            "p50": times[len(times) // 2],
            "p95": times[len(times) * 95 // 100],
            "aborted": self.aborted / max(tries, 1),
        }


@dataclass
class Scene:
    """`stores`: one for each writer. `shards`: a fixed number, or None, when they size themselves."""

    stores: Sequence[Store]
    clock: Clock
    shards: int | None
    interval: float
    """Seconds from one commit of a writer to the next, unless the first takes longer."""
    settles: float
    """Seconds before what is seen counts."""
    lasts: float
    pick: Callable[[int], int] = random.randrange
    seen: Seen = field(default_factory=Seen)
    done: int = 0
    last: int = 0
    """The store's time of the last of them."""
    raises: list[tuple[float, int]] = field(default_factory=list)
    """After how many seconds, and to how many shards."""

    async def run(self) -> dict[str, Any]:
        self._begun = self.clock.monotonic()
        self._name = uuid4().hex
        if self.shards is not None:
            await self.stores[0].raise_shards(HOT, self.shards)
        await asyncio.gather(*(self._writer(number, store) for number, store in enumerate(self.stores)))
        self.seen.seconds = self.lasts
        totals = await self._totals()
        if totals[HOT].value != self.done:
            raise RuntimeError(f"{self.done} commits were done, and the counter holds {totals[HOT].value}")
        cold = max(totals[name].shards for name in COLD) if self.shards is None else 1
        return self.seen.document() | {"shards": totals[HOT].shards, "cold": cold, "raises": self.raises}

    async def _totals(self) -> Mapping[str, Total]:
        """Not before the last commit: a store's instants are not before its own, but others' may be a little later."""
        while True:
            async with self.stores[0].snapshot() as snapshot:
                if snapshot.time >= self.last:
                    return (await snapshot.read([HOT, *COLD], ()))[0]

    def _now(self) -> float:
        return self.clock.monotonic() - self._begun

    async def _writer(self, number: int, store: Store) -> None:
        growth = Growth(1.0, MOST, self.pick)
        book = ShardBook(store, self.clock, 1, self.pick)
        growing = CounterGrower(growth, store, book.raised, self.clock)
        grower = asyncio.create_task(self._grow(growing, number)) if self.shards is None else None
        await asyncio.sleep(self.interval * number / len(self.stores))
        commits, cold = 0, 0
        while (begun := self._now()) < self.settles + self.lasts:
            sums = {HOT: 1}
            if self.shards is None and begun > COLD_EVERY * (cold + number / len(self.stores)):
                sums[COLD[(cold + number) % len(COLD)]] = 1  # one of these travels with it
                cold += 1
            await self._commit(f"{self._name}-{number}-{commits}", sums, store, book, growth)
            commits += 1
            await asyncio.sleep(max(0.0, begun + self.interval - self._now()))
        if grower is not None:
            grower.cancel()

    async def _commit(self, key: str, sums: dict[str, int], store: Store, book: ShardBook, growth: Growth) -> None:
        begun = self._now()
        backoff = Backoff()
        while True:
            adds = await book.adds(sums)
            at = self._now()
            growth.tries()
            try:
                time = await store.apply(Commit((Receipt(key, LATER),), adds))
            except ContendedError:
                growth.contended(adds, self.clock.monotonic())
                self.seen.aborted += self.settles <= at
                await backoff.wait()
            except AlreadyAppliedError:
                time, _ = await store.receipts([key])
                break
            except TransientError:
                await backoff.wait()
            else:
                book.done(adds)
                growth.wrote(adds, self._now() - at, self.clock.monotonic())
                break
        self.done += 1
        self.last = max(self.last, time)
        if begun >= self.settles:
            self.seen.took.append(self._now() - begun)

    async def _grow(self, growing: CounterGrower, number: int) -> None:
        await asyncio.sleep(GROWTH_INTERVAL * number / len(self.stores))
        while True:
            await asyncio.sleep(GROWTH_INTERVAL)
            try:
                raised = await growing.grow_once()
            except TransientError:
                continue
            if raised:
                there = (await self.stores[0].shards([HOT]))[HOT]
                if not self.raises or self.raises[-1][1] < there:
                    self.raises.append((round(self._now(), 1), there))
