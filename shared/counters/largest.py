"""The largest counters under some prefixes, with exact values. docs/adr/0033-largest-first.md says why none is
missed.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import Final

from shared.counters.reader import Reader, looking
from shared.model.buckets import BEGINNING
from shared.model.words import MAX_SUM, Entry, Reading, View, pages
from shared.ports.overlay import Overlay
from shared.ports.store import RankedStore, Snapshot
from shared.runtime.clock import Clock

MOST_IN_TURN: Final = 10_000
"""Counters with something pending that are read at one instant. More are read in turn: each takes about a kilobyte."""


_ANYTHING: Final = View((Entry("", MAX_SUM), Entry("", -MAX_SUM)), BEGINNING, 0, exact=False)
"""The view of a counter that may have any amount pending."""


class Largest:
    """Finds the counters with the greatest values; of equal ones, those whose names come first."""

    def __init__(self, store: RankedStore, overlay: Overlay, clock: Clock, reader: Reader) -> None:
        """`reader`: of the same process. What it shows later is not older than what is shown here."""
        self._store = store
        self._overlay = overlay
        self._clock = clock
        self._reader = reader
        self._turn = asyncio.Lock()

    async def read(self, prefixes: Sequence[str], limit: int) -> tuple[Sequence[Reading], bool]:
        """At most `limit` readings, the largest first; and whether they are exact, and the largest at one instant.

        One call looks at all counters under the prefixes, which keeps a processor busy. So there is one at a time.
        """
        readings, exact = await self._find(prefixes, limit)
        await self._reader.forget([reading.name for reading in readings])
        return readings, exact

    async def _find(self, prefixes: Sequence[str], limit: int) -> tuple[Sequence[Reading], bool]:
        async with self._turn:
            names = [name for prefix in prefixes for name in await self._overlay.names(prefix, "", MOST_IN_TURN + 1)]
            if len(names) > MOST_IN_TURN:
                return await self._in_turn(prefixes, limit), False
            return await self._at_once(prefixes, limit)

    async def _at_once(self, prefixes: Sequence[str], limit: int) -> tuple[Sequence[Reading], bool]:
        whole = False

        async def candidates(snapshot: Snapshot) -> Mapping[str, View] | None:
            nonlocal whole
            views, rest = await self._overlay.under(prefixes)
            whole = self._overlay.shared and rest.exact
            if snapshot.time < rest.floor:
                return None
            names = await self._store.largest(snapshot, prefixes, limit, views)
            return {name: views.get(name, rest) for name in names}

        async with looking(self._store, self._overlay, self._clock, (), choose=candidates) as look:
            readings = (await look.readings()).values()
            return _largest(readings, limit), whole and all(reading.exact for reading in readings)

    async def _in_turn(self, prefixes: Sequence[str], limit: int) -> Sequence[Reading]:
        pending = [name for prefix in prefixes for name in await self._overlay.names(prefix)]
        async with self._store.snapshot() as snapshot:
            stored = await self._store.largest(snapshot, prefixes, limit, dict.fromkeys(pending, _ANYTHING))
        found: Sequence[Reading] = ()
        for some in pages(dict.fromkeys((*stored, *pending)), MOST_IN_TURN):
            async with looking(self._store, self._overlay, self._clock, some) as look:
                found = _largest((*found, *(await look.readings()).values()), limit)
        return found


def _largest(readings: Iterable[Reading], limit: int) -> Sequence[Reading]:
    there = (reading for reading in readings if reading.exists)
    return nsmallest(limit, there, key=lambda reading: (-reading.value, reading.name))
