"""The arithmetic of exact reads: a cached snapshot and the overlay make one value, or say that they can't. Pure.

An accepted increment is in the base, applied or dead, or in the overlay, never in both: what the base found settled is
skipped in the overlay; and a base that could miss something is void (its time is below the floor) or stale (it has not
asked for the receipts of an entry that may have been applied before the entry was made).
"""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from shared.model.words import Entry, Total, View


class Base(NamedTuple):
    """What one snapshot of a counter found."""

    time: int
    as_of: float
    now: int
    """The store's time (ms)."""
    total: Total
    asked: Collection[str]
    """Receipt keys it looked for."""
    applied: Collection[str]
    """Those of them that it found settled: they add nothing beside `total`, which holds the dead ones, too."""
    born: float
    """On the monotonic clock."""
    exact: bool = True
    """Of one instant; otherwise right only when nothing is pending."""
    epoch: str = ""
    viewed: int = 0
    """Later than that of bases whose view of the overlay is older. A view that is older than the base's may hold an
    entry that has been applied and removed, and so was not asked for.
    """


def keys_of(view: View) -> list[str]:
    """The receipts a snapshot has to ask for: of all entries and of the client ids in them, unconfirmed ones too."""
    keys = []
    for entry in view.entries:
        keys.append(entry.key)
        keys.extend(key for key, _ in entry.keyed)
    return keys


def pending(base: Base, view: View) -> int | None:
    """What is accepted and not applied in the base: what its dead receipts say, and entries that it does not know;
    None if this base can't say.
    """
    if base.time < view.floor or base.epoch != view.epoch:
        return None
    total = 0
    applied, asked = base.applied, base.asked
    counted: set[str] = set()
    for entry in base.total.dead:
        counted.add(entry.key)
        total += entry.delta + _ids(entry, applied, counted)
    for entry in view.entries:
        if not entry.confirmed:
            continue
        if entry.late and not (entry.key in asked and all(key in asked for key, _ in entry.keyed)):
            return None
        if entry.key in applied or entry.key in counted:
            continue
        counted.add(entry.key)
        total += entry.delta + _ids(entry, applied, counted)
    return total


def doubtful(base: Base) -> bool:
    """Whether an id in a dead receipt may have been counted by a receipt that has expired since."""
    if not base.total.sure_until or base.now <= base.total.sure_until:
        return False
    return any(key not in base.applied for key in ids_of(base.total.dead))


def ids_of(entries: Iterable[Entry]) -> Iterator[str]:
    """The receipt keys of the ids in them."""
    return (key for entry in entries for key, _ in entry.keyed)


def _ids(entry: Entry, applied: Collection[str], counted: set[str]) -> int:
    """What those of its ids add that are not applied and that no entry before it has: an id counts once."""
    total = 0
    for key, delta in entry.keyed:
        if key not in applied and key not in counted:
            counted.add(key)
            total += delta
    return total
