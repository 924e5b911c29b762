"""A fleet that is moved step by step while requests are under way, and what must be true of it at each read and at
the end.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from shared.errors import TransientError
from shared.words import Message
from tests.fleet.pairs import LEASE, Pair, message
from tests.fleet.slots import DRAIN, Process, Slot
from tests.fleet.truth import Truths, digits
from tests.processes.harness import Processes

INGESTS = FLUSHERS = 2
REQUEST = aiohttp.ClientTimeout(total=4)
FROZEN = (0.2, 1.5 * LEASE)
"""Seconds, so that now and then a lease ends meanwhile."""
SETTINGS = {
    "COUNTERSINK_FLUSH_INTERVAL": "0.2",
    "COUNTERSINK_DRAIN_TIMEOUT": str(DRAIN),
    "COUNTERSINK_CACHE_TTL": "0.5",
}
Item = tuple[str, int, int]
"""Counter, bit and delta of an increment."""


@dataclass
class Request:
    """What can be sent again under the same id, by any ingest, and counts once."""

    path: str
    body: Any
    headers: dict[str, str]
    items: Sequence[Item]
    foreign: Message | None = None


class World:
    """All steps return at once; what they started goes on beside the next ones."""

    def __init__(self, pair: Pair, started: Processes, session: aiohttp.ClientSession, seed: int) -> None:
        self._pair = pair
        self._session = session
        self._random = random.Random(seed)
        self._tasks: set[asyncio.Task[None]] = set()
        self._named: list[Request] = []
        self._rubbish: set[bytes] = set()
        self._shards: dict[str, int] = {}
        self.truths = Truths()
        self.ingests = [Slot(started, ("ingest", "--port", "0")) for _ in range(INGESTS)]
        self.flushers = [Slot(started, ("flusher",)) for _ in range(FLUSHERS)]
        self.history: list[str] = []
        self.answers = self.reads = 0

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
            data = b"rubbish %d" % len(self.history)
            self._rubbish.add(data)
            self._start("rubbish", self._publish(Request("", None, {}, (), Message(data))))
            return
        counter, _, delta = item = self._next()
        name = f"ce-{len(self._named)}" if kind == "named" else None
        request = Request("", None, {}, [item], message(counter, delta, name))
        if name:
            self._first(request)
        else:
            self._send(request)

    def _again(self) -> None:
        """A retry, by whatever ingest."""
        if self._named:
            self._send(self._random.choice(self._named))

    def _first(self, request: Request) -> None:
        self._named.append(request)
        self._send(request)

    def _next(self) -> Item:
        return self.truths.next(self._random.randrange(1_000))

    def _send(self, request: Request) -> None:
        if request.foreign:
            self._start(f"foreign {request.items}", self._publish(request))
        elif ingest := self._ingest():
            self._start(f"send {request.path} {request.body} {request.headers}", self._post(ingest, request))

    async def _publish(self, request: Request) -> None:
        assert request.foreign
        try:
            await self._pair.publish([request.foreign])
        except TransientError:  # who holds the file is frozen
            self._rubbish.discard(request.foreign.data)
            return
        self._answered(None, request)

    async def _post(self, ingest: Process, request: Request) -> None:
        try:
            async with self._session.post(
                ingest.url + request.path, json=request.body, headers=request.headers, timeout=REQUEST
            ) as response:
                said = await response.text()
        except (aiohttp.ClientConnectionError, TimeoutError):
            return
        assert response.status in {202, 503}, said
        if response.status == 202:
            self._answered(ingest.known, request)

    def _answered(self, known: dict[str, int] | None, request: Request) -> None:
        self.answers += 1
        for counter, bit, _ in request.items:
            self.truths.answer(counter, bit)
            if known is not None:
                known[counter] = known.get(counter, 0) | bit

    def _read(self) -> None:
        ingest = self._ingest()
        if ingest and self.truths.counters:
            fresh = not self._pair.once or self._random.random() < 0.5
            self._start("read", self._get(ingest, "max_age=0&" if fresh else ""))

    async def _get(self, ingest: Process, options: str) -> bool:
        """All counters from one ingest; whether all is settled. It knows at least what it has answered itself."""
        before = dict(self.truths.answered() if self._pair.exact else ingest.known)
        names = "&".join(f"name={name}" for name in self.truths.counters)
        try:
            async with self._session.get(f"{ingest.url}/v1/counters?{options}{names}", timeout=REQUEST) as response:
                answer = await response.json()
        except (aiohttp.ClientConnectionError, TimeoutError):
            return False
        assert response.status in {200, 503}, answer
        if response.status == 503:
            return False
        self.reads += 1
        settled = True
        for reading in answer["counters"]:
            truth = self.truths.of(reading["name"])
            mask = digits(reading["value"])
            assert before.get(reading["name"], 0) & ~mask == 0, f"an increment is missing: {reading}"
            assert mask & ~truth.tried == 0, f"something was counted that nobody sent: {reading}"
            settled &= not reading["pending"] and truth.answered & ~mask == 0
            settled &= reading["shards"] >= self._shards.get(reading["name"], 0)
        return settled

    def _grow(self) -> None:
        if (ingest := self._ingest()) and self.truths.counters:
            self._start(
                "grow", self._put(ingest, self._random.choice([*self.truths.counters]), self._random.randint(1, 6))
            )

    async def _put(self, ingest: Process, counter: str, shards: int) -> None:
        url = f"{ingest.url}/v1/counters/{counter}/shards"
        try:
            async with self._session.put(url, json={"shards": shards}, timeout=REQUEST) as response:
                answer = await response.json()
        except (aiohttp.ClientConnectionError, TimeoutError):
            return
        assert response.status in {200, 503}, answer
        if response.status == 200:
            assert answer["shards"] >= shards
            self._shards[counter] = max(self._shards.get(counter, 0), answer["shards"])

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
        async with asyncio.timeout(30):
            while loop.time() < lapsed or not await self._get(self.ingests[0].process(), "max_age=0&"):
                await asyncio.sleep(0.05)
        await asyncio.gather(*(flusher.terminate() for flusher in self.flushers))
        assert await self._pair.left() == 0
        assert {letter.data for letter in await self._pair.dead_letters()} == self._rubbish
        for ingest in self.ingests:
            assert await self._get(ingest.process(), "max_age=0&")
        await asyncio.gather(*(ingest.terminate() for ingest in self.ingests))
