"""Counters that come from elsewhere: the published variants of other applications' data, and what a copy takes along
from one store to another besides totals. Pure.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from enum import Enum, auto
from hashlib import sha256
from typing import Final, NamedTuple, Protocol

from shared.model.buckets import BucketAdd, Followed, Millis, StoreMillis, TimeBucket, WallMillis
from shared.model.jobs import EXPORT, JobState
from shared.model.receipts import copied_from, read_note, said_again
from shared.model.words import APPLIED, DEAD, DROPPED, Mark, Receipt

MOST_FOREIGN_SHARDS: Final = 10_000
"""Shards of one counter that are looked for. More would be a mistake."""


class By(Enum):
    """How the application's own code finds the shards of one counter."""

    CONFIG = auto()
    """Shards are found by keys that follow from the number in the counter's config."""
    LABEL = auto()
    """Shards are found by a property that holds the counter's name."""
    PARENT = auto()
    """Shards are found by the parent: all entities below the counter's key."""
    KIND = auto()
    """Shards are found by their kind, which is named after the counter."""
    ALL = auto()
    """All entities of the kind: there is only one counter."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One published variant."""

    name: str
    what: str
    by: By
    shard: str = ""
    """Kind of the shards; with `By.KIND` the beginning of the kind. Empty: the user must name it."""
    config: str = ""
    label: str = ""
    count: str = "count"
    number: str = ""
    """The property of the config that holds the number of shards."""
    shards: int = 0
    """The number of shards if the config does not hold it."""
    renamed: bool = False
    """Whether the user may name another kind for the shards."""

    def kinds(self, kind: str = "") -> tuple[str, ...]:
        """All kinds that its code reads and writes."""
        return tuple(one for one in (self.config, kind or self.shard) if one)


_CONFIG: Final = "GeneralCounterShardConfig"
_SHARD: Final = "GeneralCounterShard"

VARIANTS: Final = {
    one.name: one
    for one in (
        Variant("ndb", "Google's, Python ndb", By.CONFIG, _SHARD, _CONFIG, number="num_shards", shards=20),
        Variant("ndb-2013", "ndb of January 2013: shards are children of their counter", By.PARENT, _SHARD, _CONFIG),
        Variant("db", "Google's of 2008, Python db", By.LABEL, _SHARD, _CONFIG, "name"),
        Variant("go", "Google's, Go", By.LABEL, _SHARD, _CONFIG, "Name", "Count"),
        Variant("java", "Google's, Java, where each counter has its own kind", By.KIND, "CounterShard_", "Counter"),
        Variant("php", "php-gds; name its kind with --kind", By.LABEL, label="target", renamed=True),
        Variant("acc", "Acc of 2008", By.LABEL, "AccVals", label="cluster", renamed=True),
        Variant(
            "simple", "one counter without a name; name it with --name", By.ALL, "SimpleCounterShard", renamed=True
        ),
    )
}


REDIS: Final = "redis"
FIRESTORE: Final = "firestore-counter"
OTHERS: Final = {
    EXPORT: "a file that countersink map --export wrote",
    REDIS: "whole numbers in keys of Redis, and in fields of hashes",
    FIRESTORE: "Firebase's extension; name what counts with --field",
}
"""What else can be imported: it is not in Datastore."""


class Foreign(NamedTuple):
    """A counter of another application."""

    name: str
    total: int = 0
    """The value that the application's own code would return."""
    flaw: str = ""
    """Why the total is unknown; empty if it is known."""


class Source(Protocol):
    """Another application's data. It may keep counting; nothing is written there."""

    name: str
    """Identifies the data for ever; no other data has the same name."""

    def counters(self, prefix: str) -> AsyncGenerator[Foreign | str, None]:
        """All counters whose names start with the prefix, each once. A string among them describes something that the
        application's own code does not count.

        The total of a counter that changes meanwhile is one that it may have had. If it only grows, the total is no
        less than before the call.
        """
        ...

    async def counter(self, name: str) -> Foreign | None:
        """One counter as it is now; None if it does not exist."""
        ...


# What a copy takes along, besides totals. Each store has a clock of its own, so what expires says how much of its life
# is left.


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

    def counted_twice(self, there: Receipt, source: int) -> str | None:
        """What is wrong if what this receipt stands for counts in both stores, or would after a replay; None if nothing
        is. `source`: from where a receipt may have been copied.
        """
        if self.state != APPLIED or self.key[0] in _SECOND_USE + _CHANGES:
            return None
        if there.state == DEAD:
            return (
                "a counted request is a dead letter in the target, and a replay would count it twice: drop it there,"
                f" with countersink dlq drop {self.key}"
            )
        if there.state == APPLIED and read_note(there.note).copied != source:
            return f"an id was counted in both places, so it counts twice: receipt {self.key}"
        return None


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
