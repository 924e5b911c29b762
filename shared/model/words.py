"""The words of the domain, from an increment to the reading that shows it: their allowed values, the envelope, and how
a sum finds its shard. Pure.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice, repeat
from math import inf
from typing import Any, Final, NamedTuple, TypeVar

from shared.model.buckets import BEGINNING, NEVER, BrokerMillis, ByTime, Instant, StoreMillis, WallMillis, WallSeconds
from shared.model.errors import CrowdedError, amount
from shared.model.receipts import Tally, key_of_envelope, key_of_increment, key_of_part, key_of_second_use

MAX_NAME_BYTES: Final = 400
ANY_NAME: Final = "-"
"""Any counter name: if one counter can be read exactly, all can."""
MAX_ID_BYTES: Final = 1_000
MAX_DELTA: Final = 2**53 - 1
"""The largest |delta| of one increment: every JSON client can represent it exactly."""
MAX_SUM: Final = 2**61
"""In an envelope: the largest |sum| of a counter's increments without ids, and the largest sum of |deltas| with ids."""
SHARD_FULL: Final = 2**62 - 1
"""Nothing is added to a shard with a larger |count|, so that it stays within int64."""

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f]")


def flaw_of_name(name: object) -> str | None:
    """Why this can't be a counter name; None if it can."""
    if type(name) is not str:
        return "must be a string"
    if not name:
        return "must not be empty"
    if not (name.isascii() and name.isprintable()) or len(name) > MAX_NAME_BYTES:
        if flaw := flaw_of_size(name, MAX_NAME_BYTES):
            return flaw
        if _CONTROLS.search(name):
            return "must not hold control characters"
    if name in {".", ".."} or (len(name) >= 4 and name.startswith("__") and name.endswith("__")):  # noqa: PLR2004 (____)
        return "must not be '.', '..' or of the form '__…__': these are reserved"
    return None


_LAST_NAME: Final = chr(0x10FFFF) * 101
"""Behind all names, and longer than any: names have at most 400 bytes."""


def last_name(prefix: str, until: str | None) -> str:
    """A bound: no name that starts with the prefix and is not behind `until` is behind it."""
    return prefix + _LAST_NAME if until is None else min(prefix + _LAST_NAME, until)


class Deltas(NamedTuple):
    """The deltas that a sender may send."""

    least: int = -MAX_DELTA
    most: int = MAX_DELTA

    def flaw_of(self, delta: int) -> str | None:
        """Why the sender may not send this delta; None if it may."""
        if self.least <= delta <= self.most:
            return None
        if self.least == self.most:
            return f"must be {self.most}"
        return f"must be between {self.least} and {self.most}"


ALL_DELTAS: Final = Deltas()


def flaw_of_delta(delta: object) -> str | None:
    """Why this can't be the delta of one increment; None if it can."""
    if type(delta) is not int and not (type(delta) is float and abs(delta) >= 2**63):  # as large ones are read
        return "must be an integer"
    if not -MAX_DELTA <= delta <= MAX_DELTA:
        return f"must be between -{MAX_DELTA} and {MAX_DELTA}"
    return None


def flaw_of_id(value: object) -> str | None:
    """Why this can't be the id of an increment or a batch; None if it can."""
    if type(value) is str and value.isascii() and 0 < len(value) <= MAX_ID_BYTES:
        return None
    return flaw_of_size(value, MAX_ID_BYTES, least=1)


def flaw_of_size(value: object, most: int, least: int = 0) -> str | None:
    """Why this is no text of `least` to `most` bytes; None if it is."""
    if type(value) is not str:
        return "must be a string"
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "must be valid Unicode: it holds a lone surrogate"
    if least <= size <= most:
        return None
    return f"must be {f'{least} to' if least else 'at most'} {most} bytes of UTF-8, is {size}"


class Increment(NamedTuple):
    """One event: add `delta` to `counter`. With an `id` it counts once, however often it is sent."""

    counter: str
    delta: int = 1
    id: str | None = None
    receipt: str = ""
    """Its receipt key, if the id is unknown."""

    @property
    def key(self) -> str:
        return self.receipt or key_of_increment(self.counter, self.id or "")


