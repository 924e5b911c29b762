"""What is pending: the entries of accepted envelopes per counter; and the arithmetic of exact reads, which adds them to
a cached snapshot, or finds that they do not fit. Pure.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count, islice
from typing import Any, Final, NamedTuple

from shared.model.buckets import BEGINNING, Instant, Monotonic, StoreMillis, WallMillis, WallSeconds
from shared.model.errors import InexactError
from shared.model.words import Entry, Envelope, Total, View

# A row of overlay entries that grows without being copied: a counter may have many, and be read often.


class EntryLog(Sequence[Entry]):
    """Entries that never change. Logs that grew out of each other share a list, and each uses a part of it."""

    __slots__ = ("number", "shared", "unconfirmed")

    def __init__(self, confirmed: Iterable[Entry] = (), unconfirmed: Iterable[Entry] = ()) -> None:
        self.shared = [*confirmed]
        self.number = len(self.shared)
        self.unconfirmed = tuple(unconfirmed)

    def grown(self, confirmed: Iterable[Entry], unconfirmed: Iterable[Entry]) -> "EntryLog":
        """A log with these confirmed entries behind its own, and these unconfirmed ones in place of its own.

        Each that is confirmed must have a key that no other has, and no ids; and it must not be late.
        """
        new = EntryLog.__new__(EntryLog)
        new.shared = self.shared if len(self.shared) == self.number else self.shared[: self.number]
        new.shared.extend(confirmed)
        new.number = len(new.shared)
        new.unconfirmed = tuple(unconfirmed)
        return new

    def since(self, earlier: Sequence[Entry]) -> Sequence[Entry] | None:
        """The confirmed entries that came behind those of `earlier`. None if it did not grow out of that."""
        if not isinstance(earlier, EntryLog) or earlier.shared is not self.shared or earlier.number > self.number:
            return None
        return self.shared[earlier.number : self.number]

    def __len__(self) -> int:
        return self.number + len(self.unconfirmed)

    def __iter__(self) -> Iterator[Entry]:
        return chain(islice(self.shared, self.number), self.unconfirmed)

    def __getitem__(self, at: Any) -> Any:
        return (*self,)[at]

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
    """The keys that it found settled. `total` includes them, and the dead ones too."""
    born: Monotonic
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


# Names in the order in which they are listed.


BLOCK: Final = 512
"""Names in a block, which is divided when it has twice as many."""
NAMES_AT_ONCE: Final = 4_096
"""Names that are looked at before the caller can do something else."""


def in_blocks(names: Sequence[str]) -> Iterator[list[list[str]]]:
    """The names in sorted blocks, at the end. Before it yields now and then, so that the caller can do something else:
    to sort all at once would take too long.
    """
    pivots = sorted(names[BLOCK::BLOCK])
    blocks: list[list[str]] = [[] for _ in range(len(pivots) + 1)]
    for begin in range(0, len(names), NAMES_AT_ONCE):
        for name in names[begin : begin + NAMES_AT_ONCE]:
            blocks[bisect_right(pivots, name)].append(name)
        yield []
    for number, block in enumerate(blocks):
        block.sort()
        if number % (NAMES_AT_ONCE // BLOCK) == 0:
            yield []
    yield blocks


class NameIndex:
    """A sorted set of names, in blocks, so that one more moves only a few others."""

    def __init__(self, blocks: Sequence[list[str]] = ()) -> None:
        """`blocks`: sorted names, as `in_blocks` returns them."""
        self._blocks = [block for block in blocks if block] or [[]]
        self._firsts = ["", *[block[0] for block in self._blocks[1:]]]
        """A name that is no larger than any in the block, and larger than all in those before."""

    def add(self, name: str) -> None:
        at, place, there = self._find(name)
        if there:
            return
        block = self._blocks[at]
        block.insert(place, name)
        if len(block) > 2 * BLOCK:
            self._blocks[at : at + 1] = [block[:BLOCK], block[BLOCK:]]
            self._firsts.insert(at + 1, block[BLOCK])

    def discard(self, name: str) -> None:
        at, place, there = self._find(name)
        if there:
            del self._blocks[at][place]
            if at and not self._blocks[at]:
                del self._blocks[at], self._firsts[at]

    def _find(self, name: str) -> tuple[int, int, bool]:
        """The block and the place in it where the name belongs, and whether it is there."""
        at = bisect_right(self._firsts, name) - 1
        block = self._blocks[at]
        place = bisect_left(block, name)
        return at, place, place < len(block) and block[place] == name

    def page(self, prefix: str, after: str, limit: int | None) -> list[str]:
        """Up to `limit` names that begin with the prefix and come behind `after`, in order."""
        found: list[str] = []
        at = bisect_right(self._firsts, max(prefix, after)) - 1
        block = self._blocks[at]
        place = bisect_left(block, prefix) if prefix > after else bisect_right(block, after)
        for number in range(at, len(self._blocks)):
            block = self._blocks[number]
            for index in range(place, len(block)):
                if len(found) == limit or not block[index].startswith(prefix):
                    return found
                found.append(block[index])
            place = 0
        return found


# The entries of accepted envelopes that are not acknowledged.


_VERSIONS: Final = count(1)
"""Shared by all objects of this process: one that replaces another must never repeat a version."""


UNSEEN: Final = "some accepted increments can't be read now: run countersink doctor, or a message needs a newer version"
MOST_FLOORS: Final = 100_000
"""With more floors than this, all counters get the highest one. That voids more bases than necessary, once."""
MOST_VIEWS: Final = 20_000
"""Views that are kept for the next reading of the same counters."""
MOST_UNSORTED: Final = 100_000
"""With more changes of names than this since the last list, the next one sorts all names."""
SORTED: Final = 2_000
"""Names that are sorted before other tasks may get a turn."""


class Kept(NamedTuple):
    """The part of an envelope that is kept. Each pending message has one, so it must be small."""

    key: str
    names: Sequence[str]
    """The counters that have a sum, in order: these and their sums take half the memory of a dict."""
    sums: Sequence[int]
    keyed: Mapping[str, tuple[tuple[str, int], ...]]
    """The receipt key and delta of each increment with an id, by counter."""
    retried: bool
    created: WallMillis

    def entry(self, counter: str) -> Entry | None:
        ids, at = self.keyed.get(counter, ()), bisect_left(self.names, counter)
        summed = at < len(self.names) and self.names[at] == counter
        if not ids and not summed:
            return None
        late = self.retried or bool(ids)
        return Entry(self.key, self.sums[at] if summed else 0, ids, late, created=self.created)


class _Several:
    """The messages with entries of one counter, where it had more than one."""

    __slots__ = ("left", "made", "name", "numbers")

    def __init__(self, name: str, *numbers: int) -> None:
        self.name = name
        """The string that all later messages share."""
        self.numbers = [*numbers]
        """Less than half of them are gone: to take out each at once would take too long."""
        self.left = len(numbers)
        self.made: dict[int, tuple[Entry, ...]] = {}
        """The entries that the last view needed."""


class Pending:
    """An overlay of a broker's pending messages, or of those that this process published."""

    def __init__(self, floor: Instant = BEGINNING, *, exact: bool = True) -> None:
        self._exact = exact
        self._floor = floor
        """The floor of all counters that have none of their own."""
        self._floors: dict[str, Instant] = {}
        self._where: dict[str, int | _Several] = {}
        """Where each counter has entries: the number of the one message, or those of several."""
        self._messages: dict[int, tuple[Kept, ...]] = {}
        self._unconfirmed: set[int] = set()
        self._late: set[int] = set()
        """Messages that are late, whatever their envelopes say."""
        self._keys: dict[str, int] = {}
        self._unknown: set[int] = set()
        """Messages in versions that this process does not know. They may add to any counter, so no view is exact."""
        self._views: dict[str, View] = {}
        self._bare: dict[Instant, View] = {}
        """Views without entries, by floor. Most counters of a list share one."""
        self._index: NameIndex | None = None
        """The names, once a list was asked for."""
        self._unsorted: set[str] | None = None
        """Names that came or went since they were sorted."""

    @property
    def exact(self) -> bool:
        return self._exact and not self._unknown

    def add(self, number: int, *envelopes: Envelope, confirmed: bool = True, late: bool = False) -> None:
        """Add a message with these envelopes. If two messages carry the same id, the lower number counts."""
        if not confirmed:
            self._unconfirmed.add(number)
        if late:
            self._late.add(number)
        self._messages[number] = tuple([kept_of(one, self._shared(sorted(one.sums))) for one in envelopes])
        for envelope in envelopes:
            self._keys[envelope.key] = self._keys.get(envelope.key, 0) + 1
        for counter in self._counters(number):
            there = self._where.get(counter)
            if there is None:
                self._where[counter] = number
                self._moved(counter)
            elif isinstance(there, _Several):
                there.numbers.append(number)
                there.left += 1
            else:
                self._where[counter] = _Several(counter, there, number)
        self._grow(number)

    def add_unknown(self, number: int) -> None:
        self._unknown.add(number)
        self._forget_views()

    def confirm(self, number: int) -> None:
        """Count the entries of a message that is known to be published."""
        if number not in self._unconfirmed:
            return
        self._unconfirmed.discard(number)
        self._grow(number)

    def settle(self, numbers: Sequence[int], floor: Instant) -> int:
        """Remove messages that are known to be settled, and raise the floors of their counters to `floor`. A message
        that was never added here may have held any counter, so it raises the floor of all. Returns how many counters
        lost an entry.
        """
        gone = 0
        for number in numbers:
            if number not in self._messages:
                self._unknown.discard(number)
                self._raise_all(floor)
                continue
            counters = self.withdraw(number)
            gone += len(counters)
            for counter in counters:
                self._floors[counter] = max(floor, self._floors.get(counter, self._floor))
            if len(self._floors) > MOST_FLOORS:
                self._raise_all(max(self._floors.values()))
        return gone

    def raise_floor(self, counter: str, floor: Instant) -> None:
        """Void what was read of the counter before `floor`."""
        self._floors[counter] = max(floor, self._floors.get(counter, self._floor))
        self._views.pop(counter, None)
        if len(self._floors) > MOST_FLOORS:
            self._raise_all(max(self._floors.values()))

    def withdraw(self, number: int) -> Collection[str]:
        """Remove a message that nobody has settled, so floors stay. Returns the counters that it had entries of."""
        counters = self._counters(number)
        self._unconfirmed.discard(number)
        self._late.discard(number)
        gone = self._messages.pop(number)
        for counter in counters:
            there = self._where[counter]
            if isinstance(there, _Several):
                there.left -= 1
                there.made.pop(number, None)
                if there.left <= len(there.numbers) // 2:
                    there.numbers = self._numbers(there)
            if not isinstance(there, _Several) or not there.left:
                del self._where[counter]
                self._moved(counter)
            self._views.pop(counter, None)
        for held in gone:
            self._keys[held.key] -= 1
            if not self._keys[held.key]:
                del self._keys[held.key]
        return counters

    def view(self, counter: str) -> View:
        there = self._where.get(counter)
        if there is None:
            floor = self._floors.get(counter, self._floor)
            view = self._bare.get(floor)
            if view is None:
                view = self._bare[floor] = self._new_view((), floor)
            return view
        view = self._views.get(counter)
        if view is None:
            confirmed, unconfirmed = list[Entry](), list[Entry]()
            for entry in self._entries(counter, there):
                (confirmed if entry.confirmed else unconfirmed).append(entry)
            floor = self._floors.get(counter, self._floor)
            view = self._views[counter] = self._new_view(EntryLog(confirmed, unconfirmed), floor)
        return view

    def _new_view(self, entries: Sequence[Entry], floor: Instant) -> View:
        if len(self._views) + len(self._bare) >= MOST_VIEWS:
            self._forget_views()
        return View(entries, floor, next(_VERSIONS), self.exact)

    def _grow(self, number: int) -> None:
        """Let the views of its counters follow a message that was added or confirmed. Most only add to a sum, so they
        need not be compared with others.
        """
        for counter in self._views.keys() & self._counters(number):
            view = self._views.pop(counter)
            entries = [*self._marked(number, self._of(number, counter))]
            if not isinstance(view.entries, EntryLog) or any(
                entry.late or entry.keyed or self._keys[entry.key] > 1 for entry in entries
            ):
                continue
            keys = {entry.key for entry in entries}
            others = [entry for entry in view.entries.unconfirmed if entry.key not in keys]
            if number in self._unconfirmed:
                log = view.entries.grown((), [*others, *entries])
            else:
                log = view.entries.grown(entries, others)
            self._views[counter] = replace(view, entries=log, version=next(_VERSIONS))

    def names(self, prefix: str, after: str = "", limit: int | None = None, *, exact: bool = False) -> list[str]:
        """Counters with entries whose names begin with the prefix and come behind `after`: this many, in order. With
        `exact`, `InexactError` if some may be missing.
        """
        if exact and not self.exact:
            raise InexactError(UNSEEN)
        for _ in self.sort_names():
            pass
        return self._index.page(prefix, after, limit) if self._index is not None else []

    def under(self, prefixes: Iterable[str]) -> tuple[dict[str, View], View]:
        views = {name: self.view(name) for prefix in prefixes for name in self.names(prefix)}
        floor = max(self._floors.values(), default=self._floor)
        return views, View((), max(floor, self._floor), next(_VERSIONS), self.exact)

    def sort_names(self) -> Iterator[None]:
        """Do what `names` needs. It yields now and then, so that the caller can let other tasks have a turn, which may
        add and remove messages, but must not sort names themselves.
        """
        while self._index is None:
            self._unsorted = set()
            for blocks in in_blocks([*self._where]):
                if blocks and self._unsorted is not None:  # else so much has moved meanwhile that it is sorted again
                    self._index = NameIndex(blocks)
                yield
            if not self._where:
                return
        while self._index is not None and self._unsorted:
            for name in sorted([self._unsorted.pop() for _ in range(min(SORTED, len(self._unsorted)))]):
                if name in self._where:
                    self._index.add(name)
                else:
                    self._index.discard(name)
            yield

    def holds(self, keys: Collection[str]) -> set[str]:
        return {key for key in keys if key in self._keys}

    def _counters(self, number: int) -> Collection[str]:
        """The counters that a message has entries of."""
        kept = self._messages[number]
        if len(kept) == 1 and not kept[0].keyed:
            return kept[0].names
        return {counter for held in kept for counter in (*held.names, *held.keyed)}

    def _shared(self, names: list[str]) -> list[str]:
        """The same names, as strings that this object already holds."""
        where = self._where
        return [there.name if isinstance(there := where.get(name), _Several) else name for name in names]

    def _numbers(self, there: _Several) -> list[int]:
        return sorted({number for number in there.numbers if number in self._messages})

    def _entries(self, counter: str, there: int | _Several) -> Iterator[Entry]:
        if isinstance(there, _Several):
            made = there.made
            there.made = {one: made.get(one) or self._of(one, counter) for one in self._numbers(there)}
            for number, entries in there.made.items():
                yield from self._marked(number, entries)
        else:
            yield from self._marked(there, self._of(there, counter))

    def _of(self, number: int, counter: str) -> tuple[Entry, ...]:
        return tuple([entry for held in self._messages[number] if (entry := held.entry(counter)) is not None])

    def _marked(self, number: int, entries: tuple[Entry, ...]) -> Iterable[Entry]:
        if number not in self._unconfirmed and number not in self._late:
            return entries
        confirmed, late = number not in self._unconfirmed, number in self._late
        return [replace(entry, confirmed=confirmed, late=late or entry.late) for entry in entries]

    def _moved(self, counter: str) -> None:
        """The counter has its first entry, or has no more."""
        if self._unsorted is not None:
            self._unsorted.add(counter)
            if len(self._unsorted) > MOST_UNSORTED:
                self._index = self._unsorted = None

    def _raise_all(self, floor: Instant) -> None:
        self._floor = max(self._floor, floor)
        self._floors = {counter: own for counter, own in self._floors.items() if own > self._floor}
        self._forget_views()

    def _forget_views(self) -> None:
        self._views.clear()
        self._bare.clear()


_NONE: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {}


def kept_of(envelope: Envelope, names: Sequence[str]) -> Kept:
    """`names`: those of its sums, in order."""
    sums = [envelope.sums[name] for name in names]
    try:
        small = array("b", sums)
    except OverflowError:
        small = array("q", sums)
    keyed: dict[str, list[tuple[str, int]]] = {}
    for item in envelope.keyed:
        keyed.setdefault(item.counter, []).append((item.key, item.delta))
    its = {counter: tuple(ids) for counter, ids in keyed.items()} if keyed else _NONE
    return Kept(envelope.key, tuple(names), small, its, envelope.retried, envelope.created)
