"""The roles of a store, one by one, then all together. Code that uses a store names the narrowest role that it
needs.
"""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol, runtime_checkable

from shared.model.buckets import (
    NEVER,
    BucketAdd,
    Counts,
    Followed,
    Instant,
    StoreMillis,
    TimeBucket,
    WallMillis,
    WallSeconds,
)
from shared.model.fleet import Fleet
from shared.model.jobs import Done, Job, JobState, Lease, Task
from shared.model.receipts import Promise
from shared.model.words import Commit, Envelope, Mark, Receipt, Receipts, Total, View

# The roles of a store that readings and lists depend on: snapshots, and names of counters.


class Snapshot(Protocol):
    """The store at one instant."""

    time: Instant
    """Comparable with what `Commits.apply` returns, and with floors."""
    as_of: WallSeconds
    """The instant as a wall clock shows it, for people."""
    now: StoreMillis
    """The instant as `StoreClock.now` tells it, or later."""

    async def read(
        self, counters: Sequence[str], receipts: Collection[str]
    ) -> tuple[Mapping[str, Total], Collection[str]]:
        """The totals of all these counters, including what dead receipts say of them; and which receipts are settled
        (`Receipt.settled`) among these keys and the ids in `Total.dead`. All of it at this instant.
        """
        ...

    async def counts(self, counter: str, by: str, begin: WallMillis, end: WallMillis) -> Counts:
        """What was applied, of the buckets that begin in this range, at this instant. A commit adds to buckets and
        shards together. Buckets to which nothing was added may be missing.
        """
        ...


class Snapshots(Protocol):
    def snapshot(self) -> AbstractAsyncContextManager[Snapshot]:
        """One instant, no earlier than any `apply` of this object that had returned when the block began.

        For a few milliseconds it may lack what other processes have applied: floors tell when it does.
        """
        ...


class RankedStore(Snapshots, Protocol):
    """Also finds the largest counters."""

    async def largest(
        self, snapshot: Snapshot, prefixes: Sequence[str], limit: int, pending: Mapping[str, View]
    ) -> Sequence[str]:
        """All counters under each of the prefixes, by one of its own snapshots, that may be among the `limit` largest
        (of equal ones, by name), whatever part of these views is stored; and all with dead receipts. Counters that were
        deleted, and are 0, may be left out, and others may be there. `UnrankedError` if that would be too much work.
        Other tasks have a turn meanwhile.
        """
        ...


class Periods(Snapshots, Protocol):
    """Also closes periods of counts by time, so that what is read of them is final."""

    async def close_periods(self, until: WallMillis) -> None:
        """When this returns, no commit adds to a bucket that ended by `until`, which must not be in the future. What it
        would add there counts as of `until` instead. Snapshots that are opened from then on tell (`Counts.closed`).
        """
        ...


class CounterNames(Protocol):
    """Lists counters, and tells how many there are."""

    async def names(self, prefix: str, after: str, limit: int, until: str | None = None) -> Sequence[str]:
        """A page of counters that have a config, in the order of their UTF-8 bytes.

        They start with `prefix`, come behind `after`, and not behind `until`. Fewer than `limit` means that there are
        no more.
        """
        ...

    async def count(self, prefix: str, most: int) -> int:
        """The number of counters that have a config and start with `prefix`; `most` if there are more.

        Counters that other processes make or remove meanwhile may be missing or included. Other tasks have a turn
        while it counts.
        """
        ...

    async def dead_names(self, prefix: str, after: str, limit: int) -> Sequence[str]:
        """Like `names`, for counters in dead receipts that have a body. Some may have left their dead receipt since."""
        ...

    async def deleted_among(self, counters: Sequence[str]) -> Collection[str]:
        """The counters among these that are marked as deleted."""
        ...


@runtime_checkable
class NameSearch(Protocol):
    """Finds counters by a part of their names. Not every store can: Datastore would read them all."""

    async def names_with(self, part: str, prefix: str, after: str, limit: int) -> Sequence[str]:
        """Like `CounterNames.names`, for names that have the part anywhere. Case matters.

        Other tasks have a turn while it looks.
        """
        ...


# The roles of a store that writes depend on: its clock, receipts, promises and commits.


class StoreClock(Protocol):
    """The only clock that decides what has expired or is too old."""

    async def now(self) -> StoreMillis:
        """The store's time. It is never ahead of real time."""
        ...