@dataclass(frozen=True, slots=True)
class Message:
    """What a broker carries."""

    data: bytes
    attributes: Mapping[str, str] = field(default_factory=dict)
    once: str | None = None
    """If it can, a broker drops a second message with the same `once` while the first is still there."""
    increments: int | None = field(default=None, compare=False)
    """The number of increments in it; None if unknown."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that is leased to one flusher."""

    token: str
    """Identifies the lease in ack, extend and give back. Each lease of a message has its own token."""
    message: Message
    message_id: str
    """The broker's own name of the message."""
    published: BrokerMillis
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter: a message that was buried."""

    delivery: Delivery
    """The original message, with its id and time. The token belongs to this look at the letter."""
    reason: str
    flaw: str | None = None
    """Why it is not the message that was published, and so can't be counted; None if it is."""


APPLIED: Final = "applied"
DEAD: Final = "dead"
"""Given up and not applied. It can be replayed or dropped."""
DROPPED: Final = "dropped"
"""Given up for good: it is never applied, and reads exclude it."""


class Receipt(NamedTuple):
    """Proof that an envelope, or an increment with an id, has been applied (or given up: `dead`, `dropped`)."""

    key: str
    expires: StoreMillis
    """Later than its id can come back. `NEVER` if it never expires."""
    state: str = APPLIED
    note: bytes = b""
    """See `Note`. For stores it is a few bytes, or tens of thousands."""
    counters: tuple[str, ...] = ()
    """The counters of a dead receipt with a body. Stores find it by each of them."""
    body: bytes = b""
    """The content of a dead receipt, see `dead_letters.Body`. Without a body only the dead letter has the content."""
    envelope: str = ""
    """The id of an applied envelope, where an ingest may look for it by `AppliedEnvelopes`."""

    @property
    def settled(self) -> bool:
        """Whether it makes overlay entries unnecessary: it is applied, dropped, or dead with a body."""
        return self.state in {APPLIED, DROPPED} or bool(self.body)

    def over(self, before: "Receipt") -> "Receipt":
        """The receipt that replaces a dead one. It keeps the note unless it has its own, and the body while dead."""
        note = self.note or before.note
        if self.state == DEAD and (self.body or before.body):
            return (self if self.body else before)._replace(expires=NEVER, note=note)
        return self._replace(expires=max(self.expires, before.expires), note=note, counters=(), body=b"")


class Receipts(NamedTuple):
    """The receipts that were found, and the instant of the look."""

    time: Instant
    found: Mapping[str, Receipt]


class ShardAdd(NamedTuple):
    """Add `delta` to one shard; the counter has at least `num_shards` from then on. `known`: see
    `was_compacted`.
    """

    counter: str
    shard: int
    delta: int
    num_shards: int
    known: int = 0


class FirstAdds(Sequence[ShardAdd]):
    """An add to shard 0 of each counter. A store that adds all of them by one statement takes `sums` as they are."""

    def __init__(self, sums: Mapping[str, int], num_shards: int, known: int) -> None:
        """`num_shards` and `known` of each: see `ShardAdd`."""
        self.sums = sums
        self.num_shards = num_shards
        self.known = known

    def __iter__(self) -> Iterator[ShardAdd]:
        return map(ShardAdd, self.sums, repeat(0), self.sums.values(), repeat(self.num_shards), repeat(self.known))

    def __getitem__(self, at: Any) -> Any:
        return tuple(self)[at]

    def __len__(self) -> int:
        return len(self.sums)


class Guard(NamedTuple):
    """What a store keeps about the last set, reset or delete of a counter."""

    version: int = 0
    """A new one after each of them, and after a deleted counter is removed; 0 before the first."""
    deleted: bool = False


class Mark(NamedTuple):
    """Records how much of a counter in a source has been added here: the sum of all imports."""

    source: str
    counter: str
    seen: int
    """The expected old value; 0 before the first import."""
    total: int
    """The new value: a different number. It may be beyond int64, as totals may."""

    @staticmethod
    def kept(total: int) -> int | bytes:
        """As stores keep it, whose numbers have 64 bits: otherwise as its digits. `int` reads both."""
        return total if -(2**63) <= total < 2**63 else b"%d" % total


