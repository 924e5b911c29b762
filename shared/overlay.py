"""Owns, in memory, the entries of accepted envelopes that have not been acknowledged, per counter. Pure."""

from collections.abc import Collection, Sequence
from itertools import count
from typing import Final

from shared.parts import parts_of
from shared.words import Entry, Envelope, View

_VERSIONS: Final = count(1)
"""Of all in this process, so that one that takes the place of another can't show an old version again."""


MOST_FLOORS: Final = 100_000
"""Beyond it all counters get the greatest, which voids more bases than necessary, once."""


class Pending:
    """A broker's pending messages as an overlay: a message there is an entry there."""

    def __init__(self, floor: int = 0) -> None:
        self._floor = floor
        """Of all counters that have none of their own."""
        self._floors: dict[str, int] = {}
        self._entries: dict[str, dict[int, tuple[Entry, ...]]] = {}
        self._messages: dict[int, tuple[Collection[str], Collection[str]]] = {}
        self._keys: dict[str, int] = {}
        self._views: dict[str, View] = {}
        self._empty = View((), floor, next(_VERSIONS))

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, number: int, envelope: Envelope) -> None:
        """Message `number` is there. Numbers rise in the order in which envelopes are to win."""
        by_counter: dict[str, tuple[Entry, ...]] = {}
        keys = []
        for part in parts_of(envelope):
            keys.append(part.key)
            self._keys[part.key] = self._keys.get(part.key, 0) + 1
            for counter, entry in part.entries():
                by_counter[counter] = (*by_counter.get(counter, ()), entry)
        for counter, entries in by_counter.items():
            self._entries.setdefault(counter, {})[number] = entries
            self._views.pop(counter, None)
        self._messages[number] = (by_counter.keys(), keys)

    def remove(self, numbers: Sequence[int], floor: int) -> None:
        """These messages are known to be applied at `floor`. Of one that was never seen here, any counter may be."""
        for number in numbers:
            if number not in self._messages:
                self._raise_all(floor)
                continue
            counters, keys = self._messages.pop(number)
            for counter in counters:
                entries = self._entries[counter]
                del entries[number]
                if not entries:
                    del self._entries[counter]
                self._floors[counter] = max(floor, self._floors.get(counter, self._floor))
                self._views.pop(counter, None)
            for key in keys:
                self._keys[key] -= 1
                if not self._keys[key]:
                    del self._keys[key]
        if len(self._floors) > MOST_FLOORS:
            self._raise_all(max(self._floors.values()))

    def view(self, counter: str) -> View:
        view = self._views.get(counter)
        if view is None:
            entries, floor = self._entries.get(counter), self._floors.get(counter)
            if entries is None and floor is None:
                return self._empty
            flat = tuple([entry for number in sorted(entries) for entry in entries[number]]) if entries else ()
            view = View(flat, self._floor if floor is None else floor, next(_VERSIONS))
            self._views[counter] = view
        return view

    def names(self, prefix: str) -> list[str]:
        return [counter for counter in self._entries if counter.startswith(prefix)]

    def holds(self, keys: Collection[str]) -> set[str]:
        return {key for key in keys if key in self._keys}

    def _raise_all(self, floor: int) -> None:
        self._floor = max(self._floor, floor)
        self._floors = {counter: own for counter, own in self._floors.items() if own > self._floor}
        self._views.clear()
        self._empty = View((), self._floor, next(_VERSIONS))
