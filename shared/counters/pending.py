"""Owns the entries of accepted envelopes that are not acknowledged, per counter, in memory. Pure."""

from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from itertools import count
from typing import Final

from shared.model.envelope import Envelope
from shared.model.times import BEGINNING, Instant
from shared.model.words import Entry, View

_VERSIONS: Final = count(1)
"""Shared by all objects of this process: one that replaces another must never repeat a version."""


MOST_FLOORS: Final = 100_000
"""With more floors than this, all counters get the highest one. That voids more bases than necessary, once."""


class Pending:
    """An overlay of a broker's pending messages, or of those that this process published."""

    def __init__(self, floor: Instant = BEGINNING, *, exact: bool = True) -> None:
        self._exact = exact
        self._floor = floor
        """The floor of all counters that have none of their own."""
        self._floors: dict[str, Instant] = {}
        self._entries: dict[str, dict[int, tuple[Entry, ...]]] = {}
        self._messages: dict[int, tuple[Collection[str], Collection[str]]] = {}
        self._unconfirmed: set[int] = set()
        self._late: set[int] = set()
        """Messages that are late, whatever their envelopes say."""
        self._keys: dict[str, int] = {}
        self._unknown: set[int] = set()
        """Messages in versions that this process does not know. They may add to any counter, so no view is exact."""
        self._views: dict[str, View] = {}
        self._empty = View((), floor, next(_VERSIONS), exact)

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
        by_counter: dict[str, tuple[Entry, ...]] = {}
        keys = [envelope.key for envelope in envelopes]
        for envelope in envelopes:
            self._keys[envelope.key] = self._keys.get(envelope.key, 0) + 1
            for counter, entry in envelope.entries():
                by_counter[counter] = (*by_counter.get(counter, ()), entry)
        for counter, entries in by_counter.items():
            self._entries.setdefault(counter, {})[number] = entries
            self._views.pop(counter, None)
        self._messages[number] = (by_counter.keys(), keys)

    def add_unknown(self, number: int) -> None:
        """Add a message whose increments this process can't read."""
        self._unknown.add(number)
        self._show_anew()

    def confirm(self, number: int) -> None:
        """Count the entries of a message that is known to be published."""
        self._unconfirmed.discard(number)
        for counter in self._messages[number][0]:
            self._views.pop(counter, None)

    def settle(self, numbers: Sequence[int], floor: Instant) -> None:
        """Remove messages that are known to be settled, and raise the floors of their counters to `floor`. A message
        that was never added here may have held any counter, so it raises the floor of all.
        """
        for number in numbers:
            if number not in self._messages:
                self._unknown.discard(number)
                self._raise_all(floor)
                continue
            for counter in self.withdraw(number):
                self._floors[counter] = max(floor, self._floors.get(counter, self._floor))
        if len(self._floors) > MOST_FLOORS:
            self._raise_all(max(self._floors.values()))

    def raise_floor(self, counter: str, floor: Instant) -> None:
        """Void what was read of the counter before `floor`."""
        self._floors[counter] = max(floor, self._floors.get(counter, self._floor))
        self._views.pop(counter, None)
        if len(self._floors) > MOST_FLOORS:
            self._raise_all(max(self._floors.values()))

    def withdraw(self, number: int) -> Collection[str]:
        """Remove a message that nobody has settled, so floors stay. Returns the counters that it had entries of."""
        counters, keys = self._messages.pop(number)
        self._unconfirmed.discard(number)
        self._late.discard(number)
        for counter in counters:
            entries = self._entries[counter]
            del entries[number]
            if not entries:
                del self._entries[counter]
            self._views.pop(counter, None)
        for key in keys:
            self._keys[key] -= 1
            if not self._keys[key]:
                del self._keys[key]
        return counters

    def view(self, counter: str) -> View:
        view = self._views.get(counter)
        if view is None:
            entries, floor = self._entries.get(counter, {}), self._floors.get(counter)
            if not entries and floor is None:
                return self._empty
            flat = [entry for number in sorted(entries) for entry in self._marked(number, entries[number])]
            view = View(tuple(flat), self._floor if floor is None else floor, next(_VERSIONS), self.exact)
            self._views[counter] = view
        return view

    def names(self, prefix: str) -> list[str]:
        return [counter for counter in self._entries if counter.startswith(prefix)]

    def holds(self, keys: Collection[str]) -> set[str]:
        return {key for key in keys if key in self._keys}

    def _marked(self, number: int, entries: tuple[Entry, ...]) -> Iterable[Entry]:
        if number not in self._unconfirmed and number not in self._late:
            return entries
        confirmed, late = number not in self._unconfirmed, number in self._late
        return [replace(entry, confirmed=confirmed, late=late or entry.late) for entry in entries]

    def _raise_all(self, floor: Instant) -> None:
        self._floor = max(self._floor, floor)
        self._floors = {counter: own for counter, own in self._floors.items() if own > self._floor}
        self._show_anew()

    def _show_anew(self) -> None:
        self._views.clear()
        self._empty = View((), self._floor, next(_VERSIONS), self.exact)


class KeptByBroker:
    """The writing side of an overlay whose entries are a broker's messages: publishes add them, acks settle them."""

    def entered(self, envelopes: Sequence[Envelope]) -> AbstractAsyncContextManager[None]:  # noqa: ARG002
        return nullcontext()

    def check(self) -> None:
        """Do nothing: the broker's own check is enough."""

    async def settle(self, settled: Collection[str], time: Instant) -> None:
        """Do nothing: the ack settles them."""

    async def unsettled(self, limit: int) -> Collection[str]:  # noqa: ARG002
        return ()