MARKED: Final = 660_000
"""Milliseconds from `Overlay.mark` in which a commit must happen. Ten minutes of them are Datastore's: it can't be told
more exactly when a commit comes too late.
"""


class Bounds(NamedTuple):
    """The limits of a commit. Without any it may be applied whenever it arrives."""

    until: StoreMillis | None = None
    """The store does not apply the commit after this time."""
    messages: tuple[str, ...] = ()
    """Message ids. Where broker and store are one file, the commit is applied only while all of them exist."""
    epoch: str | None = None
    """The nonce of the overlay that the fleet must name when the commit is applied ("": none yet): it has the mark.
    None: any.
    """


@dataclass(frozen=True, slots=True)
class Commit:
    """Inserts receipts and adds to shards: all or nothing."""

    receipts: tuple[Receipt, ...]
    adds: Sequence[ShardAdd]
    revived: tuple[Receipt, ...] = ()
    """Receipts that exist as `dead` and become these, see `Receipt.over`."""
    tally: Tally = field(default_factory=Tally)
    guard: tuple[str, Guard] | None = None
    """The counter that a set changes, and its guard with the expected version and the new `deleted`."""
    marks: tuple[Mark, ...] = ()
    """The marks of an import. No two have the same source and counter."""
    bounds: Bounds = field(default_factory=Bounds)
    by_time: ByTime | None = None
    """The counts by time. None for what changes only totals, such as a set."""
    changes: tuple[str, ...] = ()
    """Counters that get another value, though nothing of it was pending: by a set, a job, an import or a drop. What is
    cached of them is void, see `Overlay.mark`. A flush has none, since what it adds was pending before.
    """

    def repeats(self) -> bool:
        keys = {receipt.key for receipt in (*self.receipts, *self.revived)}
        return len(keys) < len(self.receipts) + len(self.revived)


class Total(NamedTuple):
    """One counter in a snapshot of the store."""

    value: int
    shards: int
    """Its `num_shards`; 0 if there is no config."""
    guard: Guard = Guard()
    dead: "tuple[Entry, ...]" = ()
    """Its dead receipts as entries: accepted and not applied, so pending until they are replayed."""
    sure_until: StoreMillis = NEVER
    """If not `NEVER`: the time after which the receipt of an id in `dead` may have expired."""
    flaw: str = ""
    """Why the value is unknown: another application stored something that is not a whole number. Else empty."""
    updated: WallMillis = 0
    """When something was added to it last; 0 if that is not known."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The pending part of one envelope for one counter, from the overlay or from a dead receipt."""

    key: str
    """The receipt key of the envelope."""
    delta: int
    keyed: tuple[tuple[str, int], ...] = ()
    """The receipt key and delta of each increment with an id."""
    late: bool = False
    """Whether the envelope, or one of its ids, may have been published earlier as well."""
    confirmed: bool = True
    created: WallMillis = field(default=0, compare=False)

    def changes(self, settled: Collection[str] = ()) -> bool:
        """Whether it adds something, if these ids were used before. What adds nothing makes no counter."""
        return self.delta != 0 or any(delta and key not in settled for key, delta in self.keyed)


@dataclass(frozen=True, slots=True)
class View:
    """The overlay of one counter at one instant."""

    entries: Sequence[Entry] = ()
    floor: Instant = BEGINNING
    """Bases and snapshots from before this instant are void: an entry that they need may be gone."""
    version: int = 0
    """Equal versions of two views of this process mean equal views."""
    exact: bool = True
    """Whether it has the entries of all processes, so that reads may say `exact`."""
    epoch: str = ""
    """It changes when entries or floors may have been lost. Bases of another epoch are void."""


class Backlog(NamedTuple):
    """What was accepted and is not known to be applied."""

    increments: int = 0
    oldest: float = 0.0
    """Seconds for which the oldest of it has been waiting."""


