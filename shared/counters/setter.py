"""Changes a counter as a whole: sets it, or gives it fewer shards.

A set adds the difference to an exact reading, with a receipt and the guard in one commit. Increments accepted before
the reading are part of it, applied or not. Later ones count after the set. If the counter was set again since the
reading, its guard has changed and the commit fails. See docs/adr/0009.
"""

import asyncio
import random
import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from shared.config.settings import Settings
from shared.counters.reader import FreshRead, Reader
from shared.model.buckets import HOUR, NEVER, Instant, Millis, StoreMillis, WallMillis
from shared.model.errors import (
    AlreadyAppliedError,
    ChangedError,
    CountersinkError,
    DoubtfulError,
    InexactError,
    LateError,
    NotAloneError,
    OverloadedError,
    ShardFullError,
    ShareError,
    ShrunkError,
    StorageFullError,
    TransientError,
)
from shared.model.receipts import (
    Tally,
    key_of_compaction,
    key_of_set,
    lifetime,
    notes_of_change,
    notes_of_commit,
    read_note,
)
from shared.model.words import MARKED, SHARD_FULL, Bounds, Commit, Guard, Reading, Receipt, ShardAdd, choose
from shared.ports.overlay import Overlay
from shared.ports.store import Commits, ShardNumbers
from shared.runtime import metrics
from shared.runtime.clock import Clock
from shared.runtime.ids import mint
from shared.runtime.retry import Backoff, after_conflict

RETRY_FOR: Final = 5.0
"""Seconds for retries while other sets are faster or the store fails. A set may wait in line for as long before."""
LONGEST: Final = HOUR
"""Milliseconds of the store's time within which a set must be done. The receipt of an earlier request surely lives as
long, so a process that was suspended for days does not set the counter again.
"""
SET: Final = "set"
RESET: Final = "reset"
DELETE: Final = "delete"
_SETS: Final = {kind: metrics.SETS.labels(kind) for kind in (SET, RESET, DELETE)}


_NOTHING_HAPPENED: Final = (InexactError, OverloadedError, StorageFullError)


class ChangeRequest(NamedTuple):
    """A set, a reset or a delete that a client or a job asks for."""

    kind: str
    value: int = 0
    key: str | None = None
    """The Idempotency-Key: requests with the same one change the counter once."""
    expires: StoreMillis = NEVER
    """When its receipts expire; `NEVER` for the usual lifetime."""
    until: StoreMillis | None = None
    """The time after which it must not happen; None for an hour from now."""
    unused_since: WallMillis | None = None
    """A counter that was changed since then is left alone; None if all are changed."""

    def passes(self, reading: Reading) -> bool:
        """Whether a counter that reads so is left alone, where only existing ones are changed."""
        return not reading.exists or (self.unused_since is not None and not reading.is_unused_since(self.unused_since))


class Change(NamedTuple):
    """The value of the counter before and after."""

    before: int
    after: int


