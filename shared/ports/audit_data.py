"""The role of a store that an audit depends on, and the types of what it reads."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from shared.model.buckets import Followed, TimeBucket
from shared.model.times import Instant, WallSeconds
from shared.model.words import Receipt
from shared.ports.commits import StoreClock


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

    A store may keep neither the whole key nor the instant (then `BEGINNING`) of an id without a note.
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


class AuditData(Protocol):
    """All that a store holds at one instant, in pages, so that it need not fit into memory."""

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

    async def followed(self) -> Sequence[Followed]:
        """See `Counts`."""
        ...


class Accounts(StoreClock, Protocol):
    """What an audit reads from a store."""

    def audit_data(self) -> AbstractAsyncContextManager[AuditData]:
        """Open everything at one instant, chosen as for `Snapshots.snapshot`. Reading it may take long."""
        ...
