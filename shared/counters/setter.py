"""Owns how a counter is set: by what an exact reading lacks, in one commit with a receipt and the counter's guard.

What was accepted before the reading is in it, applied or not; what comes later counts after the set. Whoever else has
set the counter since then has changed the guard, and so the commit fails. See docs/adr/0009.
"""

import asyncio
import random
import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from shared.counters.reader import FreshRead, Reader
from shared.model import notes
from shared.model.bounds import Bounds
from shared.model.errors import (
    AlreadyAppliedError,
    ChangedError,
    CountersinkError,
    DoubtfulError,
    InexactError,
    LateError,
    OverloadedError,
    ShardFullError,
    ShareError,
    ShrunkError,
    StorageFullError,
    TransientError,
)
from shared.model.receipts import HOUR, key_of_set
from shared.model.sharding import choose
from shared.model.words import SHARD_FULL, Commit, Guard, Receipt, ShardAdd
from shared.ports.commits import Commits
from shared.ports.overlay import Overlay
from shared.runtime import metrics
from shared.runtime.backoff import Backoff
from shared.runtime.clock import Clock
from shared.runtime.ids import mint

PATIENCE: Final = 5.0
"""Seconds in which others may be faster, or the store may fail; before that, as long again in line."""
LONGEST: Final = HOUR
"""Milliseconds of the store's time in which a set has to be done: as long the receipt of an earlier request is surely
there. A process that stood still for days does not set the counter again.
"""
SET: Final = "set"
RESET: Final = "reset"
DELETE: Final = "delete"
_SETS: Final = {kind: metrics.SETS.labels(kind) for kind in (SET, RESET, DELETE)}


_NOTHING_HAPPENED: Final = (InexactError, OverloadedError, StorageFullError)


class ChangeRequest(NamedTuple):
    """What is asked for."""

    kind: str
    value: int = 0
    key: str | None = None
    """Under which it happens once, however often it is asked for."""
    expires: int = 0
    """When its receipts expire, by the store's time; 0: as late as those of any set."""
    until: int | None = None
    """The store's time after which it is not done any more; None: an hour from now."""


class Change(NamedTuple):
    """What came of it."""

    before: int
    after: int


class Setter:
    """Sets counters, one after the other where they are the same: others would have to begin anew."""

    def __init__(
        self,
        reader: Reader,
        store: Commits,
        overlay: Overlay,
        clock: Clock,
        receipts_live: int,
        *,
        new_counter: int = 1,
        pick: Callable[[int], int] = random.randrange,
        backoff: Callable[[], Backoff] = lambda: Backoff(0.01, 0.5),
    ) -> None:
        """`receipts_live` in milliseconds; `new_counter`: how many shards it has."""
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
        """Return when every process reads it so. `InexactError`, `OverloadedError` and `StorageFullError` say that
        nothing happened; after any other error it may have.
        """
        receipt = key_of_set(counter, wish.kind, wish.key or mint())
        change = await self._set(counter, wish, receipt)
        assert change is not None, "it is set whether or not it is there"  # noqa: S101
        return change

    async def set_existing(self, counter: str, wish: ChangeRequest, receipt: str) -> Change | None:
        """As `set`, once for this receipt; unless the counter does not exist: None."""
        return await self._set(counter, wish, receipt, existing=True)

    async def _set(self, counter: str, wish: ChangeRequest, receipt: str, *, existing: bool = False) -> Change | None:
        until = self._clock.monotonic() + PATIENCE
        async with self._locks.setdefault(counter, asyncio.Lock()):
            if self._clock.monotonic() > until:
                raise ShareError("others are setting this counter, one after the other")
            done = await self._insist(counter, wish, receipt, existing=existing)
            if done is None:
                return None
            change, time = done
            try:
                await self._overlay.raise_floor(counter, time)
            except _NOTHING_HAPPENED as limit:
                raise DoubtfulError(limit) from limit
        return change

    async def _insist(
        self, counter: str, wish: ChangeRequest, receipt: str, *, existing: bool
    ) -> tuple[Change, int] | None:
        """Until the receipt is there, ours or that of an earlier request. The same receipt each time: a commit that was
        taken for lost may come late.
        """
        until = self._clock.monotonic() + PATIENCE
        backoff = self._backoff()
        full: set[int] = set()
        doubtful = False
        while True:
            why: CountersinkError
            try:
                wish = await self._bound(wish)
                look = await self._reader.look(counter, receipt)
                if look.done:
                    return await self._earlier(receipt)
                if existing and look.reading.exact and not look.reading.exists:
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
        return wish if wish.until is not None else wish._replace(until=await self._store.now() + LONGEST)

    async def _commit(
        self, counter: str, wish: ChangeRequest, receipt: str, look: FreshRead, full: Collection[int]
    ) -> tuple[Change, int]:
        reading = look.reading
        if look.flaw:
            raise InexactError(f"a counter is set only while it can be read exactly: {look.flaw}")
        if not reading.exact:
            raise InexactError(
                "a counter is set only while it can be read exactly, which this one can't be now: with Pub/Sub it takes"
                " COUNTERSINK_OVERLAY=redis://…, and all processes must reach it"
            )
        change = Change(reading.value, wish.value)
        adds = [*self._adds(counter, wish, look, full)]
        said = notes.of_change(secrets.token_hex(6), counter, [add.delta for add in adds], *change)
        expires = wish.expires or await self._store.now() + self._receipts_live
        receipts = [Receipt(f"{receipt}{'+' * number}", expires, note=note) for number, note in enumerate(said)]
        # A reset of what was deleted does not bring it back: it would hang on whether a flusher has removed it yet.
        gone = look.guard.deleted and not reading.exists
        guard = Guard(look.guard.version, deleted=wish.kind == DELETE or (wish.kind == RESET and gone))
        bounds = Bounds(wish.until)
        try:
            time = await self._store.apply(Commit(tuple(receipts), tuple(adds), guard=(counter, guard), bounds=bounds))
        except LateError as error:
            raise TransientError("this process stood still while it set the counter: send it again") from error
        _SETS[wish.kind].inc()
        return change, time

    def _adds(self, counter: str, wish: ChangeRequest, look: FreshRead, full: Collection[int]) -> Iterator[ShardAdd]:
        """As many as it takes, each to a shard of its own. A set makes the counter, whatever its value."""
        makes = wish.kind == SET and not look.reading.shards
        shards, full = look.reading.shards or self._new_counter, {*full}
        for delta in divided(wish.value - look.reading.value) or [0] * makes:
            shard = choose(shards, frozenset(full), self._pick)
            full.add(shard)
            shards = max(shards, shard + 1)
            yield ShardAdd(counter, shard, delta, shards, look.reading.shards)

    async def _earlier(self, receipt: str) -> tuple[Change, int]:
        time, found = await self._store.receipts([receipt])
        change = notes.read(found[receipt].note).change if receipt in found else None
        if change is None:
            raise TransientError("its receipt has just expired")
        return Change(*change), time


def _given_up(why: CountersinkError, *, doubtful: bool) -> CountersinkError:
    if doubtful:
        return TransientError(
            f"nobody can say whether it happened: send it again under the same Idempotency-Key ({why})"
        )
    return ShareError(f"others change this counter all the time, and nothing happened ({why})")


def divided(delta: int) -> Sequence[int]:
    """In parts that a shard can take; none of nothing."""
    sign = 1 if delta > 0 else -1
    whole, rest = divmod(abs(delta), SHARD_FULL)
    return [sign * SHARD_FULL] * whole + [sign * rest] * (rest > 0)