class ReceiptBook(Protocol):
    async def receipts(self, keys: Collection[str]) -> Receipts:
        """The receipts that exist among these keys. The store is read after the call began."""
        ...

    async def receipts_from(self, prefix: str, after: str, limit: int) -> Sequence[Receipt]:
        """A page of the receipts whose keys start with `prefix` and come behind `after`, in the order of their bytes.
        Fewer than `limit` mean that there are no more.
        """
        ...

    async def dead(self, after: str, limit: int) -> Sequence[Receipt]:
        """A page of dead receipts that have a body, in an order of the store.

        The page starts behind the key `after` and has at most `limit` receipts, or fewer if they are large. An empty
        page means that there are no more.
        """
        ...


@runtime_checkable
class AppliedEnvelopes(Protocol):
    """Finds out which envelopes of an ingest are applied, with less work than reading the receipt of each."""

    async def applied(self, first: str, last: str, limit: int) -> tuple[Instant, Collection[str]]:
        """The keys of receipts whose `envelope` is between these ids. It may leave some out. None of them was
        committed after the instant.
        """
        ...


class PromiseBook(StoreClock, Protocol):
    """Keeps how long flushers promised that their receipts live."""

    async def promises(self) -> Sequence[Promise]:
        """The promises of all flushers, including those that have ended."""
        ...

    async def promise(self, one: Promise) -> None:
        """Keep it. If one of the same `reach` and `life` exists, raise its `seen` instead."""
        ...


class Commits(PromiseBook, ReceiptBook, Protocol):
    """Applies commits: all of one, or nothing."""

    async def apply(self, commit: Commit) -> Instant:
        """Insert all receipts, change those to be revived and add to all shards, or do nothing. Returns the instant
        of the commit.

        A config is made or raised together with its shard, and never lowered. `Receipt.over` says what becomes of a
        receipt that is revived. Every later snapshot finds a dead receipt with a body by its counters, until it is
        applied or dropped; such a receipt never expires.

        Raises:
        `AlreadyAppliedError` if a receipt exists, in any state, or if one to be revived does not exist as `dead`;
        `ChangedError` if a guard version or an import mark differs from the expected one (either, if both do), or the
        epoch does;
        `ShrunkError` if a counter has fewer shards than `known`, and the chosen shard is not one of them;
        `ShardFullError` if a shard is too near the end of int64, or may be, as far as the store knows without reading;
        `LateError` if it might be applied after its `until`;
        `GoneError` if some of its messages are gone;
        `RefusedError` if the store will never accept the commit.
        """
        ...

    async def marks(self, source: str, counters: Sequence[str]) -> Mapping[str, int]:
        """How much of an import's source has been added to each counter; counters without a mark are left out.

        A set or a delete does not change a mark.
        """
        ...


# The role of a store that decides how many shards a counter has.


class ShardNumbers(StoreClock, Protocol):
    """Reads and changes the number of shards of counters."""

    async def shards(self, counters: Sequence[str]) -> Mapping[str, int]:
        """`num_shards` of those of the counters that have a config."""
        ...

    async def raise_shards(self, counter: str, num_shards: int, *, make: bool = True) -> int:
        """Have at least that many shards; returns the number now.

        A counter without a config gets one, unless `make` is false: then nothing happens and the number is 0.
        """
        ...

    async def compact(self, counter: str, num_shards: int, receipt: Receipt) -> int:
        """Have fewer shards: move what the highest shards hold to the others, in one commit with the receipt.

        Returns the number now, which is above `num_shards` if not all of them fit into one commit. Nothing happens if
        the counter has no more than that. Concurrent adds are not lost.

        Raises:
        `ContendedError` if somebody writes to the counter meanwhile; nothing was done;
        `CrowdedError` if so few shards can't hold the value;
        `AlreadyAppliedError` if the receipt exists, so it was done before.
        """
        ...

    def grown(self, shards: int) -> AsyncIterator[Sequence[str]]:
        """Pages of counters that have more shards than that. A counter that changes meanwhile may be missed."""
        ...

    async def ages(self, shards: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], float]:
        """Seconds since each of these shards was last written. Shards that do not exist, or whose age the store does
        not know, are left out.
        """
        ...


# The ports of jobs: one keeps their state, the other hands out their tasks.


