"""A broker in memory, and its pending messages as an overlay."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Final

from shared.counters.pending import Pending
from shared.model.buckets import BrokerMillis, Instant
from shared.model.errors import NewerError, OverloadedError, UnreadableError
from shared.model.words import Delivery, Envelope, Letter, Message, View
from shared.ports.broker import Check, at_any_time
from shared.runtime.clock import Clock
from shared.runtime.retry import set_within
from shared.wire.codec import decode


@dataclass
class _Held:
    message: Message
    published: BrokerMillis
    until: float = 0.0
    attempt: int = 0
    buried: str | None = None


class MemoryBroker:
    """Publisher and subscription on one dict. It outlives the (simulated) processes that use it."""

    def __init__(self, clock: Clock, lease: float = 60.0, max_pending_bytes: int = 2**26) -> None:
        self._clock = clock
        self._lease = lease
        self._max_pending_bytes = max_pending_bytes
        self._messages: dict[int, _Held] = {}
        self._last = 0
        self._arrived = asyncio.Event()
        self.pending = Pending()

    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
        check()
        self._admit(sum(len(message.data) for message in messages))
        there = {held.message.once for held in self._messages.values() if held.buried is None}
        for message in messages:
            if message.once is not None and message.once in there:
                continue
            there.add(message.once)
            self._last += 1
            self._messages[self._last] = held = _Held(message, BrokerMillis(int(self._clock.now() * 1000)))
            try:
                self.pending.add(self._last, *decode(_delivery(self._last, held), "memory"))
            except UnreadableError:
                continue
            except NewerError:
                self.pending.add_unknown(self._last)
        self._arrived.set()

    async def check(self) -> None:
        self._admit(500)

    def _admit(self, size: int) -> None:
        pending = sum(len(held.message.data) for held in self._messages.values() if held.buried is None)
        if pending and pending + size > self._max_pending_bytes:
            raise OverloadedError(f"{pending} bytes wait to be applied: is a flusher running?")

    async def pull(self, limit: int, max_bytes: int, wait: float) -> Sequence[Delivery]:
        if not self._free() and wait > 0:
            self._arrived.clear()
            if not await set_within(self._arrived, wait):
                return ()
        deliveries: list[Delivery] = []
        for number in self._free()[:limit]:
            held = self._messages[number]
            max_bytes -= len(held.message.data)
            if max_bytes < 0 and deliveries:
                break
            held.attempt += 1
            held.until = self._clock.now() + self._lease
            deliveries.append(_delivery(number, held))
        return deliveries

    async def extend(self, tokens: Sequence[str], seconds: float) -> None:
        for held in map(self._leased, tokens):
            if held:
                held.until = self._clock.now() + seconds

    async def ack(self, tokens: Sequence[str], floor: Instant) -> None:
        done = {_number(token) for token in tokens if self._leased(token)}
        for number in done:
            del self._messages[number]
        if done:
            self.pending.settle(sorted(done), floor)

    async def give_back(self, tokens: Sequence[str]) -> None:
        for held in map(self._leased, tokens):
            if held:
                held.until = 0.0
        self._arrived.set()

    async def bury(self, delivery: Delivery, reason: str) -> None:
        held = self._leased(delivery.token)
        if held:
            held.buried = reason
            held.until = 0.0

    def letters(self, after: int) -> list[tuple[int, Letter]]:
        """The dead letters with a number above `after`, in order of arrival."""
        return [
            (number, Letter(replace(_delivery(number, held), token=str(number)), held.buried))
            for number, held in self._messages.items()
            if held.buried is not None and number > after
        ]

    def forget_buried(self, tokens: Sequence[str], floor: Instant) -> None:
        done = [number for number in map(int, tokens) if self._is_buried(number)]
        for number in done:
            del self._messages[number]
        if done:
            self.pending.settle(done, floor)

    def rebury(self, delivery: Delivery, reason: str) -> None:
        if self._is_buried(int(delivery.token)):
            self._messages[int(delivery.token)].buried = reason

    def _is_buried(self, number: int) -> bool:
        return number in self._messages and self._messages[number].buried is not None

    def buried(self) -> dict[str, str]:
        """The reasons of all dead letters, by message id."""
        return {str(number): held.buried for number, held in self._messages.items() if held.buried}

    def unburied(self) -> int:
        """How many messages are neither acknowledged nor buried."""
        return sum(held.buried is None for held in self._messages.values())

    def expire_leases(self) -> None:
        """End all leases, as if their time were over."""
        for held in self._messages.values():
            held.until = min(held.until, self._clock.now())

    def _free(self) -> list[int]:
        now = self._clock.now()
        return [n for n, held in self._messages.items() if held.until <= now and held.buried is None]

    def _leased(self, token: str) -> _Held | None:
        number, attempt = token.split(".")
        held = self._messages.get(int(number))
        return held if held and held.attempt == int(attempt) and held.until > 0 else None


class KeptByBroker:
    """Does nothing: publishes add the entries, and acks settle them."""

    shared: Final = True
    crowded: Final = False
    kept_by_broker: Final = True

    def entered(self, envelopes: Sequence[Envelope]) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    def check(self) -> None:
        """Do nothing: the broker's own check is enough."""

    async def settle(self, settled: Collection[str], time: Instant, epoch: str = "") -> None:
        """Do nothing: the ack settles them."""

    async def mark(self, receipt: str, counters: Collection[str], epoch: str | None = None) -> str | None:
        """Do nothing: the commit itself raises the floors."""
        return None

    async def changed(self, counters: Collection[str], time: Instant, receipt: str = "") -> None:
        """Do nothing: the commit did it, so nobody sees the one without the other."""

    async def unsettled(self, limit: int) -> Mapping[str, str]:
        return {}


class MemoryOverlay(KeptByBroker):
    """The pending messages of a `MemoryBroker`."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._pending = broker.pending

    async def view(self, counters: Sequence[str]) -> Mapping[str, View]:
        return {counter: self._pending.view(counter) for counter in counters}

    async def changed(self, counters: Collection[str], time: Instant, receipt: str = "") -> None:
        for counter in counters:
            self._pending.raise_floor(counter, time)

    async def names(
        self, prefix: str, after: str = "", limit: int | None = None, *, exact: bool = False
    ) -> Sequence[str]:
        return self._pending.names(prefix, after, limit, exact=exact)

    async def under(self, prefixes: Collection[str]) -> tuple[Mapping[str, View], View]:
        return self._pending.under(prefixes)

    async def holds(self, keys: Collection[str]) -> Collection[str]:
        return self._pending.holds(keys)


def _delivery(number: int, held: _Held) -> Delivery:
    return Delivery(f"{number}.{held.attempt}", held.message, str(number), held.published, held.attempt)


def _number(token: str) -> int:
    return int(token.partition(".")[0])
