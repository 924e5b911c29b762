"""Reads a store as a copy needs it: each page of totals, all counts by time and all receipts are of one instant."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from shared.model.buckets import Followed, Millis, TimeBucket
from shared.model.imports import Foreign, Mark
from shared.model.moving import MovedCount, MovedJob, MovedReceipt, is_of_copy, moved_job, moved_receipt
from shared.model.words import Total
from shared.ports.store import AuditData, Store

PAGE: Final = 500
"""Counters whose totals are of one instant."""


class StoreOrigin:
    """Implements `Origin` with any store."""

    def __init__(
        self,
        store: Store,
        name: str,
        waiting: Callable[[], Awaitable[int | None]],
        went_on: Callable[[], bool] = lambda: False,
    ) -> None:
        """`name`: identifies the data for ever, wherever it is."""
        self.name = name
        self._store = store
        self._waiting = waiting
        self.went_on = went_on
        self._held: AuditData | None = None

    @asynccontextmanager
    async def still(self) -> AsyncIterator[None]:
        async with self._store.audit_data() as data:
            self._held = data
            try:
                yield
            finally:
                self._held = None

    @asynccontextmanager
    async def _data(self) -> AsyncIterator[AuditData]:
        if self._held is not None:
            yield self._held
            return
        async with self._store.audit_data() as data:
            yield data

    async def counters(self, prefix: str) -> AsyncGenerator[Foreign | str, None]:
        after = ""
        while names := await self._store.names(prefix, after, PAGE):
            for one in await self._read(names):
                yield one
            after = names[-1]
        after = ""
        while names := await self._store.dead_names(prefix, after, PAGE):
            there = await self._store.shards(names)
            for one in await self._read([name for name in names if name not in there]):
                yield one
            after = names[-1]

    async def counter(self, name: str) -> Foreign | None:
        return next(iter(await self._read([name])), None)

    async def _read(self, names: Sequence[str]) -> Sequence[Foreign]:
        """The totals of the counters that exist."""
        async with self._data() as data:
            totals, _ = await data.snapshot.read(names, ())
        return [foreign for name in names if (foreign := _foreign(name, totals[name])) is not None]

    async def counts(self, prefix: str) -> AsyncIterator[Sequence[MovedCount]]:
        now = await self._store.now()
        async with self._data() as data:
            found: dict[TimeBucket, MovedCount] = {}
            of: Sequence[str] = ()
            async for page in data.buckets():
                for one in page:
                    if not one.bucket.counter.startswith(prefix) or one.expires <= now:
                        continue
                    if of != one.bucket[:2]:
                        if found:
                            yield [*found.values()]
                        of, found = one.bucket[:2], {}
                    _, held, left, flaw = found.get(one.bucket, MovedCount(one.bucket))
                    left = max(left, Millis(one.expires - now))
                    found[one.bucket] = MovedCount(one.bucket, held + one.held, left, flaw or one.flaw)
            if found:
                yield [*found.values()]

    async def receipts(self) -> AsyncIterator[Sequence[MovedReceipt]]:
        now = await self._store.now()
        async with self._data() as data:
            async for page in data.receipts():
                if moved := [one for kept in page if (one := moved_receipt(kept.receipt, now)) is not None]:
                    yield moved

    async def marks(self, prefix: str) -> AsyncIterator[Sequence[Mark]]:
        async with self._data() as data:
            async for page in data.marks():
                if moved := [one for one in page if one.counter.startswith(prefix) and not is_of_copy(one)]:
                    yield moved

    async def jobs(self) -> AsyncIterator[Sequence[MovedJob]]:
        now = await self._store.now()
        async with self._data() as data:
            async for page in data.jobs():
                if moved := [one for state in page if (one := moved_job(state, now)) is not None]:
                    yield moved

    async def followed(self) -> Sequence[Followed]:
        async with self._data() as data:
            return await data.followed()

    async def waiting(self) -> int | None:
        return await self._waiting()


def _foreign(name: str, total: Total) -> Foreign | None:
    if not total.dead and (not total.shards or (total.guard.deleted and not total.value)):
        return None
    flaw = total.flaw or ("a dead letter of it is neither replayed nor dropped" if total.dead else "")
    return Foreign(name, total.value, flaw)
