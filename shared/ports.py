"""The ports: what the core needs of a broker, a store and an overlay, and may rely on from every adapter.

Each is held to these sentences by one contract suite (tests/contracts), which every adapter passes.
All methods raise `TransientError` when the outcome is unknown or a later try may succeed.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from shared.books import Books
from shared.promises import Promise
from shared.words import Commit, Delivery, Envelope, Letter, Message, Receipt, Receipts, Total, View


class Publisher(Protocol):
    """Hands messages to the broker."""

    async def publish(self, messages: Sequence[Message]) -> None:
        """Return when all messages are durable.

        After an error any of them may have been published, at once or later, so a retry can publish twice.
        `OverloadedError`, `StorageFullError` and `UnkeptError`: none was, and none will be. `TooLargeError`: none was,
        and one of them never can be.
        """
        ...

    async def check(self) -> None:
        """Raise what a publish would raise now."""
        ...


class Subscription(Protocol):
    """Leases messages to flushers: at least once, in no promised order, to one holder at a time."""

    async def pull(self, limit: int, max_bytes: int, wait: float) -> Sequence[Delivery]:
        """Lease at least one message, waiting up to `wait` seconds; none if none came, or a little early.

        At most `limit` of them, and of `max_bytes` of data together unless the first alone is larger. A message whose
        lease ran out, or that was given back, is delivered again with a new token, and a higher `attempt` as far as
        the broker, or this object, knows of the earlier ones.
        """
        ...

    async def extend(self, tokens: Sequence[str], seconds: float) -> None:
        """Have these leases end `seconds` from now, 600 at most. A lease that was lost stays lost; that is no error."""
        ...

    async def ack(self, tokens: Sequence[str], floor: int) -> None:
        """Done: forget these messages. A lease that was lost stays lost, and its message will come again.

        `floor` is the store's time at which all of them are known to be applied; an overlay that lives in the broker
        drops their entries and raises the floor of their counters in the same step.
        """
        ...

    async def give_back(self, tokens: Sequence[str]) -> None:
        """End these leases now: the messages are delivered again at once."""
        ...

    async def bury(self, delivery: Delivery, reason: str) -> None:
        """Put the message among the dead letters with the reason, then forget it. Safe to do twice.

        What it carries stays pending for readers: it was accepted, and it is not applied.
        """
        ...


class DeadLetters(Protocol):
    """One way through what was buried. Where the broker has leases, it holds what it hands out; elsewhere another one
    may be handed the same. Receipts tell.
    """

    complete: bool
    """Whether what is found is all there is."""

    async def pull(self, limit: int, max_bytes: int) -> Sequence[Letter]:
        """Some that this object has not handed out yet; none if it finds no more. Limits as for a `Subscription`.

        A message that was buried twice may be two letters.
        """
        ...

    async def ack(self, tokens: Sequence[str], floor: int) -> None:
        """Forget these for good. Safe to do twice. `floor` and overlay as for a `Subscription`."""
        ...

    async def bury(self, delivery: Delivery, reason: str) -> None:
        """It stays, with this reason. This object does not hand it out again."""
        ...

    async def close(self) -> None:
        """Give back what was handed out and is not forgotten: others find it at once."""
        ...


class Snapshot(Protocol):
    """The store at one instant."""

    time: int
    """The store's time of it: larger is later. Comparable with what `Store.apply` returns, and with floors."""
    as_of: float
    """The same instant in seconds since 1970, for people."""
    now: int
    """The same instant as `Store.now` tells it, or later."""
    exact: bool
    """Whether it is of just that instant. Otherwise it may hold more, so that readings are exact only at rest."""

    async def read(
        self, counters: Sequence[str], receipts: Collection[str]
    ) -> tuple[Mapping[str, Total], Collection[str]]:
        """Totals of all the counters, with what dead receipts say of them; and which receipts are settled
        (`Receipt.settled`), of these keys and of the ids in `Total.dead`: all at this instant.
        """
        ...


