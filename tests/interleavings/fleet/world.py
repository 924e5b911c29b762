"""A fleet that is moved step by step while requests are under way, and what must be true of it at each read and at
the end.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp

from shared.model.words import Message
from tests.processes.fleet.calls import Calls, Foreign, Item, Request
from tests.processes.fleet.pairs import LEASE, Pair, message
from tests.processes.fleet.slots import DRAIN, Process, Slot
from tests.processes.harness import Processes

INGESTS = FLUSHERS = 2
FROZEN = (0.2, 1.5 * LEASE)
"""Seconds, so that now and then a lease ends meanwhile."""
SETTINGS = {
    "COUNTERSINK_FLUSH_INTERVAL": "0.2",
    "COUNTERSINK_DRAIN_TIMEOUT": str(DRAIN),
    "COUNTERSINK_CACHE_TTL": "0.5",
}


class World:
    """All steps return at once; what they started goes on beside the next ones."""

    def __init__(self, pair: Pair, started: Processes, session: aiohttp.ClientSession, seed: int) -> None:
        self._pair = pair
        self._calls = Calls(pair, session)
        self._random = random.Random(seed)
        self._tasks: set[asyncio.Task[None]] = set()
        self._named: list[Request | Foreign] = []
        self.ingests = [Slot(started, ("ingest", "--port", "0")) for _ in range(INGESTS)]
        self.flushers = [Slot(started, ("flusher",)) for _ in range(FLUSHERS)]
        self.history: list[str] = []

    async def begin(self) -> None:
        await asyncio.gather(*(slot.start() for slot in self.slots))

    @property
    def slots(self) -> list[Slot]:
        return [*self.ingests, *self.flushers]

    async def run(self, steps: int) -> None:
        moves: list[tuple[int, Callable[[], None]]] = [
            (8, self._plain),
            (8, self._with_an_id),
            (6, self._under_a_key),
            (8, self._again),
            (4, self._foreign),
            (6, self._read),
            (2, self._grow),
            (1, lambda: self._change(self._die)),
            (1, lambda: self._change(self._stop)),
            (2, lambda: self._change(self._doze)),
        ]
        weights = [weight for weight, _ in moves]
        for _ in range(steps):
            self._random.choices(moves, weights)[0][1]()
            await asyncio.sleep(self._random.choice((0, 0.01, 0.1, 0.2)))
            self._raise()

    def _plain(self) -> None:
        """One without an id: never again."""
        counter, bit, delta = self._next()
        self._send(Request(f"/v1/counters/{counter}", {"delta": delta}, {}, [(counter, bit, delta)]))

    def _with_an_id(self) -> None:
        counter, _, delta = item = self._next()
        body = {"delta": delta, "id": f"id-{len(self._named)}"}
        self._first(Request(f"/v1/counters/{counter}", body, {}, [item]))

    def _under_a_key(self) -> None:
        """Two of different counters, one of them with an id of its own."""
        items = one, other = self._next(), self._next()
        key = f"key-{len(self._named)}"
        body = [{"counter": one[0], "delta": one[2]}, {"counter": other[0], "delta": other[2], "id": key}]
        self._first(Request("/v1/increments", body, {"Idempotency-Key": key}, items))

    def _foreign(self) -> None:
        """With an id of its publisher's, without one, or nothing that could be counted."""
        kind = self._random.choice(("named", "named", "plain", "rubbish"))
        if kind == "rubbish":
            self._send(Foreign(Message(b"rubbish %d" % len(self.history)), ()))
            return
        counter, _, delta = item = self._next()
        name = f"ce-{len(self._named)}" if kind == "named" else None
        send = self._first if name else self._send
        send(Foreign(message(counter, delta, name), [item]))

    def _again(self) -> None:
        """A retry, by whatever ingest."""
        if self._named:
            self._send(self._random.choice(self._named))

    def _first(self, request: Request | Foreign) -> None:
        self._named.append(request)
        self._send(request)

    def _next(self) -> Item:
        return self._calls.truths.next(self._random.randrange(1_000))

    def _send(self, request: Request | Foreign) -> None:
        if isinstance(request, Foreign):
            self._start(f"{request}", self._calls.publish(request))
        elif ingest := self._ingest():
            self._start(f"{request}", self._calls.post(ingest, request))

    def _read(self) -> None:
        if (ingest := self._ingest()) and self._calls.truths.counters:
            fresh = self._random.random() < 0.5
            self._start("read", self._calls.read(ingest, fresh=fresh))

    def _grow(self) -> None:
        if (ingest := self._ingest()) and self._calls.truths.counters:
            counter, shards = self._random.choice([*self._calls.truths.counters]), self._random.randint(1, 6)
            self._start(f"{counter}: {shards} shards", self._calls.raise_shards(ingest, counter, shards))

    def _change(self, how: Callable[[Slot], Coroutine[Any, Any, None]]) -> None:
        """One process at a time of each place."""
        slot = self._random.choice(self.slots)
        if not slot.busy:
            slot.busy = True
            self._start(f"{how.__name__} {slot.command[0]} {self.slots.index(slot)}", self._alone(slot, how))

    async def _alone(self, slot: Slot, how: Callable[[Slot], Coroutine[Any, Any, None]]) -> None:
        await how(slot)
        slot.busy = False

    async def _die(self, slot: Slot) -> None:
        await slot.kill()
        await slot.start()

    async def _stop(self, slot: Slot) -> None:
        await slot.terminate()
        await slot.start()

    async def _doze(self, slot: Slot) -> None:
        """Requests reach it meanwhile; and it may not wake up again."""
        slot.freeze()
        await asyncio.sleep(self._random.uniform(*FROZEN))
        if self._random.random() < 0.3:
            await self._die(slot)
        else:
            slot.thaw()

    def _ingest(self) -> Process | None:
        """Any that runs now. It may be dead before it is asked."""
        up = [slot for slot in self.ingests if slot.up()]
        return self._random.choice(up).process() if up else None

    def _start(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        self.history.append(name)
        self._tasks.add(asyncio.create_task(work, name=name))

    def _raise(self) -> None:
        for task in [task for task in self._tasks if task.done()]:
            self._tasks.discard(task)
            task.result()

    async def finish(self) -> None:
        """Everybody is there again and has time: all that was answered is in the totals once, and nothing is left."""
        await asyncio.gather(*self._tasks)
        loop = asyncio.get_running_loop()
        deaths = [time for slot in self.flushers for time in slot.deaths]
        lapsed = max(deaths, default=0.0) + LEASE + 1
        async with asyncio.timeout(60):
            while loop.time() < lapsed or not await self._calls.read(self.ingests[0].process(), fresh=True):
                await asyncio.sleep(0.05)
        await asyncio.gather(*(flusher.terminate() for flusher in self.flushers))
        await self._calls.nothing_is_left()
        for ingest in self.ingests:
            assert await self._calls.read(ingest.process(), fresh=True)
        await asyncio.gather(*(ingest.terminate() for ingest in self.ingests))

    def worked(self, steps: int) -> bool:
        """Whether enough was answered to mean something."""
        return self._calls.answers > steps / 5 and self._calls.reads > 0