class Jobs(Protocol):
    """Keeps jobs, the results of their tasks, and their progress."""

    async def create(self, job: Job) -> tuple[JobState, bool]:
        """Keep the job, with one open task, unless its id exists. Returns the job of that id and whether it is new.
        Raises `ShareError` if too many jobs of its owner run (`job_shares`), and `ShareError` or `StorageFullError` if
        there is no room for an export.
        """
        ...

    async def get(self, job: str) -> JobState | None:
        """The job, or None if it does not exist. Numbers may lag a little while it runs, but an `open` of 0 is true."""
        ...

    async def latest(self, owner: str, limit: int) -> Sequence[JobState]:
        """Up to `limit` jobs of this owner, or without an owner if that is empty; those that began last come first."""
        ...

    async def record(self, done: Done) -> Done | None:
        """Keep the result of a task and add it to the job's progress, in one step. If the task has a result already,
        nothing changes. Returns the result that is kept, or None if the job does not exist. Raises `RefusedError` if
        there is no room for the chunk.
        """
        ...

    async def recorded(self, job: str, begins: Collection[str]) -> Mapping[str, Done]:
        """The results that are kept of the tasks that begin at these names, by name. Chunks may be left out."""
        ...

    async def end(self, job: str, state: str, when: WallMillis, why: str = "") -> None:
        """Set the state of a job that runs. Nothing changes if it has ended before."""
        ...

    async def chunks(self, job: str, after: str, limit: int) -> Sequence[tuple[str, bytes]]:
        """A page of the job's recorded tasks, in order: where each begins, and its chunk.

        The page starts behind `after`, or with the first task if `after` is empty. An empty page means that there are
        no more.
        """
        ...

    async def discard(self, job: str, when: WallMillis, why: str, limit: int) -> int:
        """Delete up to `limit` results of the job's tasks, and give their room back. Returns how many were deleted; 0
        means that none is left. The job stays. It is marked as failed first, even if it was done.
        """
        ...

    async def sweep(self, now: StoreMillis, limit: int) -> int:
        """Delete up to `limit` tasks of jobs that expired before `now`, and jobs without tasks. Returns how many
        rows were deleted; fewer than `limit` does not mean that none is left. A job is marked as failed before its
        first task is deleted, since its results are incomplete from then on.
        """
        ...


class Tasks(Protocol):
    """Hands out tasks: each at least once, in no promised order, to one holder at a time. Clients can't add any."""

    async def publish(self, tasks: Sequence[Task]) -> None:
        """Return when all are as durable as this queue is. After an error any of them may have been published."""
        ...

    async def pull(self, limit: int, wait: float) -> Sequence[Lease]:
        """Lease tasks, waiting up to `wait` seconds for the first. Returns none if none came, or a little early. A task
        that was given back, or whose lease ended, is handed out again.
        """
        ...

    async def extend(self, tokens: Sequence[str]) -> None:
        """Restart these leases at their full length. Leases that were lost stay lost without an error."""
        ...

    async def ack(self, tokens: Sequence[str]) -> None:
        """Forget these tasks. A task whose lease was lost is handed out again."""
        ...

    async def give_back(self, tokens: Sequence[str]) -> None:
        """End these leases now. The tasks are handed out again at once."""
        ...


# The role of a store that an audit depends on, and the types of what it reads.


class Balance(NamedTuple):
    """The balance of a broker and a store in one file, since it was made."""

    pending: int
    """Increments in messages that are not buried."""
    drift: int
    """Accepted - applied - deduplicated - dead-lettered - pending: 0 at rest, less between a commit and its ack."""
    dead: int = 0
    """Increments in dead letters."""


class StoredReceipt(NamedTuple):
    """A receipt as a store keeps it, and the instant of the commit that wrote it.

    A store may not keep the instant (then `BEGINNING`) of an id without a note.
    """

    receipt: Receipt
    time: Instant


class Config(NamedTuple):
    """What a store knows about a counter, apart from its shards."""

    counter: str
    num_shards: int
    carried: int
    """The sum that its deleted receipts stood for."""
    since: WallSeconds | None
    """When it was made (0 if unknown). None where `carried` includes all deleted receipts."""
    flaw: str = ""
    """Why its number of shards is unknown."""


class Shard(NamedTuple):
    """One shard, whether or not readers look at it."""

    counter: str
    number: int
    held: int
    written: Instant
    """The instant of the last write by any program; `BEGINNING` where only Countersink can write."""
    flaw: str = ""
    """Why its count is unknown."""


class BucketShard(NamedTuple):
    """One shard of a count by time."""

    bucket: TimeBucket
    held: int
    flaw: str = ""
    """Why its count is unknown."""
    shard: int = 0
    expires: StoreMillis = NEVER
    """When it is deleted, or later."""


class AuditData(Protocol):
    """All that a store holds at one instant, in pages, so that it need not fit into memory."""

    snapshot: Snapshot
    """A snapshot of the same instant."""

    def receipts(self) -> AsyncIterator[Sequence[StoredReceipt]]:
        """All receipts, in the order of their keys."""
        ...

    def configs(self) -> AsyncIterator[Sequence[Config]]:
        """All configs, in an order of the store. Includes counters that are known only from deleted receipts."""
        ...

    def shards(self) -> AsyncIterator[Sequence[Shard]]:
        """All shards, in an order of the store."""
        ...

    def buckets(self) -> AsyncIterator[Sequence[BucketShard]]:
        """All shards of counts by time, in an order of the store. Those that have expired may be among them."""
        ...

    def marks(self) -> AsyncIterator[Sequence[Mark]]:
        """All marks of imports, in an order of the store."""
        ...

    def jobs(self) -> AsyncIterator[Sequence[JobState]]:
        """All jobs that are kept, in an order of the store."""
        ...

    async def followed(self) -> Sequence[Followed]:
        """See `Counts`."""
        ...