class Store(Protocol):
    """Holds shards, configs and receipts."""

    @property
    def parallel(self) -> bool:
        """Whether more shards of a counter take more writes."""
        ...

    async def now(self) -> int:
        """The store's time in ms: it alone decides what has expired or is too old. It is never ahead of time."""
        ...

    async def promises(self) -> Sequence[Promise]:
        """Of all flushers, also those that are gone."""
        ...

    async def promise(self, one: Promise) -> None:
        """Keep it, or raise the `seen` of the one that is there: of equal `reach` and `life`."""
        ...

    async def apply(self, commit: Commit) -> int:
        """Insert all receipts, change those to be revived and add to all shards, or do nothing; the time of the commit.

        Raises `AlreadyAppliedError` if any receipt exists, in whatever state, or one to be revived does not, as `dead`;
        `ChangedError` if a guard has another version than it must have, or a mark another number (either if both do);
        `ShrunkError` if a counter has fewer shards than are `known`, and the shard that was chosen is none of them;
        `ShardFullError` if a shard is too near the end of int64, or may be, as far as the store knows without a look;
        `LateError` if it might be applied after its `until`; `GoneError` if some of its messages are gone;
        `RefusedError` if the store will never take the commit. A config is made or raised with its shard, never
        lowered. What becomes of a receipt that is revived says `Receipt.over`. A dead receipt with a body is found
        by its counters in every later snapshot, until it is applied or dropped; it never expires.
        """
        ...

    def snapshot(self) -> AbstractAsyncContextManager[Snapshot]:
        """One instant, not before any `apply` of this object that returned before this was entered. What others have
        applied it may lack for some milliseconds: floors tell.
        """
        ...

    def books(self) -> AbstractAsyncContextManager[Books]:
        """As `snapshot`, of everything; for audits, which may take their time."""
        ...

    async def receipts(self, keys: Collection[str]) -> Receipts:
        """Those of the receipts that exist; the look is not earlier than the call."""
        ...

    async def dead(self, after: str, limit: int) -> Sequence[Receipt]:
        """Dead receipts with a body, in an order of the store; those after that key, at most `limit`, or fewer if they
        are large. None: there are no more.
        """
        ...

    async def shards(self, counters: Sequence[str]) -> Mapping[str, int]:
        """`num_shards` of those of the counters that have a config."""
        ...

    async def marks(self, source: str, counters: Sequence[str]) -> Mapping[str, int]:
        """How much of the source has been added to those of the counters that it was ever added to.

        Neither a set nor a delete changes that.
        """
        ...

    async def raise_shards(self, counter: str, num_shards: int, *, make: bool = True) -> int:
        """Have at least that many shards; the number now. Unless `make`, none where there was no config: 0."""
        ...

    async def compact(self, counter: str, num_shards: int, receipt: Receipt) -> int:
        """Have fewer shards: what the highest hold goes to the others, in one commit with the receipt; how many there
        are now, which is more than that if not all fit into one commit. Nothing is done where there are no more.
        Whoever adds meanwhile is not lost. `ContendedError`: somebody does, and nothing was done. `CrowdedError`: so
        few can't hold it. `AlreadyAppliedError`: the receipt is there, so it was done.
        """
        ...

    def grown(self, shards: int) -> AsyncIterator[Sequence[str]]:
        """Counters of more shards than that, a page at a time. One that changes meanwhile may be missed."""
        ...

    async def ages(self, shards: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], float]:
        """Seconds since those of the shards that exist were last written, as far as the store knows."""
        ...

    async def deleted(self, after: str, limit: int) -> Sequence[str]:
        """Counters that are marked as deleted, in an order of the store; those after that one, at most `limit`."""
        ...

    async def deleted_among(self, counters: Sequence[str]) -> Collection[str]:
        """Those of the counters that are marked as deleted."""
        ...

    async def remove(self, counter: str) -> bool:
        """If the counter is marked as deleted, and its shards hold nothing together: delete them and its config, and
        take the mark off, which gives the guard another version, or do nothing. Whether it did. Whoever adds to it
        meanwhile is not lost.
        """
        ...

    async def names(self, prefix: str, after: str, limit: int, until: str | None = None) -> Sequence[str]:
        """Counters with a config that start with `prefix`, come after `after`, and not after `until`, in the order of
        their UTF-8 bytes: the first `limit` of them. Fewer means that there are no more.
        """
        ...

    async def dead_names(self, prefix: str, after: str, limit: int) -> Sequence[str]:
        """As `names`: counters that dead receipts with a body stand for, and perhaps some of what they stood for."""
        ...

    async def sweep(self, now: int, limit: int) -> int:
        """Delete up to `limit` receipts that expired before `now` and are not needed; how many it deleted. Fewer does
        not mean that none is left. Else than by a server's own deletion, what they say is carried on, see `Config`.
        """
        ...


class Overlay(Protocol):
    """Accepted envelopes that are not known to be applied: entries and a floor per counter."""

    async def view(self, counters: Sequence[str]) -> Mapping[str, View]:
        """Entries and floor of each of the counters, all at one instant within the call."""
        ...

    async def names(self, prefix: str) -> Sequence[str]:
        """Counters with an entry that start with the prefix, in any order."""
        ...

    async def holds(self, keys: Collection[str]) -> Collection[str]:
        """Those of the envelopes' receipt keys that have an entry."""
        ...

    def entered(self, envelopes: Sequence[Envelope]) -> AbstractAsyncContextManager[None]:
        """Publish them inside it, all or none at once.

        Their entries are there, unconfirmed, when the block begins; confirmed when it has ended well; withdrawn when it
        fails, even if something was published: whoever tries again makes entries of its own. An entry that is gone when
        it is to be confirmed is made anew, late.
        """
        ...

    def check(self) -> None:
        """Raise what `entered` would raise now."""
        ...

    async def settle(self, applied: Collection[str], time: int) -> None:
        """These receipts of envelopes are `settled`, seen at `time` of the store: their counters' floors rise to it,
        then their entries go.
        """
        ...

    async def raise_floor(self, counter: str, time: int) -> None:
        """What was read of the counter before `time` of the store is void, for all processes, when this returns.

        Its entries stay. `TransientError`: nobody knows.
        """
        ...

    async def unsettled(self, limit: int) -> Collection[str]:
        """Receipt keys of entries that nobody has settled for long. Named again after a while that doubles."""
        ...
