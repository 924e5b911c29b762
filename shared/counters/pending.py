"""The entries of accepted envelopes that are not acknowledged, per counter, in memory. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Final, NamedTuple

from shared.counters.name_index import NameIndex, in_blocks
from shared.model.buckets import BEGINNING, Instant, WallMillis
from shared.model.envelope import Envelope
from shared.model.errors import InexactError
from shared.model.exact_reads import EntryLog
from shared.model.words import Entry, View

_VERSIONS: Final = count(1)
"""Shared by all objects of this process: one that replaces another must never repeat a version."""


UNSEEN: Final = "not all that was accepted can be seen now: see countersink doctor, or a message needs a newer version"
MOST_FLOORS: Final = 100_000
"""With more floors than this, all counters get the highest one. That voids more bases than necessary, once."""
MOST_VIEWS: Final = 20_000
"""Views that are kept for the next reading of the same counters."""
MOST_UNSORTED: Final = 100_000
"""With more changes of names than this since the last list, the next one sorts all names."""
SORTED: Final = 2_000
"""Names that are sorted before other tasks may get a turn."""


class _Kept(NamedTuple):
    """The part of an envelope that is kept. Each pending message has one, so it must be small."""

    key: str
    sums: Mapping[str, int]
    keyed: Mapping[str, tuple[tuple[str, int], ...]]
    """The receipt key and delta of each increment with an id, by counter."""
    retried: bool
    created: WallMillis

    def entry(self, counter: str) -> Entry | None:
        ids = self.keyed.get(counter, ())
        if not ids and counter not in self.sums:
            return None
        late = self.retried or bool(ids)
        return Entry(self.key, self.sums.get(counter, 0), ids, late, created=self.created)


_Entries = dict[int, tuple[Entry, ...] | None]
"""The messages with entries of one counter, and the entries if they were needed before."""


class Pending:
    """An overlay of a broker's pending messages, or of those that this process published."""

    def __init__(self, floor: Instant = BEGINNING, *, exact: bool = True) -> None:
        self._exact = exact
        self._floor = floor
        """The floor of all counters that have none of their own."""
        self._floors: dict[str, Instant] = {}
        self._where: dict[str, int | _Entries] = {}
        """Where each counter has entries: the number of the one message, or those of several."""
        self._messages: dict[int, tuple[_Kept, ...]] = {}
        self._unconfirmed: set[int] = set()
        self._late: set[int] = set()
        """Messages that are late, whatever their envelopes say."""
        self._keys: dict[str, int] = {}
        self._unknown: set[int] = set()
        """Messages in versions that this process does not know. They may add to any counter, so no view is exact."""
        self._views: dict[str, View] = {}
        self._empty = View((), floor, next(_VERSIONS), exact)
        self._index: NameIndex | None = None
        """The names, once a list was asked for."""
        self._unsorted: set[str] | None = None
        """Names that came or went since they were sorted."""

    @property
    def exact(self) -> bool:
        """Whether views show everything that is pending."""
        return self._exact and not self._unknown

    def add(self, number: int, *envelopes: Envelope, confirmed: bool = True, late: bool = False) -> None:
        """Add a message with these envelopes. If two messages carry the same id, the lower number counts."""
        if not confirmed:
            self._unconfirmed.add(number)
        if late:
            self._late.add(number)
        self._messages[number] = tuple([_kept(envelope) for envelope in envelopes])
        for envelope in envelopes:
            self._keys[envelope.key] = self._keys.get(envelope.key, 0) + 1
        for counter in self._counters(number):
            there = self._where.get(counter)
            if there is None:
                self._where[counter] = number
                self._moved(counter)
            elif type(there) is dict:
                there[number] = None
            else:
                self._where[counter] = {there: None, number: None}  # type: ignore[dict-item] # it is a number
            self._grow(counter, number)

    def add_unknown(self, number: int) -> None:
        """Add a message whose increments this process can't read."""
        self._unknown.add(number)
        self._show_anew()

    def confirm(self, number: int) -> None:
        """Count the entries of a message that is known to be published."""
        if number not in self._unconfirmed:
            return
        self._unconfirmed.discard(number)
        for counter in self._counters(number):
            self._grow(counter, number)

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
        for counter in counters:
            there = self._where[counter]
            if type(there) is dict:
                del there[number]
            if there == number or not there:
                del self._where[counter]
                self._moved(counter)
            self._views.pop(counter, None)
        for held in self._messages.pop(number):
            self._keys[held.key] -= 1
            if not self._keys[held.key]:
                del self._keys[held.key]
        return counters

    def view(self, counter: str) -> View:
        view = self._views.get(counter)
        if view is None:
            there, floor = self._where.get(counter), self._floors.get(counter)
            if there is None and floor is None:
                return self._empty
            confirmed, unconfirmed = list[Entry](), list[Entry]()
            for entry in self._entries(counter, there):
                (confirmed if entry.confirmed else unconfirmed).append(entry)
            entries = EntryLog(confirmed, unconfirmed)
            view = View(entries, self._floor if floor is None else floor, next(_VERSIONS), self.exact)
            if len(self._views) >= MOST_VIEWS:
                self._views.clear()
            self._views[counter] = view
        return view

    def _grow(self, counter: str, number: int) -> None:
        """Let the view of a counter follow a message that was added or confirmed. Most only add to a sum, so they need
        not be compared with others.
        """
        view = self._views.pop(counter, None)
        if view is None or not isinstance(view.entries, EntryLog):
            return
        entries = [*self._marked(number, self._of(number, counter))]
        if any(entry.late or entry.keyed or self._keys[entry.key] > 1 for entry in entries):
            return
        keys = {entry.key for entry in entries}
        others = [entry for entry in view.entries.unconfirmed if entry.key not in keys]
        if number in self._unconfirmed:
            log = view.entries.grown((), [*others, *entries])
        else:
            log = view.entries.grown(entries, others)
        self._views[counter] = replace(view, entries=log, version=next(_VERSIONS))

    def names(self, prefix: str, after: str = "", limit: int | None = None, *, exact: bool = False) -> list[str]:
        """Counters with entries whose names begin with the prefix and come behind `after`: so many, in order. With
        `exact`, `InexactError` if some may be missing.
        """
        if exact and not self.exact:
            raise InexactError(UNSEEN)
        for _ in self.sort_names():
            pass
        return self._index.page(prefix, after, limit) if self._index is not None else []

    def sort_names(self) -> Iterator[None]:
        """Do what `names` needs. It yields now and then, so that the caller can let other tasks have a turn, which may
        add and remove messages, but must not sort names themselves.
        """
        while self._index is None:
            self._unsorted = set()
            for blocks in in_blocks([*self._where]):
                if blocks and self._unsorted is not None:  # else so much has moved meanwhile that it is sorted anew
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
        first, *more = self._messages[number] or (_NOTHING,)
        if not more and not first.keyed:
            return first.sums.keys()
        return {counter for held in (first, *more) for counter in (*held.sums, *held.keyed)}

    def _entries(self, counter: str, there: int | _Entries | None) -> Iterator[Entry]:
        if type(there) is not dict:
            if there is not None:
                yield from self._marked(there, self._of(there, counter))  # type: ignore[arg-type] # it is a number
            return
        for number in sorted(there):
            entries = there[number]
            if entries is None:
                there[number] = entries = self._of(number, counter)
            yield from self._marked(number, entries)

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
        self._show_anew()

    def _show_anew(self) -> None:
        self._views.clear()
        self._empty = View((), self._floor, next(_VERSIONS), self.exact)


_NOTHING: Final = _Kept("", {}, {}, retried=False, created=0)


def _kept(envelope: Envelope) -> _Kept:
    keyed: dict[str, list[tuple[str, int]]] = {}
    for item in envelope.keyed:
        keyed.setdefault(item.counter, []).append((item.key, item.delta))
    its = {counter: tuple(ids) for counter, ids in keyed.items()} if keyed else _NONE
    return _Kept(envelope.key, envelope.sums, its, envelope.retried, envelope.created)


_NONE: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {}
