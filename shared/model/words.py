"""The words of the domain, and which values of them are allowed."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from shared.model.bounds import Bounds
from shared.model.foreign import Mark
from shared.model.receipts import key_of_increment

MAX_NAME_BYTES: Final = 400
MAX_ID_BYTES: Final = 1_000
MAX_DELTA: Final = 2**53 - 1
"""The largest |delta| of one increment: what every JSON client can say exactly."""
MAX_SUM: Final = 2**61
"""The largest |sum| of a counter's increments without an id in an envelope, and of the |deltas| with one."""
SHARD_FULL: Final = 2**62 - 1
"""A shard of a larger |count| is not added to any more, so that it can't leave int64."""

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f]")


def flaw_of_name(name: object) -> str | None:
    """Why this can't be a counter name; None if it can."""
    if type(name) is not str:
        return "must be a string"
    if not name:
        return "must not be empty"
    if not (name.isascii() and name.isprintable()):
        try:
            size = len(name.encode())
        except UnicodeEncodeError:
            return "must be valid Unicode: it holds a lone surrogate"
        if _CONTROLS.search(name):
            return "must not hold control characters"
    else:
        size = len(name)
    if size > MAX_NAME_BYTES:
        return f"must be at most {MAX_NAME_BYTES} bytes of UTF-8, is {size}"
    if name in {".", ".."} or (len(name) >= 4 and name.startswith("__") and name.endswith("__")):  # noqa: PLR2004 (____)
        return "must not be '.', '..' or of the form '__…__': these are reserved"
    return None


def flaw_of_delta(delta: object) -> str | None:
    """Why this can't be the delta of one increment; None if it can."""
    if type(delta) is not int and not (type(delta) is float and abs(delta) >= 2**63):  # as large ones are read
        return "must be an integer"
    if not -MAX_DELTA <= delta <= MAX_DELTA:
        return f"must be between -{MAX_DELTA} and {MAX_DELTA}"
    return None


def flaw_of_id(value: object) -> str | None:
    """Why this can't be the id of an increment or a batch; None if it can."""
    if type(value) is not str:
        return "must be a string"
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "must be valid Unicode: it holds a lone surrogate"
    if not 1 <= size <= MAX_ID_BYTES:
        return f"must be 1 to {MAX_ID_BYTES} bytes of UTF-8, is {size}"
    return None


class Increment(NamedTuple):
    """One thing that happened: `delta` more of `counter`. With an `id` it counts once however often it is sent."""

    counter: str
    delta: int = 1
    id: str | None = None
    receipt: str = ""
    """Its receipt key, if the id is not known."""

    @property
    def key(self) -> str:
        """Of its receipt."""
        return self.receipt or key_of_increment(self.counter, self.id or "")


@dataclass(frozen=True, slots=True)
class Message:
    """What a broker carries: bytes and attributes."""

    data: bytes
    attributes: Mapping[str, str] = field(default_factory=dict)
    once: str | None = None
    """A broker that can, drops a second message of the same `once` while the first is still there."""
    increments: int | None = field(default=None, compare=False)
    """How many it carries, where whoever made it knows."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message on lease to one flusher."""

    token: str
    """Names this lease for ack, extend and give back. A later lease of the same message has another token."""
    message: Message
    message_id: str
    """The broker's own name of the message."""
    published: int
    """Milliseconds since 1970, by the broker's clock."""
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter: a message that was buried."""

    delivery: Delivery
    """The message as it was, under its own id and time; the token is of this look at it."""
    reason: str
    flaw: str | None = None
    """Why it is not what was published, so that it can't be counted whatever it says."""


APPLIED: Final = "applied"
DEAD: Final = "dead"
"""Given up, and not applied. It can be replayed or dropped."""
DROPPED: Final = "dropped"
"""Given up for good: it is never applied, and readings leave it out."""


