"""Clients, foreign publishers and readers at work while a fault is done."""

import asyncio
import itertools
import random
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

from countersink import AsyncClient, Increment, RequestError
from shared.model.words import Message
from tests.processes.fleet.calls import Item, Request
from tests.processes.fleet.pairs import empty, message
from tests.processes.fleet.slots import Slot
from tests.reliability.calls import Calls
from tests.reliability.rows import Clients

PATIENCE = 90.0
"""Seconds for which the product's client tries again: longer than any fault and what follows it."""
GROWTH = 1.0
"""Seconds between two requests for more shards."""
MOST = 6
"""Shards of a counter."""
NONSENSE = (b"no JSON %d", b'{"counter": %d}', b"[%d]", b'{"counters": {"%d": 0.5}}')
Work = Callable[[int], Coroutine[Any, Any, None]]


class Load:
    """Runs from `begin` to `end`; whoever sends under an id goes on until it is accepted."""

    def __init__(self, calls: Calls, ingests: Sequence[Slot], clients: Clients, seed: int) -> None:
        self._calls = calls
        self._ingests = ingests
        self._clients = clients
        self._random = random.Random(seed)
        self._done = asyncio.Event()
        self._stack = AsyncExitStack()
        self._products: list[AsyncClient] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        """Everybody begins."""
        loop = asyncio.get_running_loop()
        self._begun = loop.time()
        for slot in self._ingests:
            self._products.append(await self._stack.enter_async_context(AsyncClient(slot.url, patience=PATIENCE)))
        clients = self._clients
        workers: list[Work] = [self._insistent] * clients.insistent
        workers += [self._product] * clients.product + [self._careless] * clients.careless
        workers += [self._foreign] * clients.foreign + [self._reader] * clients.readers + [self._grower]
        self._tasks = [loop.create_task(self._repeat(work, number)) for number, work in enumerate(workers)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    async def end(self) -> None:
        """Whoever has begun a request finishes it: what goes under an id has to be accepted in the end."""
        self._done.set()
        async with asyncio.timeout(2 * PATIENCE):
            await asyncio.gather(*self._tasks)

    def check(self) -> None:
        """A mistake of the load's own is none of the product's."""
        for task in self._tasks:
            if task.done() and not self._done.is_set():
                task.result()

    async def _repeat(self, work: Work, worker: int) -> None:
        for turn in itertools.count():
            if self._done.is_set():
                return
            await work(worker * 10_000_000 + turn)
            await asyncio.sleep(self._clients.pace)

    def _next(self) -> Item:
        return self._calls.truths.next(self._random.randrange(1_000_000))

    def _url(self) -> str:
        return self._random.choice(self._ingests).url

    async def _insistent(self, number: int) -> None:
        """One under an id, a batch under a key, a batch of items with ids; now and then once more after a 202."""
        kind = self._random.choice(("one", "one", "batch", "items"))
        items = [self._next() for _ in range(1 if kind == "one" else self._clients.items)]
        if kind == "one":
            (counter, _, delta), *_ = items
            request = Request(f"/v1/counters/{counter}", {"id": f"{number}", "delta": delta}, {}, items)
        elif kind == "batch":
            body = [{"counter": counter, "delta": delta} for counter, _, delta in items]
            request = Request("/v1/increments", body, {"Idempotency-Key": f"{number}"}, items)
        else:
            body = [{"counter": c, "delta": delta, "id": f"{number}-{k}"} for k, (c, _, delta) in enumerate(items)]
            request = Request("/v1/increments", body, {}, items)
        again = self._random.random() < 0.1
        while not await self._calls.post(self._url(), request) or again:
            again = False
            await asyncio.sleep(self._clients.pace)

    async def _product(self, number: int) -> None:
        client = self._random.choice(self._products)
        items = [self._next() for _ in range(self._random.choice((1, self._clients.items)))]
        try:
            if len(items) == 1:
                (counter, _, delta), *_ = items
                await client.increment(counter, delta)
            else:
                await client.increment_many(
                    [Increment(counter, delta, f"{number}-{k}") for k, (counter, _, delta) in enumerate(items)]
                )
        except RequestError as error:
            self._calls.errors["the product's client"] += 1
            self._calls.wrong.append(f"the product's client gave up: {error}")
        else:
            self._calls.answered(items)

    async def _careless(self, _: int) -> None:
        """Without an id, so once: only a 202 says that it counts."""
        counter, _, delta = item = self._next()
        await self._calls.post(self._url(), Request(f"/v1/counters/{counter}", {"delta": delta}, {}, [item]))

    async def _foreign(self, number: int) -> None:
        """A plain message, one under an id that is sent twice, one without data, or rubbish."""
        kind = self._random.choices(("plain", "named", "empty", "rubbish"), (4, 4, 4, 1))[0]
        if kind == "rubbish":
            await self._calls.publish(Message(self._random.choice(NONSENSE) % number), ())
            return
        counter, _, delta = item = self._next()
        if kind == "empty":
            await self._calls.publish(empty(counter, delta), [item])
            return
        for _ in range(1 + (kind == "named")):
            await self._calls.publish(message(counter, delta, f"{number}" if kind == "named" else None), [item])

    async def _grower(self, _: int) -> None:
        """More shards now and then."""
        await asyncio.sleep(GROWTH)
        if counters := self._calls.truths.open():
            await self._calls.raise_shards(self._url(), self._random.choice(counters), self._random.randint(2, MOST))

    async def _reader(self, _: int) -> None:
        query = self._random.choice(("", "max_age=0&"))
        await self._calls.read(self._url(), query, self._calls.truths.open())
