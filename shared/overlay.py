"""Owns, in memory, the entries of accepted envelopes that have not been acknowledged, per counter. Pure."""

from collections.abc import Collection, Mapping, Sequence
from itertools import count
from typing import Final

from shared.parts import parts_of
from shared.words import Entry, Envelope, View

_VERSIONS: Final = count(1)
"""Of all in this process, so that one that takes the place of another can't show an old version again."""


class Pending:
    """A broker's pending messages as an overlay: a message there is an entry there.

    One floor serves all counters: an ack voids every base, which costs a read of each counter that is being read.
    """

    def __init__(self, floor: int = 0) -> None:
        self._floor = floor
        self._entries: dict[str, dict[int, tuple[Entry, ...]]] = {}
        self._messages: dict[int, tuple[Collection[str], Collection[str]]] = {}
        self._keys: dict[str, int] = {}
        self._views: dict[str, View] = {}
        self._empty = self._make_view({})

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
        """These messages are known to be applied at `floor`."""
        for number in numbers:
            counters, keys = self._messages.pop(number, ((), ()))
            for counter in counters:
                entries = self._entries[counter]
                del entries[number]
                if not entries:
                    del self._entries[counter]
            for key in keys:
                self._keys[key] -= 1
                if not self._keys[key]:
                    del self._keys[key]
        self._floor = max(self._floor, floor)
        self._views.clear()
        self._empty = self._make_view({})

    def view(self, counter: str) -> View:
        entries = self._entries.get(counter)
        if entries is None:
            return self._empty
        view = self._views.get(counter)
        if view is None:
            self._views[counter] = view = self._make_view(entries)
        return view

    def _make_view(self, entries: Mapping[int, tuple[Entry, ...]]) -> View:
        flat = tuple([entry for number in sorted(entries) for entry in entries[number]])
        return View(flat, self._floor, next(_VERSIONS))

    def names(self, prefix: str) -> list[str]:
        return [counter for counter in self._entries if counter.startswith(prefix)]

    def holds(self, keys: Collection[str]) -> set[str]:
        return {key for key in keys if key in self._keys}

    def __len__(self) -> int:
        return len(self._messages)
