"""The role of a store that an audit depends on, and the words of what it reads."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from shared.model.words import Receipt
from shared.ports.commits import StoreClock


class Kept(NamedTuple):
    """A receipt as a store keeps it, and the store's time of the commit that wrote it."""

    receipt: Receipt
    time: int


class Config(NamedTuple):
    """What a store says of a counter beside its shards."""

    counter: str
    num_shards: int
    carried: int
    """What receipts that have been deleted said of it."""
    since: float | None
    """When it was made (seconds since 1970; 0 if nobody knows), where `carried` does not hold all that was deleted."""
    flaw: str = ""
    """Why nobody knows its number of shards."""


class Shard(NamedTuple):
    """One shard, whether or not readers look at it."""

    counter: str
    number: int
    held: int
    written: int
    """The store's time of the last write, whoever wrote; 0 where nobody but us can."""
    flaw: str = ""
    """Why nobody knows what it holds."""


class Books(Protocol):
    """All that a store holds, at one instant, a page at a time, so that it need not fit into memory."""

    exact: bool
    """Whether it is of one instant. Otherwise what is written meanwhile may be seen in part."""

    def receipts(self) -> AsyncIterator[Sequence[Kept]]:
        """In the order of their keys."""
        ...

    def configs(self) -> AsyncIterator[Sequence[Config]]:
        """In an order of the store. Also counters of which only deleted receipts are known."""
        ...

    def shards(self) -> AsyncIterator[Sequence[Shard]]:
        """In an order of the store."""
        ...


class Accounts(StoreClock, Protocol):
    """Opens the books."""

    def books(self) -> AbstractAsyncContextManager[Books]:
        """Everything at one instant, as for `Snapshots.snapshot`. It may take its time."""
        ...