class Setter:
    """Sets counters. Sets of one counter run one after the other, since only one of several at once can succeed."""

    def __init__(
        self,
        reader: Reader,
        store: Commits,
        overlay: Overlay,
        clock: Clock,
        receipts_live: Millis,
        *,
        new_counter: int = 1,
        pick: Callable[[int], int] = random.randrange,
        backoff: Callable[[], Backoff] = after_conflict,
    ) -> None:
        """`new_counter`: the number of shards of a new counter."""
        self._reader = reader
        self._store = store
        self._overlay = overlay
        self._clock = clock
        self._receipts_live = receipts_live
        self._new_counter = new_counter
        self._pick = pick
        self._backoff = backoff
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def set(self, counter: str, wish: ChangeRequest) -> Change:
        """Return when every process reads the new value. `InexactError`, `OverloadedError` and `StorageFullError` mean
        that nothing happened. After any other error it may have happened.
        """
        receipt = key_of_set(counter, wish.kind, wish.key or mint())
        change = await self._set(counter, wish, receipt)
        assert change is not None, "it is set whether or not it is there"  # noqa: S101
        return change

    async def unused(self, counters: Sequence[str], wish: ChangeRequest) -> Sequence[str]:
        """The counters without those that `set_existing` would leave alone because they were changed since
        `unused_since`. They are read together, which takes a tenth of the time.
        """
        readings = await self._reader.read(counters, 0)
        return [one.name for one in readings if not (one.exact and one.exists and wish.passes(one))]

    async def set_existing(self, counter: str, wish: ChangeRequest, receipt: str) -> Change | None:
        """Like `set`, once per receipt. Returns None, and changes nothing, if the counter does not exist, or if it was
        changed since `unused_since`. What is counted meanwhile is kept.
        """
        return await self._set(counter, wish, receipt, existing=True)

    async def _set(self, counter: str, wish: ChangeRequest, receipt: str, *, existing: bool = False) -> Change | None:
        until = self._clock.monotonic() + RETRY_FOR
        async with self._locks.setdefault(counter, asyncio.Lock()):
            if self._clock.monotonic() > until:
                raise ShareError("too many requests set this counter, one after the other: retry later")
            done = await self._insist(counter, wish, receipt, existing=existing)
            if done is None:
                return None
            change, time = done
            try:
                await self._overlay.changed([counter], time, receipt)
            except _NOTHING_HAPPENED as limit:
                raise DoubtfulError(limit) from limit
        return change

    async def _insist(
        self, counter: str, wish: ChangeRequest, receipt: str, *, existing: bool
    ) -> tuple[Change, Instant] | None:
        """Retry until the receipt exists, from this request or an earlier one. Each try uses the same receipt, since a
        commit that seemed lost may still happen.
        """
        until = self._clock.monotonic() + RETRY_FOR
        backoff = self._backoff()
        full: set[int] = set()
        doubtful = False
        while True:
            why: CountersinkError
            try:
                wish = await self._bound(wish)
                look = await self._reader.look(counter, receipt)
                if look.receipt_settled:
                    return await self._earlier(receipt)
                if existing and look.reading.exact and wish.passes(look.reading):
                    return None
                return await self._commit(counter, wish, receipt, look, full)
            except _NOTHING_HAPPENED as limit:
                if doubtful:
                    raise DoubtfulError(limit) from limit
                raise
            except ShardFullError as error:
                full.update(shard for _, shard in error.shards)
                why = error
            except (ChangedError, ShrunkError) as error:
                why = error
            except (AlreadyAppliedError, TransientError) as error:
                doubtful = True
                why = error
            if self._clock.monotonic() >= until:
                raise _given_up(why, doubtful=doubtful) from why
            await backoff.wait()

    async def _bound(self, wish: ChangeRequest) -> ChangeRequest:
        return wish if wish.until is not None else wish._replace(until=StoreMillis(await self._store.now() + LONGEST))

    async def _commit(
        self, counter: str, wish: ChangeRequest, receipt: str, look: FreshRead, full: Collection[int]
    ) -> tuple[Change, Instant]:
        reading = look.reading
        if look.flaw:
            raise InexactError(f"a counter is set only while it can be read exactly: {look.flaw}")
        if not reading.exact:
            raise InexactError(
                "a counter is set only while it can be read exactly, which is not possible now: countersink doctor says"
                " why, and what to do (with Pub/Sub, exact reads need COUNTERSINK_OVERLAY=redis://…)"
            )
        change = Change(reading.value, wish.value)
        adds = [*self._adds(counter, wish, look, full)]
        said = notes_of_change(secrets.token_hex(6), counter, [add.delta for add in adds], *change)
        now = await self._store.now()
        expires = wish.expires or StoreMillis(now + self._receipts_live)
        receipts = [Receipt(f"{receipt}{'+' * number}", expires, note=note) for number, note in enumerate(said)]
        # A reset does not bring a deleted counter back: the outcome would depend on whether a flusher has removed it.
        gone = look.guard.deleted and not reading.exists
        guard = Guard(look.guard.version, deleted=wish.kind == DELETE or (wish.kind == RESET and gone))
        until = StoreMillis(now + MARKED) if wish.until is None else min(wish.until, StoreMillis(now + MARKED))
        bounds = Bounds(until, epoch=await self._overlay.mark(receipt, [counter], look.epoch))
        try:
            commit = Commit(tuple(receipts), tuple(adds), guard=(counter, guard), bounds=bounds, changes=(counter,))
            time = await self._store.apply(commit)
        except LateError as error:
            raise TransientError("this process was suspended during the change: send the request again") from error
        _SETS[wish.kind].inc()
        return change, time

    def _adds(self, counter: str, wish: ChangeRequest, look: FreshRead, full: Collection[int]) -> Iterator[ShardAdd]:
        """The adds of the difference, each to a shard of its own. A set makes a new counter even if the value is 0."""
        makes = wish.kind == SET and not look.reading.shards
        shards, full = look.reading.shards or self._new_counter, {*full}
        for delta in divided(wish.value - look.reading.value) or [0] * makes:
            shard = choose(shards, frozenset(full), self._pick)
            full.add(shard)
            shards = max(shards, shard + 1)
            yield ShardAdd(counter, shard, delta, shards, look.reading.shards)

    async def _earlier(self, receipt: str) -> tuple[Change, Instant]:
        time, found = await self._store.receipts([receipt])
        change = read_note(found[receipt].note).change if receipt in found else None
        if change is None:
            raise TransientError(
                "an earlier request made this change, but its receipt has just expired: read the counter"
            )
        return Change(*change), time