class Accounts(StoreClock, Protocol):
    """What an audit reads from a store."""

    def audit_data(self) -> AbstractAsyncContextManager[AuditData]:
        """Open everything at one instant, chosen as for `Snapshots.snapshot`. Reading it may take long."""
        ...


class Cleanup(StoreClock, Protocol):
    """Deletes what nobody needs any more."""

    async def deleted(self, after: str, limit: int) -> Sequence[str]:
        """A page of counters that are marked as deleted, in an order of the store, behind `after`."""
        ...

    async def remove(self, counter: str) -> bool:
        """Delete the shards and the config of a counter that is marked as deleted, and take its mark off, which gives
        the guard another version. Returns whether it did.

        Nothing happens unless the counter is marked and its shards sum to zero. Concurrent adds are not lost.
        """
        ...

    async def sweep(self, now: StoreMillis, limit: int) -> int:
        """Delete up to `limit` receipts that expired before `now` and are not needed; returns how many.

        A number below `limit` does not mean that none is left. The numbers of deleted receipts are added to
        `Config.carried`, unless the server's own expiry deleted them.
        """
        ...


class Store(Commits, Periods, RankedStore, CounterNames, ShardNumbers, Accounts, Cleanup, Protocol):
    """Holds shards, configs and receipts."""


class Arrivals(Protocol):
    """Takes what a copy brings from another store and commits can't write."""

    async def follow(self, followed: Sequence[Followed]) -> None:
        """Remember which rules the commits of the other store followed, besides those of this one."""
        ...

    async def held(self, counts: Sequence[BucketAdd]) -> Sequence[int | None]:
        """What the shards of these counts hold; None where they are missing."""
        ...

    async def put(self, counts: Sequence[BucketAdd]) -> None:
        """Write counts by time in place of what their shards hold. No flusher may write to these shards."""
        ...

    async def keep(self, jobs: Sequence[JobState]) -> None:
        """Keep these jobs, which have ended, unless their ids exist."""
        ...


# The ports of the fleet: the entity in the store that says which readings may be exact, and the rows of a spool.


class FleetLook(NamedTuple):
    """The fleet at one instant within the call."""

    fleet: Fleet
    changed: Instant
    """The instant of its last change; `BEGINNING` if there is no entity."""
    now: StoreMillis
    """The store's clock, or a little less."""


class Left(NamedTuple):
    """What a member leaves behind that stops in good order."""

    member: str
    receipts: Collection[str]
    """The receipt keys of everything that was confirmed here and is not known to be settled."""


class FleetBook(Protocol):
    """Keeps the fleet. All methods raise `TransientError` if the store does not answer; a change may have happened."""

    async def look(self) -> FleetLook:
        """Read the fleet with strong consistency. If there is no entity, it has version 0 and no members."""
        ...

    async def change(self, step: Callable[[Fleet, StoreMillis], Fleet | None], left: Left | None = None) -> FleetLook:
        """Call `step` with the fleet and the store's clock, write what it returns, and return the fleet then.

        Nothing is written if `step` returns None. The change is atomic, so `step` may be called several times. This
        method raises the version. If there is no entity, `step` gets the result of `fleet.first`.

        `left` is written in the same change, and goes with the one that removes the member's record.
        """
        ...

    async def left_by(self, member: str) -> Collection[str] | None:
        """The receipts that the member listed when it stopped; None if there is no such list."""
        ...


class Rows(Protocol):
    """The rows that a spool file held at one instant."""

    unreadable: bool | None
    """Whether some rows can't be read; None until all were read."""

    def read(self) -> AsyncIterator[tuple[Envelope, StoreMillis]]:
        """All rows and when they were taken, oldest first. If you stop before the end, the next call
        begins with the last row that you got.
        """
        ...

    async def all_forwarded(self) -> bool:
        """Whether all rows have been forwarded."""
        ...


class SpoolFile(Protocol):
    """A spool file. Several processes may use it, at once or one after the other."""

    @property
    def id(self) -> str:
        """The id of the file, which never changes."""
        ...

    def hold(self, member: str) -> None:
        """From now on this process adds rows as that member."""
        ...

    def alive(self) -> Collection[str]:
        """The members that may add rows."""
        ...

    def rows(self) -> Rows:
        """The rows that exist now."""
        ...
