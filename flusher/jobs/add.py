"""Adds a number to each counter of a page. Each addition has a receipt of the job in the same commit."""

import random
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from flusher.jobs.visit import PageOutcome, existing
from shared.counters.reader import Reader
from shared.model import receipt_notes
from shared.model.errors import (
    AlreadyAppliedError,
    ChangedError,
    LateError,
    RefusedError,
    ShardFullError,
    ShrunkError,
    TransientError,
)
from shared.model.jobs import Job
from shared.model.sharding import add_to
from shared.model.times import Instant, StoreMillis
from shared.model.words import MARKED, Bounds, Commit, Receipt, Tally
from shared.ports.overlay import Overlay
from shared.ports.store import Store

IN_COMMIT: Final = 200
"""Counters in a commit. Each needs a receipt and a shard, and some stores accept 500 entities in a commit."""
Shards = Mapping[str, int]
"""Numbers of shards, by counter."""


class Adding:
    """Safe to repeat: a receipt can be inserted only once, so a second visit of a page adds nothing twice."""

    def __init__(
        self,
        store: Store,
        reader: Reader,
        overlay: Overlay,
        *,
        exact: bool,
        new_counter: int = 1,
        pick: Callable[[int], int] = random.randrange,
    ) -> None:
        """`exact`: whether readings can be exact. `new_counter`: the number of shards of one that is only pending."""
        self._store = store
        self._reader = reader
        self._overlay = overlay
        self._exact = exact
        self._new_counter = new_counter
        self._pick = pick

    async def __call__(self, job: Job, names: Sequence[str]) -> PageOutcome:
        there = await existing(self._store, self._reader, names, exact=self._exact)
        failed: list[tuple[str, str]] = []
        for part in _divided(there, IN_COMMIT):
            failed += await self._add(job, part)
        return PageOutcome(len(there), len(there) - len(failed), tuple(failed))

    async def _add(self, job: Job, left: Shards) -> Sequence[tuple[str, str]]:
        """Add to all of `left`; returns the counters that the store refuses, and why."""
        full: dict[str, frozenset[int]] = {}
        while left:
            commit = await self._commit(job, left, full)
            try:
                time = await self._apply(job, commit)
            except AlreadyAppliedError as error:
                left = await self._without_done(job, left, error)
            except ShardFullError as error:
                for name, shard in error.shards:
                    full[name] = full.get(name, frozenset()) | {shard}
            except ShrunkError as error:
                left = {**left, **await self._store.shards([*error.counters])}
            except RefusedError as error:
                if len(left) == 1:
                    return [(name, str(error)) for name in left]
                halves = _divided(left, -(-len(left) // 2))
                return [one for half in halves for one in await self._add(job, half)]
            else:
                await self._overlay.changed(commit.changes, time, commit.receipts[0].key)
                break
        return ()

    async def _apply(self, job: Job, commit: Commit) -> Instant:
        """`LateError`: it is too late for the whole job."""
        try:
            return await self._store.apply(commit)
        except ChangedError as error:
            raise TransientError(str(error)) from error
        except LateError as error:
            if error.reached > job.until():
                raise
            raise TransientError("this process was suspended during an addition") from error

    async def _without_done(self, job: Job, left: Shards, error: AlreadyAppliedError) -> Shards:
        """The counters whose addition is not done. The receipts must be read: an error does not mean that all exist."""
        keys = {name: job.receipt_of(name) for name in left}
        time, found = await self._store.receipts(keys.values())
        if not found:
            raise TransientError("a receipt that existed before is missing") from error
        await self._overlay.changed([name for name in left if keys[name] in found], time)
        return {name: shards for name, shards in left.items() if keys[name] not in found}

    async def _commit(self, job: Job, left: Shards, full: Mapping[str, frozenset[int]]) -> Commit:
        adds = [
            add_to(name, job.number, shards, new=self._new_counter, full=full.get(name, frozenset()), pick=self._pick)
            for name, shards in left.items()
        ]
        expires = job.receipts_expire()
        said = receipt_notes.written(("",) * len(left), secrets.token_hex(6), Tally(), dict.fromkeys(left, job.number))
        receipts = [Receipt(job.receipt_of(name), expires, note=note) for name, note in zip(left, said, strict=True)]
        until = min(job.until(), StoreMillis(await self._store.now() + MARKED))
        bounds = Bounds(until, epoch=await self._overlay.mark(receipts[0].key, left))
        return Commit(tuple(receipts), tuple(adds), bounds=bounds, changes=tuple(left))


def _divided(there: Shards, size: int) -> Iterator[Shards]:
    """The counters in parts of `size`."""
    items = iter(there.items())
    while part := dict(islice(items, size)):
        yield part