def _given_up(why: CountersinkError, *, doubtful: bool) -> CountersinkError:
    if doubtful:
        return TransientError(
            f"it may or may not have happened: send the request again with the same Idempotency-Key ({why})"
        )
    return ShareError(f"other requests keep changing this counter, so nothing happened: send the request again ({why})")


def divided(delta: int) -> Sequence[int]:
    """The delta in parts that a shard can take; no parts if it is 0."""
    sign = 1 if delta > 0 else -1
    whole, rest = divmod(abs(delta), SHARD_FULL)
    return [sign * SHARD_FULL] * whole + [sign * rest] * (rest > 0)


# Gives a counter fewer shards. Each commit leaves a receipt, which tells an audit who wrote.


COMPACT_FOR: Final = 10.0
"""Seconds for retries while others write to the shards that are to be removed."""


class Compactor:
    """Safe to kill at any point, and safe to run several times at once."""

    def __init__(
        self,
        store: ShardNumbers,
        clock: Clock,
        retention: Millis,
        *,
        alone: bool = True,
    ) -> None:
        """`alone`: no ndb application writes to the same counters."""
        self._store = store
        self._clock = clock
        self._retention = retention
        self._alone = alone

    def check(self) -> None:
        """Raise `NotAloneError` if compaction is not allowed here."""
        if not self._alone:
            raise NotAloneError(
                "an ndb application writes to these counters, too (COUNTERSINK_NDB_WRITERS): it may be about to add to"
                " a shard that would be removed, and that increment would be lost; wait until the application has ended"
            )

    async def compact(self, counter: str, num_shards: int, receipt: Receipt | None = None) -> int:
        """Compact the counter and return its number of shards then, which may be higher if time ran out. `receipt`: key
        and expiry of that of the first commit, so that the caller can find it again.

        Raises `CrowdedError` if so few shards can't hold the value.
        """
        self.check()
        until = self._clock.monotonic() + COMPACT_FOR
        backoff = after_conflict()
        while True:
            try:
                number = await self._store.compact(counter, num_shards, await self._receipt(counter, receipt))
            except AlreadyAppliedError:
                receipt = None  # the first was done
            except TransientError:
                if self._clock.monotonic() >= until:
                    raise
                await backoff.wait()
            else:
                if number <= num_shards or self._clock.monotonic() >= until:
                    return number
                receipt = None

    async def _receipt(self, counter: str, receipt: Receipt | None) -> Receipt:
        """A receipt that names the counter with a sum of 0, since a compaction changes no total."""
        identity = mint()
        (note,) = notes_of_commit([""], identity, Tally(), {counter: 0})
        if receipt is None:
            expires = StoreMillis(await self._store.now() + lifetime(self._retention, of_client=False))
            receipt = Receipt(key_of_compaction(identity), expires)
        return receipt._replace(note=note)


def compactor_of(store: ShardNumbers, clock: Clock, settings: Settings) -> Compactor:
    return Compactor(store, clock, Millis(settings.retention * 1_000), alone=settings.ndb_writers == "no")
