"""The arithmetic of exact reads: adds a cached snapshot and the overlay's entries, or finds that they do not fit.
Pure.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple, overload

from shared.model.buckets import Instant, Monotonic, StoreMillis, WallSeconds
from shared.model.words import Entry, Total, View

# A row of overlay entries that grows without being copied: a counter may have many, and be read often. Pure.


if TYPE_CHECKING:
    from shared.model.words import Entry


class EntryLog(Sequence["Entry"]):
    """Entries that never change. Logs that grew out of each other share a list, and each uses a part of it."""

    __slots__ = ("number", "shared", "unconfirmed")

    def __init__(self, confirmed: "Iterable[Entry]" = (), unconfirmed: "Iterable[Entry]" = ()) -> None:
        self.shared = [*confirmed]
        self.number = len(self.shared)
        self.unconfirmed = tuple(unconfirmed)

    def grown(self, confirmed: "Iterable[Entry]", unconfirmed: "Iterable[Entry]") -> "EntryLog":
        """A log with these confirmed entries behind its own, and these unconfirmed ones in place of its own.

        Each that is confirmed must have a key that no other has, and no ids; and it must not be late.
        """
        new = EntryLog.__new__(EntryLog)
        new.shared = self.shared if len(self.shared) == self.number else self.shared[: self.number]
        new.shared.extend(confirmed)
        new.number = len(new.shared)
        new.unconfirmed = tuple(unconfirmed)
        return new

    def since(self, earlier: "Sequence[Entry]") -> "Sequence[Entry] | None":
        """The confirmed entries that came behind those of `earlier`. None if it did not grow out of that."""
        if not isinstance(earlier, EntryLog) or earlier.shared is not self.shared or earlier.number > self.number:
            return None
        return self.shared[earlier.number : self.number]

    def __len__(self) -> int:
        return self.number + len(self.unconfirmed)

    def __iter__(self) -> "Iterator[Entry]":
        return chain(islice(self.shared, self.number), self.unconfirmed)

    @overload
    def __getitem__(self, index: int) -> "Entry": ...
    @overload
    def __getitem__(self, index: slice) -> "Sequence[Entry]": ...
    def __getitem__(self, index: int | slice) -> "Entry | Sequence[Entry]":
        return (*self,)[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and (*self,) == (*other,)

    __hash__ = None  # type: ignore[assignment] # no log is a key


class Base(NamedTuple):
    """What one snapshot of a counter found."""

    time: Instant
    as_of: WallSeconds
    now: StoreMillis
    total: Total
    asked: Collection[str]
    """The receipt keys that the snapshot looked for."""
    settled: Collection[str]
    """Those that it found settled. `total` includes them, and the dead ones too."""
    born: Monotonic
    """When it was read."""
    epoch: str = ""
    viewed: int = 0
    """A number that grows with each view of the overlay. A view older than the base's may hold an entry that has since
    been applied and removed, whose receipt the base did not look for.
    """


def keys_of(view: View) -> list[str]:
    """The receipts that a snapshot must look for: of all entries and their client ids, unconfirmed ones too."""
    keys = []
    for entry in view.entries:
        keys.append(entry.key)
        keys.extend(key for key, _ in entry.keyed)
    return keys


def pending(base: Base, view: View, each: list[tuple[Entry, int]] | None = None) -> int | None:
    """The sum that is accepted and not applied in the base: its dead receipts, and the entries that it lacks.

    None if the base does not fit the view. `each` gets what each entry adds.
    """
    if base.time < view.floor or base.epoch != view.epoch:
        return None
    total = 0
    settled, asked = base.settled, base.asked
    counted: set[str] = set()
    for entry in base.total.dead:
        counted.add(entry.key)
        total += (its := entry.delta + _ids(entry, settled, counted))
        if each is not None:
            each.append((entry, its))
    for entry in view.entries:
        if not entry.confirmed:
            continue
        if entry.late and not (entry.key in asked and all(key in asked for key, _ in entry.keyed)):
            return None
        if entry.key in settled or entry.key in counted:
            continue
        counted.add(entry.key)
        total += (its := entry.delta + _ids(entry, settled, counted))
        if each is not None:
            each.append((entry, its))
    return total


def pending_since(base: Base, before: int, earlier: View, view: View) -> int | None:
    """What `pending` returns, in less time: it was `before` with an earlier view. None if it can't be told so."""
    if base.time < view.floor or base.epoch != view.epoch or not isinstance(view.entries, EntryLog):
        return None
    new = view.entries.since(earlier.entries)
    if new is None:
        return None
    dead = {entry.key for entry in base.total.dead}
    return before + sum([entry.delta for entry in new if entry.key not in base.settled and entry.key not in dead])


def counts(base: Base, entry: Entry) -> bool:
    """Whether something of the entry will change the counter: not if it is known to be applied, adds nothing, or has
    only ids that were used before.
    """
    return entry.confirmed and entry.key not in base.settled and entry.changes(base.settled)


def exists(base: Base, view: View, more: int) -> bool:
    """Whether the counter exists, if so much is pending: it was counted, and not deleted since."""
    total = base.total
    there = total.shards > 0 or any(entry.changes() for entry in total.dead)
    there = there or any(counts(base, entry) for entry in view.entries)
    return there and not (total.guard.deleted and total.value + more == 0)


def doubtful(base: Base) -> bool:
    """Whether an id in a dead receipt may have been counted under a receipt that has expired."""
    if not base.total.sure_until or base.now <= base.total.sure_until:
        return False
    return any(key not in base.settled for key in ids_of(base.total.dead))


def ids_of(entries: Iterable[Entry]) -> Iterator[str]:
    """The receipt keys of the client ids in the entries."""
    return (key for entry in entries for key, _ in entry.keyed)


def _ids(entry: Entry, settled: Collection[str], counted: set[str]) -> int:
    """The sum of the entry's client ids that are neither settled nor in an earlier entry: an id counts once."""
    total = 0
    for key, delta in entry.keyed:
        if key not in settled and key not in counted:
            counted.add(key)
            total += delta
    return total