class Reading(NamedTuple):
    """The answer to a read. `value` = `applied` + `pending`."""

    name: str
    applied: int
    pending: int
    exact: bool
    as_of: WallSeconds
    """The instant of the applied part."""
    shards: int
    exists: bool
    generation: int = 0
    """`Guard.version`: it changes with each set, reset or delete."""
    updated: WallMillis = 0
    """When the applied part changed last; 0 if nothing was applied."""

    @property
    def value(self) -> int:
        return self.applied + self.pending

    def is_unused_since(self, when: WallMillis) -> bool:
        """Whether it was not changed since then, and nothing is pending. False if nobody knows when it was changed."""
        return 0 < self.updated <= when and not self.pending


# How a sum finds its shard, and how shards are named.


def shard_key(counter: str, index: int) -> str:
    """The key name of a shard, as in Google's published model."""
    return f"shard-{counter}-{index}"


def choose(num_shards: int, full: frozenset[int], pick: Callable[[int], int]) -> int:
    """A random shard that is not full. If all are full it is the first behind them: others may have filled new ones."""
    if not full:
        return pick(num_shards) if num_shards > 1 else 0
    free = [index for index in range(num_shards) if index not in full]
    return free[pick(len(free))] if free else next(index for index in count(num_shards) if index not in full)


def add_to(
    counter: str, delta: int, known: int, *, new: int, full: frozenset[int], pick: Callable[[int], int]
) -> ShardAdd:
    """An add to a random shard that is not full. `known`: the counter's number of shards, or 0; it gets `new` then."""
    number = known or new
    shard = choose(number, full, pick)
    return ShardAdd(counter, shard, delta, max(number, shard + 1), known)


def was_compacted(add: ShardAdd, there: int) -> bool:
    """Whether a missing shard was removed by a compaction to `there` shards. If so it is not created again.

    `there` is 0 if there is no config: then all shards may be created.
    """
    return 0 < there <= add.shard < add.known


def number_for(add: ShardAdd, there: int) -> int:
    """The least number of shards that the counter must have when this add creates its shard; it has `there` now.

    It is not the number that was known before: the counter may have been compacted since.
    """
    return add.shard + 1 if there and add.known else add.num_shards


def moved(counter: str, staying: Sequence[int], leaving: int) -> list[int]:
    """How much of the sum of the leaving shards each staying shard gets. The first takes as much as it can.

    Raises `CrowdedError` if they can't hold all of it. A part may be beyond int64, where a shard is far on the other
    side of zero; what the shard holds with it never is.
    """
    given = []
    for held in staying:
        end = SHARD_FULL if leaving > 0 else -SHARD_FULL
        room = end - held
        part = 0 if (room > 0) != (leaving > 0) else min(room, leaving, key=abs)
        given.append(part)
        leaving -= part
    if leaving:
        raise CrowdedError(f"{counter} holds too much for {amount(len(staying), 'shard')}")
    return given


# The envelope, and how one that is too large is divided.


