"""Adapters in memory: the overlay of one ingest process, for `memory://` with a broker that keeps none, and the tasks
of a job that a process runs alone.
"""

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Final

from shared.counters.pending import Pending
from shared.fleet import UNKNOWN, FleetView, Membership
from shared.model.buckets import Instant
from shared.model.errors import TransientError
from shared.model.fleet import LOOK_EVERY
from shared.model.jobs import Lease, Task, written
from shared.model.words import Backlog, Envelope, View
from shared.runtime.clock import Clock
from shared.runtime.retry import ended, set_within

_log = logging.getLogger(__name__)

MOST_ENTRIES: Final = 200_000
"""With more entries, the oldest are dropped. Readings miss these until they are applied, and are not exact anyway."""
CROWDED: Final = 4
"""The overlay is crowded if it has more than 1/4 of `MOST_ENTRIES`."""
SETTLE_WITHIN: Final = 20.0
"""Seconds for readers or flushers to settle an entry before `unsettled` names it."""
SOON: Final = 3.0
"""The same time while the overlay is crowded: most flushers are not patient then."""


class ProcessOverlay:
    """Sees only what this process has published, so its views are not exact."""

    kept_by_broker: Final = False
    shared = False

    def __init__(self, clock: Clock, most_entries: int = MOST_ENTRIES) -> None:
        self._clock = clock
        self._most_entries = most_entries
        self._pending = Pending(exact=False)
        self._last = 0
        self._numbers: dict[str, set[int]] = {}
        self._there: dict[int, tuple[str, int, float, int]] = {}
        """Receipt key, number of entries, time of creation and increments of each envelope, oldest first."""
        self._ids: dict[int, str] = {}
        """The ids of the envelopes that `unsettled` has not named."""
        self._entries = self._increments = 0
        self._due: list[tuple[float, int]] = []
        self._full = False

    @property
    def crowded(self) -> bool:
        return self._entries > self._most_entries // CROWDED

    async def view(self, counters: Sequence[str]) -> Mapping[str, View]:
        return {counter: self._pending.view(counter) for counter in counters}

    async def names(
        self, prefix: str, after: str = "", limit: int | None = None, *, exact: bool = False
    ) -> Sequence[str]:
        return self._pending.names(prefix, after, limit, exact=exact)

    async def under(self, prefixes: Collection[str]) -> tuple[Mapping[str, View], View]:
        return self._pending.under(prefixes)

    async def holds(self, keys: Collection[str]) -> Collection[str]:
        return self._pending.holds(keys)

    @asynccontextmanager
    async def entered(self, envelopes: Sequence[Envelope]) -> AsyncIterator[None]:
        numbers = self.begin(envelopes)
        try:
            yield
        except BaseException:
            self.withdraw(numbers)
            raise
        self.confirm(numbers, envelopes)

    def begin(self, envelopes: Sequence[Envelope]) -> Sequence[int]:
        """Make unconfirmed entries of all envelopes and return their numbers."""
        return [self._add(envelope, confirmed=False) for envelope in envelopes]

    def confirm(self, numbers: Sequence[int], envelopes: Sequence[Envelope]) -> None:
        for number, envelope in zip(numbers, envelopes, strict=True):
            if number in self._there:
                self._pending.confirm(number)
            else:
                self._add(envelope, confirmed=True)

    def withdraw(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            if number in self._there:
                self._forget(number)

    def check(self) -> None:
        """Do nothing: there is always room, since the oldest entries are dropped."""

    async def settle(self, settled: Collection[str], time: Instant, epoch: str = "") -> None:  # noqa: ARG002
        numbers = sorted({number for key in settled for number in self._numbers.get(key, ())})
        for number in numbers:
            self._unlist(number)
        self._pending.settle(numbers, time)

    async def mark(self, receipt: str, counters: Collection[str], epoch: str | None = None) -> str | None:
        """Do nothing: no view of it is exact anyway."""

    async def changed(self, counters: Collection[str], time: Instant, receipt: str = "") -> None:
        await self.settle([receipt], time)
        for counter in counters:
            self._pending.raise_floor(counter, time)

    async def unsettled(self, limit: int) -> Mapping[str, str]:
        now = self._clock.monotonic()
        keys: dict[str, str] = {}
        while self._due and self._due[0][0] <= now and len(keys) < limit:
            _, number = heapq.heappop(self._due)
            if number in self._there:
                key, _, born, _ = self._there[number]
                keys[key] = self._ids.pop(number, "")
                heapq.heappush(self._due, (now + max(now - born, SETTLE_WITHIN), number))
        return keys

    def backlog(self) -> Backlog:
        """What this process has published, and does not know to be applied."""
        for _, _, born, _ in self._there.values():
            return Backlog(self._increments, self._clock.monotonic() - born)
        return Backlog()

    def _add(self, envelope: Envelope, *, confirmed: bool) -> int:
        """Add an envelope. If it is confirmed at once it is late, since it may have been applied before it was here."""
        self._last = number = self._last + 1
        self._pending.add(number, envelope, confirmed=confirmed, late=confirmed)
        entries = len(envelope.sums) + len(envelope.keyed)
        now = self._clock.monotonic()
        self._there[number] = (envelope.key, entries, now, envelope.increments)
        self._entries += entries
        self._increments += envelope.increments
        if envelope.is_minted:
            self._ids[number] = envelope.id
        self._numbers.setdefault(envelope.key, set()).add(number)
        heapq.heappush(self._due, (now + (SOON if self.crowded else SETTLE_WITHIN), number))
        self._drop_oldest()
        return number

    def _drop_oldest(self) -> None:
        if self._entries > self._most_entries and not self._full:
            self._full = True
            _log.warning(
                "too many increments are pending, so reads may miss the oldest of them: use Redis as the overlay,"
                " or more ingests, and check whether the flushers keep up"
            )
        while self._entries > self._most_entries and len(self._there) > 1:
            self._forget(next(iter(self._there)))

    def _forget(self, number: int) -> None:
        self._unlist(number)
        self._pending.withdraw(number)

    def _unlist(self, number: int) -> None:
        key, entries, _, increments = self._there.pop(number)
        self._ids.pop(number, None)
        self._entries -= entries
        self._increments -= increments
        if self._full and self._entries < self._most_entries // 2:
            self._full = False
        self._numbers[key].discard(number)
        if not self._numbers[key]:
            del self._numbers[key]


# In a fleet, with a member, so that others know that they do not see it.


AGAIN: Final = 1.0
"""Seconds between two tries while the store is away."""


class MemberOverlay(ProcessOverlay):
    """Its member always owes (ADR 18, rule 4), so all processes on one spool file or one topic share a record."""

    def __init__(self, clock: Clock, looks: FleetView, membership: Membership) -> None:
        super().__init__(clock)
        self._looks = looks
        self._membership = membership
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start. If the store is away, nothing is accepted until it has answered."""
        with suppress(TransientError):
            await self._step()
        self._task = asyncio.create_task(self._run(), name="membership")

    async def close(self, patience: float = 0.0) -> None:  # noqa: ARG002 (it says nothing in the store)
        """Stop. The record stays, since what was accepted here may not be applied yet."""
        await ended(self._task)
        await self._looks.close()

    @asynccontextmanager
    async def entered(self, envelopes: Sequence[Envelope]) -> AsyncIterator[None]:
        self.check()
        async with super().entered(envelopes):
            yield
            await self._membership.until_free()
            self.check()

    def check(self) -> None:
        self._membership.check()

    async def _run(self) -> None:
        while True:
            known = self._membership.state != UNKNOWN and self._looks.answered
            await asyncio.sleep(LOOK_EVERY if known else AGAIN)
            try:
                await self._step()
            except TransientError as error:
                _log.debug("can't update the record of this process in the store, trying again: %s", error)

    async def _step(self) -> None:
        look = await self._looks.get(AGAIN / 2)
        if look is None:
            return
        self._membership.reconcile(look)
        if (found := self._membership.found) is not None:
            async for envelope, _ in found.rows.read():
                self._add(envelope, confirmed=True)
            self._membership.inherit(found)
        if self._membership.state == UNKNOWN and not self._membership.shares(look):
            await self._membership.owe()


# The tasks of a job in memory: the queue of a process that runs a whole job alone.


class MemoryTasks:
    """Hands out the newest task first, so that few wait at a time. Tasks that were given back come last. A lease lasts
    until its holder ends it: the queue ends with the process, too.
    """

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._held: dict[str, bytes] = {}
        self._tokens = map(str, count(1))
        self._arrived = asyncio.Event()

    async def publish(self, tasks: Sequence[Task]) -> None:
        self._waiting.extend(map(written, tasks))
        self._arrived.set()

    async def pull(self, limit: int, wait: float) -> Sequence[Lease]:
        if not self._waiting and wait > 0:
            self._arrived.clear()
            if not await set_within(self._arrived, wait):
                return ()
        leases = [Lease(next(self._tokens), self._waiting.pop()) for _ in range(min(limit, len(self._waiting)))]
        self._held.update(leases)
        return leases

    async def extend(self, tokens: Sequence[str]) -> None:
        """Do nothing, since no lease ends by itself."""

    async def ack(self, tokens: Sequence[str]) -> None:
        for token in tokens:
            self._held.pop(token, None)

    async def give_back(self, tokens: Sequence[str]) -> None:
        self._waiting.extendleft(self._held.pop(token) for token in tokens if token in self._held)
        self._arrived.set()