class Receipt(NamedTuple):
    """Proof that an envelope, or an increment with an id, has been applied (or given up: `dead`, `dropped`)."""

    key: str
    expires: int
    """By `Store.now`, in ms. Later than anything of this id can come back. 0: it never expires."""
    state: str = APPLIED
    note: bytes = b""
    """What it says besides being there, see `notes`; to stores a few bytes, or some tens of thousands."""
    counters: tuple[str, ...] = ()
    """The counters that a dead receipt with a body stands for. Stores find it by each of them."""
    body: bytes = b""
    """What a dead receipt stands for, see `bodies`; without one, only its letter says it."""

    @property
    def settled(self) -> bool:
        """Whether a snapshot that finds it needs no overlay entry: it is applied, dropped, or dead with a body."""
        return self.state in {APPLIED, DROPPED} or bool(self.body)

    def over(self, before: "Receipt") -> "Receipt":
        """What is stored in place of a dead one: it keeps the note unless it brings another, and a body while dead."""
        note = self.note or before.note
        if self.state == DEAD and (self.body or before.body):
            return (self if self.body else before)._replace(expires=0, note=note)
        return self._replace(expires=max(self.expires, before.expires), note=note, counters=(), body=b"")


class Receipts(NamedTuple):
    """Receipts that were found, and the store's time of the look."""

    time: int
    found: Mapping[str, Receipt]


class ShardAdd(NamedTuple):
    """Add `delta` to one shard, and have readers look at `num_shards` at least. `known`: see `sharding.went`."""

    counter: str
    shard: int
    delta: int
    num_shards: int
    known: int = 0


class Tally(NamedTuple):
    """What became of increments, each counted once, by whatever commit settled it."""

    applied: int = 0
    deduplicated: int = 0
    """Second uses of a client's id."""
    dead: int = 0
    foreign: int = 0
    """How many of all these came in messages that no ingest has accepted."""


class Balance(NamedTuple):
    """Of a broker and a store in one place, since both began."""

    pending: int
    """Increments in messages that are there and not buried."""
    drift: int
    """Accepted - applied - deduplicated - dead-lettered - pending. 0 at rest, less between a commit and its acks."""


class Guard(NamedTuple):
    """What a store keeps of the last set, reset or delete of a counter."""

    version: int = 0
    """Another one after each of them, and after the removal of what a delete has left; 0 before the first."""
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Commit:
    """All or nothing: insert the receipts and add to the shards."""

    receipts: tuple[Receipt, ...]
    adds: tuple[ShardAdd, ...]
    revived: tuple[Receipt, ...] = ()
    """Receipts that are there as `dead` and become these, see `Receipt.over`."""
    tally: Tally = field(default_factory=Tally)
    guard: tuple[str, Guard] | None = None
    """Of a set: the counter, the version that its guard must still have, and its mark from then on."""
    marks: tuple[Mark, ...] = ()
    """Of an import. No two are of the same source and counter."""
    bounds: Bounds = field(default_factory=Bounds)

    def repeats(self) -> bool:
        """Whether a receipt stands in it twice."""
        keys = [receipt.key for receipt in (*self.receipts, *self.revived)]
        return len(set(keys)) < len(keys)


@dataclass(frozen=True, slots=True)
class Total:
    """One counter in a snapshot of the store."""

    value: int
    shards: int
    """Its `num_shards`; 0 when there is no config."""
    guard: Guard = field(default_factory=Guard)
    dead: "tuple[Entry, ...]" = ()
    """What dead receipts say of it, as entries: accepted, not applied, and pending until they are replayed."""
    sure_until: int = 0
    """Milliseconds since 1970, if not 0. After that the receipt of an id in `dead` may have expired."""
    flaw: str = ""
    """Why the value is not known: another application has stored something else than a whole number."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is pending of one envelope for one counter: in the overlay, or by a dead receipt."""

    key: str
    """Receipt key of the envelope."""
    delta: int
    keyed: tuple[tuple[str, int], ...] = ()
    """Receipt key and delta of each increment with an id."""
    late: bool = False
    """The envelope or one of its ids may have been published earlier, too."""
    confirmed: bool = True


@dataclass(frozen=True, slots=True)
class View:
    """The overlay of one counter, read in one go."""

    entries: tuple[Entry, ...] = ()
    floor: int = 0
    """Bases and snapshots of an earlier time are void: an entry that they needed may be gone."""
    version: int = 0
    """Equal versions of two views of this process mean equal views."""
    exact: bool = True
    """Whether the entries of every process are seen, so that readings may say `exact`."""
    epoch: str = ""
    """Another one when entries or floors may have been lost: bases of another epoch are void."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The answer to a read. `value` = `applied` + `pending`."""

    name: str
    applied: int
    pending: int
    exact: bool
    as_of: float
    """Seconds since 1970: the instant of the applied part."""
    shards: int
    exists: bool

    @property
    def value(self) -> int:
        return self.applied + self.pending
