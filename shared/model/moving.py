"""What a copy takes along from one store to another, besides totals. Each store has a clock of its own, so what expires
says how much of its life is left. Pure.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from hashlib import sha256
from typing import Final, NamedTuple, Protocol

from shared.model.buckets import BucketAdd, Followed, Millis, StoreMillis, TimeBucket, WallMillis
from shared.model.imports import Mark, Source
from shared.model.jobs import EXPORT, JobState
from shared.model.receipts import copied_from, read_note, said_again
from shared.model.words import APPLIED, DROPPED, Receipt

_ENVELOPES: Final = "ep"
_CLIENTS: Final = "isc"
"""The first characters of the keys of receipts: of increments with ids, of second uses, of sets."""
_CHANGES: Final = "j"
"""The first character of the key of a job's change, which has a colon if it is a part of the job's result."""
_SECOND_USE: Final = "s"
_COPY: Final = "copy "
_FIRST: Final = 2**40
"""Behind all shards that flushers add to."""


class MovedReceipt(NamedTuple):
    """A receipt that a client's retry may meet."""

    key: str
    state: str
    note: bytes
    left: Millis

    def at(self, now: StoreMillis, source: int) -> Receipt:
        """The receipt in a store whose clock says `now`, copied from that source."""
        return Receipt(self.key, StoreMillis(now + self.left), self.state, copied_from(source, self.note))

    def counted_twice(self, there: Receipt, source: int) -> bool:
        """Whether both stores counted what this receipt stands for, so that it was not copied from that source."""
        both = self.state == there.state == APPLIED and self.key[0] not in _SECOND_USE + _CHANGES
        return both and read_note(there.note).copied != source


class MovedCount(NamedTuple):
    """A count by time: the sum over all shards of its bucket."""

    bucket: TimeBucket
    held: int = 0
    left: Millis = Millis(0)
    flaw: str = ""
    """Why it is unknown; empty if it is known."""

    def at(self, now: StoreMillis, shard: int) -> BucketAdd:
        return BucketAdd(self.bucket, shard, self.held, StoreMillis(now + self.left))


class MovedJob(NamedTuple):
    """A job, which somebody may start again."""

    state: JobState
    left: Millis

    def at(self, now: StoreMillis) -> JobState:
        return replace(self.state, job=self.state.job._replace(expires=StoreMillis(now + self.left)))


def moved_job(state: JobState, now: StoreMillis) -> MovedJob | None:
    """What a copy takes along of a job; None if nothing: it has expired, or is an export, which can be made again."""
    left = Millis(state.job.expires - now)
    return MovedJob(state, left) if left > 0 and state.job.kind != EXPORT else None


def moved_receipt(receipt: Receipt, now: StoreMillis) -> MovedReceipt | None:
    """What a copy takes along of a receipt; None if nothing can come again that it must meet.

    The receipts of increments with ids, of sets, and of requests with an `Idempotency-Key` are of clients, which may
    repeat them elsewhere. The results of jobs are receipts, too. The rest stays: an id that an ingest has made comes
    again in its old broker alone. What notes say of sums stays, too, since the sums of a copy have receipts of their
    own.
    """
    left = receipt.expires - now
    if receipt.state not in {APPLIED, DROPPED} or left <= 0:
        return None
    kind = receipt.key[:1]
    if kind in _ENVELOPES:
        if not read_note(receipt.note).attempt:
            return None
    elif kind not in _CLIENTS and not (kind == _CHANGES and ":" in receipt.key):
        return None
    return MovedReceipt(receipt.key, receipt.state, said_again(receipt.note), Millis(left))


def shard_of_copy(source: str) -> int:
    """The shard of counts by time that copies from this source write, and nobody else. So a copy writes what it found,
    however often it is repeated. Receipts that are copied name this number, too.
    """
    return _FIRST + int.from_bytes(sha256(source.encode()).digest()[:5])


def name_of_copy(origin: str) -> str:
    """The source of the marks of a copy. Marks of copies are not taken along by others."""
    return f"{_COPY}{origin}"


def is_of_copy(mark: Mark) -> bool:
    return mark.source.startswith(_COPY)


def marks_of(copy: str, source: str) -> str:
    """The source of marks that say how much of the marks of that source was copied."""
    return f"{copy}\n{source}"


def followed_until(followed: Sequence[Followed], now: WallMillis) -> Sequence[Followed]:
    """The rules that the commits of a source have followed until now. What comes later is counted elsewhere."""
    return [one._replace(until=min(one.until, now)) for one in followed]


class Origin(Source, Protocol):
    """What a copy reads. It may keep counting; nothing is written there."""

    def still(self) -> AbstractAsyncContextManager[None]:
        """Inside it, everything is of one instant. Datastore shows an instant for an hour."""
        ...

    def counts(self, prefix: str) -> AsyncIterator[Sequence[MovedCount]]:
        """The counts by time that are kept, those of one counter and period in a row."""
        ...

    def receipts(self) -> AsyncIterator[Sequence[MovedReceipt]]:
        """All receipts that a client's retry may meet."""
        ...

    def marks(self, prefix: str) -> AsyncIterator[Sequence[Mark]]:
        """All marks of imports to these counters."""
        ...

    def jobs(self) -> AsyncIterator[Sequence[MovedJob]]:
        """All jobs that somebody may start again."""
        ...

    async def followed(self) -> Sequence[Followed]:
        """See `Counts`."""
        ...

    async def waiting(self) -> int | None:
        """How many increments are accepted and not applied, so that no total has them yet. None if that is unknown."""
        ...

    def went_on(self) -> bool:
        """Whether something was written to the data since then, and can't be seen here."""
        ...
