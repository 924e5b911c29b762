"""Takes increments to the broker: sums and publishes them, answers the requests that wait, and settles what nobody
reads.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, NoReturn

from ingest.accept.admission import (
    BYTES,
    OWN,
    PER_SUM,
    Admission,
    KnownIds,
    PendingShares,
    weight_of_batch,
    weight_of_id,
)
from ingest.accept.drafts import Batch, Coalescer, Draft, Pace, begun, gathered
from shared.http.shares import LOCAL
from shared.model.errors import (
    CountersinkError,
    DamagedError,
    DoubtfulError,
    OverloadedError,
    StoodStillError,
    StorageFullError,
    TooLargeError,
    UnkeptError,
)
from shared.model.words import Increment, Message
from shared.ports.broker import LimitedPublisher, Publisher
from shared.ports.overlay import Overlay
from shared.ports.store import AppliedEnvelopes, ReceiptBook
from shared.runtime import metrics
from shared.runtime.clock import Clock, StandstillWatch, deadline
from shared.runtime.ids import envelope_ids
from shared.runtime.retry import all_of
from shared.runtime.traces import BegunSpan, Traces
from shared.wire.codec import encode

_log = logging.getLogger(__name__)

MOST_DRAFTS: Final = 100
SIDE_BY_SIDE: Final = 4
LONGEST_PUBLISH: Final = 1_800.0
"""Seconds in which a publish may be repeated, or go to the spool. An earlier try may have been taken, and its receipts
do not live for ever. What goes to the spool is as old as this when it is dated: ages have an hour to spare.
"""
_NOT_TAKEN: Final = (OverloadedError, StoodStillError, StorageFullError, TooLargeError, UnkeptError)
"""After one of these errors nothing was published. After any other, something may have been."""


class Publishing:
    """Publishes increments. The `add` methods return drafts; `durable` of a draft ends when it is durable, or fails."""

    def __init__(
        self,
        publisher: Publisher,
        overlay: Overlay,
        clock: Clock,
        *,
        pace: Pace,
        max_waiting: int,
        mint: Callable[[], str] | None = None,
        traces: Traces | None = None,
        read_lately: Callable[[Collection[str]], bool] | None = None,
    ) -> None:
        """`read_lately`: whether any of these counters was read lately. None where flushers always hurry."""
        self._publisher = publisher
        self._overlay = overlay
        self._clock = clock
        self.awake = StandstillWatch(clock)
        self._pace = pace
        self._traces = traces
        self._read_lately = read_lately
        self._coalescer = Coalescer(mint or envelope_ids())
        self._known_ids = KnownIds()
        self.admission = Admission(max_waiting, self._drafts)
        self._shares: PendingShares | None = None
        if isinstance(publisher, LimitedPublisher):
            self._shares = PendingShares(publisher, self._drafts, clock.monotonic)
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}
        self._flights: dict[asyncio.Task[None], list[Draft]] = {}
        self._wake: asyncio.Handle | None = None
        self._loop = asyncio.get_running_loop()
        self._broken = asyncio.Event()
        self._damage: DamagedError | None = None

    def add(self, counter: str, delta: int, tenant: str = LOCAL) -> Draft:
        """Add one increment. Call `durable` of its draft without awaiting anything in between."""
        if self._shares is not None and not self._shares.easy:
            self._shares.judge(tenant, PER_SUM + len(counter))
        admission = self.admission
        if admission.held < admission.easy:
            admission.held += 1
        else:
            admission.enter(tenant, 1, {counter: 1}, self._clock.monotonic())
        draft = self._coalescer.add(counter, delta)
        draft.senders[tenant] = draft.senders.get(tenant, 0) + 1
        self._schedule()
        return draft

    def add_keyed(self, item: Increment, tenant: str = LOCAL) -> Draft:
        self._known_ids.check([item], self._clock.monotonic())
        if self._shares is not None and not self._shares.easy:
            self._shares.judge(tenant, weight_of_id(item))
        weight = 1 + (len(item.counter) + len(item.id or "")) // BYTES
        self.admission.enter(tenant, weight, {item.counter: 1}, self._clock.monotonic())
        draft = self._coalescer.add_keyed(item)
        return self._entered(draft, tenant, weight)

    def add_batch(self, batch: Batch, tenant: str = LOCAL, weight: int = 0, envelope_id: str = "") -> list[Draft]:
        """Add a batch. It weighs at least 1 per increment, and takes room until the last of its drafts is published.

        With the id of a client, its items without ids become one envelope, whose receipt makes the first body win. They
        may name `MAX_ENTRIES` counters.
        """
        weight, rest, drafts = max(weight, batch.increments), batch, list[Draft]()
        if whole := bool(envelope_id and batch.sums):
            plain, rest = batch.apart()
            self._known_ids.check_whole(envelope_id, plain, self._clock.monotonic())
            weight = max(weight, OWN)
        self._known_ids.check(batch.keyed, self._clock.monotonic())
        self._enter(batch, tenant, weight)
        if whole:
            drafts.append(self._coalescer.add_whole(plain, envelope_id))
        drafts += self._coalescer.add_batch(rest)
        self._entered(drafts[-1], tenant, weight)
        return drafts

    def is_other(self, envelope_id: str, batch: Batch) -> bool:
        """Whether another batch is known to have been accepted under this id, so that this one would not count."""
        return self._known_ids.is_other(envelope_id, batch, self._clock.monotonic())

    def add_wholes(self, batches: Sequence[tuple[str, Batch]], tenant: str, weight: int) -> list[Draft]:
        """Add batches that each become one envelope, with an id of a client: all of them, or none."""
        weight = max(weight, sum(max(batch.increments, OWN) for _, batch in batches))
        self._enter(gathered(batch for _, batch in batches), tenant, weight)
        drafts = [self._coalescer.add_whole(batch, envelope_id) for envelope_id, batch in batches]
        self._entered(drafts[-1], tenant, weight)
        return drafts

    def durable(self, draft: Draft, *, awaited: bool = False) -> asyncio.Future[None]:
        """A future that ends when the draft is durable. It has the error of the publish if that is not certain.
        `awaited`: see `Draft`.
        """
        draft.awaited |= awaited
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiters.setdefault(draft.id, []).append(future)
        return future

    def all_durable(self, drafts: Sequence[Draft], *, awaited: bool = False) -> asyncio.Future[Any]:
        futures = [self.durable(draft, awaited=awaited) for draft in drafts]
        return futures[0] if len(futures) == 1 else asyncio.ensure_future(all_of(futures))

    async def until_broken(self) -> NoReturn:
        """Wait until a publish fails with `DamagedError`, and raise it: nothing can be accepted any more."""
        await self._broken.wait()
        assert self._damage is not None  # noqa: S101 (set before the event)
        raise self._damage

    async def drain(self) -> None:
        """Return when everything that was added has been published or has failed."""
        while self._coalescer or self._flights:
            self._start()
            await asyncio.wait(self._flights)

    def check(self, tenant: str, weight: int) -> None:
        """Raise what adding a batch of this weight would raise, as far as that is known before its body is read."""
        self.admission.check(tenant, weight, self._clock.monotonic())

    def _enter(self, batch: Batch, tenant: str, weight: int) -> None:
        if self._shares is not None and not self._shares.easy:
            self._shares.judge(tenant, weight_of_batch(batch))
        admission = self.admission
        counts = {} if admission.held + weight <= admission.easy else batch.by_counter()
        admission.enter(tenant, weight, counts, self._clock.monotonic())

    def _entered(self, draft: Draft, tenant: str, weight: int) -> Draft:
        draft.senders[tenant] = draft.senders.get(tenant, 0) + weight
        self._schedule()
        return draft

    def _drafts(self) -> Iterator[Draft]:
        """All drafts that wait or are being published."""
        yield from self._coalescer.drafts()
        for drafts in self._flights.values():
            yield from drafts

    def _schedule(self) -> None:
        self._pace.arrived()
        if self._wake is None and len(self._flights) < SIDE_BY_SIDE:
            self._wait(self._pace.delay(self._loop.time(), busy=bool(self._flights)))

    def _wait(self, delay: float | None) -> None:
        """Wait at least for the end of this turn of the event loop, so that what came in one turn goes together."""
        if self._wake is not None:
            self._wake.cancel()
        loop = self._loop
        self._wake = loop.call_soon(self._start) if delay is None else loop.call_later(delay, self._look)

    def _look(self) -> None:
        self._wake = None
        if len(self._flights) < SIDE_BY_SIDE:
            delay = self._pace.look(self._loop.time())
            if delay is None:
                self._start()
            else:
                self._wait(delay)

    def _start(self) -> None:
        if self._wake is not None:
            self._wake.cancel()
        self._wake = None
        drafts = self._coalescer.take(MOST_DRAFTS)
        if drafts:
            self._pace.started(self._loop.time())
            flight = self._loop.create_task(self._publish(drafts), name="publish")
            self._flights[flight] = drafts
            flight.add_done_callback(self._landed)

    def _landed(self, flight: asyncio.Task[None]) -> None:
        self.admission.leave(self._flights.pop(flight), self._clock.monotonic())
        if not flight.cancelled():
            flight.result()  # raises only because of a bug: other errors went to those who wait
        if self._coalescer:
            now = self._loop.time()
            if not self._flights and not self._pace.streams(now):
                self._wait(self._pace.delay(now, busy=False))
            elif self._wake is None:
                self._wait(self._pace.look(now))

    async def _publish(self, drafts: list[Draft]) -> None:
        created = int(self._clock.now() * 1000)
        since = self._clock.monotonic()
        spans: list[BegunSpan] = []
        check = deadline(LONGEST_PUBLISH, self._clock)
        failure: BaseException | None = None
        published = False
        try:
            self.awake.check()
            spans = begun(self._traces, drafts)
            envelopes = [draft.close(created, patient=self._is_patient(draft)) for draft in drafts]
            messages = [encode(envelope) for envelope in envelopes]
            async with self._overlay.entered(envelopes):
                await self._publisher.publish(messages, check)
                published = True
        except BaseException as error:
            failure = DoubtfulError(error) if published and isinstance(error, _NOT_TAKEN) else error
            if not isinstance(error, Exception):
                raise
            _log.warning("increments could not be published; their clients are told to try again: %s", failure)
            if isinstance(error, DamagedError):
                self._damage = error
                self._broken.set()
            if not isinstance(failure, _NOT_TAKEN):
                metrics.DOUBTFUL.inc(sum(draft.increments for draft in drafts))
        else:
            metrics.PUBLISH_SECONDS.observe(self._clock.monotonic() - since)
            self._note(drafts, messages)
        finally:
            metrics.WAITING.set(self._coalescer.waiting)
            for draft in drafts:
                for waiter in self._waiters.pop(draft.id, ()):
                    if not waiter.done():
                        _end(waiter, failure)
            for span in spans:
                span.end(failure)

    def _is_patient(self, draft: Draft) -> bool:
        """Whether nobody waits for what is in it, and the overlay has room, so that flushers may take their time."""
        if self._read_lately is None or draft.awaited or self._overlay.crowded:
            return False
        return not self._read_lately(draft.sums.keys() | {item.counter for item in draft.keyed})

    def _note(self, drafts: list[Draft], messages: list[Message]) -> None:
        """Count what has been published, and remember whose it is."""
        metrics.PUBLISHED.inc(len(drafts))
        metrics.ACCEPTED.inc(sum(draft.increments for draft in drafts))
        for draft in drafts:
            self._known_ids.accepted(draft, self._clock.monotonic())
        if self._shares is not None:
            with contextlib.suppress(CountersinkError):  # the next publish looks again
                self._shares.published(drafts, messages)


def _end(waiter: asyncio.Future[None], failure: BaseException | None) -> None:
    if failure is None:
        waiter.set_result(None)
    elif isinstance(failure, Exception):
        waiter.set_exception(failure)
    else:
        waiter.cancel()


# Removes overlay entries of counters that nobody reads, once their receipts say applied, dead or dropped.


MOST: Final = 1_000
"""Receipts that are looked up at once."""
INTERVAL: Final = 2.0
"""Seconds between two rounds."""


async def settle_due(store: ReceiptBook, overlay: Overlay) -> None:
    """Settle all entries that are due. With `memory://` nobody else removes what other processes have applied.

    It follows the rule of snapshots: the floor rises to the time of the look-up before entries are removed. Envelopes
    that are due for the first time are asked for together, where the store can do that. Nearly all of them are applied.
    The others are looked up one by one when they are due again.
    """
    while True:
        due = await overlay.unsettled(MOST)
        ids = sorted(filter(None, due.values()))
        keys = [*due]
        if len(ids) > 1 and isinstance(store, AppliedEnvelopes):
            time, applied = await store.applied(ids[0], ids[-1], MOST)
            await overlay.settle(due.keys() & applied, time)
            keys = [key for key in due if not due[key]]
        if keys:
            time, found = await store.receipts(keys)
            settled = [key for key, receipt in found.items() if receipt.settled]
            await overlay.settle(settled, time)
        if len(due) < MOST:
            return