PART_ENTRIES: Final = 1_000
"""Constant for ever: the parts of a large foreign message must be the same on each delivery."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """What is applied together with one receipt: sums per counter, and, kept apart, the increments with an id of their
    own. A message is one envelope, or several if it is too large for one commit.
    """

    id: str
    """Its identity for ever: the receipt is made from it. Equal for each copy, and for all envelopes of one message.
    Ours are printable ASCII. Empty if only the receipt is known.
    """
    sums: Mapping[str, int]
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many increments stand in a sum, where that is not 1."""
    keyed: tuple[Increment, ...] = ()
    created: WallMillis = 0
    increments: int = -1
    """How many it carries. They are counted if the number is not given."""
    retried: bool = False
    """Its id is a client's, so another envelope of this id may have been published before."""
    attempt: str = ""
    """Where it is `retried`: which use of its id this is. Copies of one message have one; a second use has another."""
    foreign: bool = False
    """Somebody else published it, so no ingest has counted it as accepted."""
    receipt: str = field(default="", compare=False)
    """See `key`. Given where the id alone does not say it."""
    second: bool = False
    """It only says that its id was used again."""
    traceparent: str = field(default="", compare=False)
    """The span in which it was published, as its message says. It may be malformed."""
    patient: bool = field(default=False, compare=False)
    """Nobody waits until it is applied, or has read its counters lately. See `FlushPolicy`."""
    # What `ids` has made.
    _ids: tuple[str, ...] = field(default=(), init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.increments < 0:
            number = len(self.sums) + sum(self.counts.values()) - len(self.counts) + len(self.keyed)
            object.__setattr__(self, "increments", number)

    @property
    def key(self) -> str:
        """The key of its receipt. Made when first asked for: where the broker keeps the overlay, no ingest asks."""
        if not self.receipt:
            object.__setattr__(self, "receipt", key_of_envelope(self.id))
        return self.receipt

    @property
    def ids(self) -> tuple[str, ...]:
        """The keys of the receipts of `keyed`, in order. Made when first asked for, like `key`: each is a hash."""
        if len(self._ids) < len(self.keyed):
            object.__setattr__(self, "_ids", tuple([item.key for item in self.keyed]))
        return self._ids

    @property
    def is_minted(self) -> bool:
        """Whether an ingest made its id, and for it alone."""
        return not (self.retried or self.foreign or self.second)

    def receipt_keys(self) -> Iterator[str]:
        """The keys of its receipt, and of the receipts of the ids in it."""
        yield self.key
        yield from self.ids

    def counters(self) -> set[str]:
        return {*self.sums, *(item.counter for item in self.keyed)}

    def as_second_use(self) -> "Envelope":
        """The part of it that is committed if another attempt has used its id before."""
        key = key_of_second_use(self.key, self.attempt)
        return Envelope(
            self.id,
            {},
            foreign=self.foreign,
            receipt=key,
            increments=self.increments,
            second=True,
            traceparent=self.traceparent,
        )

    def in_place_of(self, attempt: str, increments: int) -> "Envelope":
        """The envelope to commit when a dead receipt becomes `applied`. That receipt stood for the use `attempt` of the
        id, and for this many increments. The applied receipt stands for the same, even if this envelope is another use
        of the id: otherwise the first use would count again. A receipt of a message that was given up for its age says
        neither.
        """
        return replace(self, attempt=attempt or self.attempt, increments=increments or self.increments)


def divided(whole: Envelope) -> tuple[Envelope, ...]:
    """The envelopes that stand in commits for a message: itself, or parts that depend on nothing but itself."""
    if len(whole.sums) + len(whole.keyed) <= PART_ENTRIES and sum([abs(one.delta) for one in whole.keyed]) <= MAX_SUM:
        return (whole,)
    parts = [replace(whole, sums=dict(sums), keyed=()) for sums in pages(sorted(whole.sums.items()), PART_ENTRIES)]
    keyed = batches(whole.keyed, lambda one: abs(one.delta), MAX_SUM, PART_ENTRIES)
    parts += [replace(whole, sums={}, keyed=tuple(some)) for some, _ in keyed]
    return tuple([_part(one, number) for number, one in enumerate(parts)])


def _part(one: Envelope, number: int) -> Envelope:
    counts = {name: one.counts[name] for name in one.sums if name in one.counts}
    return replace(one, counts=counts, receipt=key_of_part(one.id, number), increments=-1)


# Helpers: one remembers a bounded number of things, the others divide items. Pure.


K = TypeVar("K")
T = TypeVar("T")


class Lately(OrderedDict[K, T]):
    """Remembers the `most` keys that were set last."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: T) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)


def pages(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Divide items, in order, into lists of this many."""
    rest = iter(items)
    while page := [*islice(rest, size)]:
        yield page


def batches(
    items: Iterable[T], size_of: Callable[[T], int], most: int, most_items: float = inf
) -> Iterator[tuple[list[T], int]]:
    """Divide items, in order, into as few batches as their sizes allow. Yields each batch, and its size, which is at
    most `most`, unless its only item is larger.
    """
    batch: list[T] = []
    total = 0
    for item in items:
        size = size_of(item)
        if batch and (len(batch) == most_items or total + size > most):
            yield batch, total
            batch, total = [], 0
        batch.append(item)
        total += size
    if batch:
        yield batch, total
