"""Reads counters exactly, from cached bases, with one lookup in flight per counter for all its readers; lists them, and
finds the largest.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from heapq import nsmallest
from typing import Final, NamedTuple

from shared.counters.pending import Base, doubtful, exists, ids_of, keys_of, pending, pending_since
from shared.model.buckets import BEGINNING, Instant, Monotonic, WallSeconds
from shared.model.errors import InexactError, OverloadedError, TransientError
from shared.model.words import MAX_SUM, Entry, Guard, Lately, Reading, Total, View, pages
from shared.ports.overlay import Overlay
from shared.ports.store import CounterNames, NameSearch, RankedStore, Snapshot, Snapshots
from shared.runtime import metrics
from shared.runtime.clock import Clock

MOST_BASES: Final = 20_000
LONGEST_AGE: Final = 60.0
MOST_TRIES: Final = 100
"""Tries for one snapshot. A floor may rise meanwhile, but hardly twice; a restored backup of a store stays below it."""
LONGER: Final = 0.0002
"""Seconds by which the pause after each such try is longer than the one before: 1 s in all. Others may run even in the
first pause. The Firestore emulator shows what it has committed up to 0.3 s later.
"""
MOST_LOOKUPS: Final = 32
"""Concurrent lookups; others wait. Each uses a connection to a file or a call to a server."""
MOST_IN_FLIGHT: Final = 100_000
"""Counters being looked up or waiting for it. Beyond that, reads are refused and may be retried."""
LARGE: Final = 5_000
"""Entries, or ids in them. More are added up in a thread."""
_NO_KEYS: Final[frozenset[str]] = frozenset()
_LOOKED_UP = metrics.READS.labels("looked up")
_CACHED = metrics.READS.labels("cached")


def _is_large(view: View) -> bool:
    """Whether to add up its entries would keep the event loop busy for too long."""
    entries = view.entries
    return len(entries) > LARGE or sum([len(entry.keyed) for entry in entries]) > LARGE


def _keys_of_all(views: Mapping[str, View]) -> dict[str, frozenset[str]]:
    return {name: frozenset(keys_of(view)) for name, view in views.items()}


def _is_too_early(snapshot: Snapshot, views: Mapping[str, View]) -> bool:
    """Whether an entry that the snapshot needs may be gone from a view."""
    return any(snapshot.time < view.floor for view in views.values())


async def _settle_found(
    overlay: Overlay, views: Mapping[str, View], settled: Collection[str], time: Instant
) -> Collection[str]:
    """Remove the entries that a snapshot at `time` found settled, before anything is answered from it.

    Others count an entry that is confirmed, whatever they have read. But what is unconfirmed and applied is only in
    snapshots that are late enough, so the floor must rise before the first of them is shown. Returns the counters for
    which that failed: they show what others may not see yet, so they are not exact.
    """
    if not settled:
        return ()
    found = {
        name: [entry for entry in view.entries if entry.key in settled] for name, view in views.items() if view.entries
    }
    keys = {entry.key for entries in found.values() for entry in entries}
    if not keys:
        return ()
    epochs = {view.epoch for view in views.values() if view.exact}
    try:
        await overlay.settle(keys, time, max(epochs, default=""))
    except TransientError:  # the next snapshot tries again
        return {name for name, entries in found.items() if not all(entry.confirmed for entry in entries)}
    return ()


class Look(NamedTuple):
    """Some counters at one instant: what the store holds, and the entries that were pending then."""

    snapshot: Snapshot
    views: Mapping[str, View]
    totals: Mapping[str, Total]
    asked: Mapping[str, frozenset[str]]
    """The receipts that were asked for, of the counters that have entries."""
    settled: Collection[str]
    """The receipts that the store had settled, of those that were asked for."""
    born: Monotonic
    viewed: int
    """`born` and `viewed` are as in `Base`."""
    ahead: Collection[str]
    """Counters that may show what others do not see yet, so they are not exact."""
    large: Collection[str]
    """Counters with so many entries that they are added up in a thread."""

    def base(self, name: str) -> Base:
        at, total, asked = self.snapshot, self.totals[name], self.asked.get(name, _NO_KEYS)
        if total.dead:
            asked = asked.union(ids_of(total.dead))
        settled = asked.intersection(self.settled) if asked else asked
        return Base(at.time, at.as_of, at.now, total, asked, settled, self.born, self.views[name].epoch, self.viewed)

    async def pending(self, name: str, base: Base, each: list[tuple[Entry, int]] | None = None) -> int:
        """What a counter has pending, besides its base. `each` gets what each entry adds."""
        view, large = self.views[name], name in self.large
        more = await asyncio.to_thread(pending, base, view, each) if large else pending(base, view, each)
        assert more is not None, "the view's floor and receipts were asked for"  # noqa: S101
        return more

    def waits(self, name: str) -> bool:
        """Whether anything may be pending of a counter. Of most counters in a list, nothing is."""
        return bool(self.views[name].entries or self.totals[name].dead)

    async def readings(self) -> dict[str, Reading]:
        """All of them, in the order of the views."""
        return {
            name: await self._summed(name)
            if self.waits(name)
            else _stored(name, self.totals[name], view, self.snapshot.as_of)
            for name, view in self.views.items()
        }

    async def _summed(self, name: str) -> Reading:
        base = self.base(name)
        found = reading_of(name, base, self.views[name], await self.pending(name, base))
        return found._replace(exact=False) if name in self.ahead else found


def _stored(name: str, total: Total, view: View, as_of: WallSeconds) -> Reading:
    """The reading of a counter that has nothing pending or dead."""
    value, shards, guard, _, _, flaw, updated = total
    there = shards > 0 and not (guard.deleted and value == 0)
    return Reading(
        name, value, 0, view.exact and not flaw, as_of, shards, there, guard.version, updated if there else 0
    )


def reading_of(name: str, base: Base, view: View, more: int) -> Reading:
    """The reading with `more` pending."""
    return Reading(
        name=name,
        applied=base.total.value,
        pending=more,
        exact=view.exact and not base.total.flaw and not doubtful(base),
        as_of=base.as_of,
        shards=base.total.shards,
        exists=(there := exists(base, view, more)),
        generation=base.total.guard.version,
        updated=base.total.updated if there else 0,
    )


@asynccontextmanager
async def looking(
    store: Snapshots,
    overlay: Overlay,
    clock: Clock,
    names: Sequence[str],
    *,
    also: Collection[str] = (),
    viewed: Callable[[], int] = lambda: 0,
    choose: Callable[[Snapshot], Awaitable[Mapping[str, View] | None]] | None = None,
) -> AsyncIterator[Look]:
    """Choose the instant, then read the overlay, then totals and the receipts of all its entries at the instant, and
    those of `also`. `viewed` is called after the view: see `Base`. `choose` finds out at the instant which counters to
    look at, and returns their views; None if the instant is too early.
    """
    for tried in range(MOST_TRIES):
        born = clock.monotonic()
        async with store.snapshot() as snapshot:
            views = await (choose(snapshot) if choose is not None else overlay.view(names))
            number = viewed()
            if views is None or _is_too_early(snapshot, views):
                await asyncio.sleep(tried * LONGER)
                continue
            waiting = {name: view for name, view in views.items() if view.entries}
            large = {name for name, view in waiting.items() if _is_large(view)}
            asked = await asyncio.to_thread(_keys_of_all, waiting) if large else _keys_of_all(waiting)
            totals, settled = await snapshot.read([*views], frozenset(also).union(*asked.values()))
            ahead = await _settle_found(overlay, views, settled, snapshot.time)
            yield Look(snapshot, views, totals, asked, settled, born, number, ahead, large)
            return
    raise TransientError(
        "the store lacks increments that the broker knows to be applied: check that they belong together, and whether"
        " the store was restored from a backup"
    )


class _Answer(NamedTuple):
    """A reading, with the base and the view that it was made from."""

    base: Base
    view: View
    reading: Reading


class FreshRead(NamedTuple):
    """A reading of an instant within the call, and what else the store held at that instant."""

    reading: Reading
    guard: Guard
    receipt_settled: bool
    flaw: str = ""
    """Why the store's part of the value is unknown."""
    epoch: str = ""


class Reader:
    """Reads counters. `max_age` is the greatest age of a base in seconds; what is pending is always current."""

    def __init__(self, store: Snapshots, overlay: Overlay, clock: Clock, cache_ttl: float) -> None:
        self._store = store
        self._overlay = overlay
        self._clock = clock
        self._cache_ttl = cache_ttl
        self._answers: Lately[str, _Answer] = Lately(MOST_BASES)
        self._flights: dict[str, asyncio.Task[Mapping[str, Reading]]] = {}
        self._slots = asyncio.Semaphore(MOST_LOOKUPS)
        self._viewed = 0
        """How many views bases were made with."""

    async def read(self, counters: Sequence[str], max_age: float | None = None) -> list[Reading]:
        """One reading per counter, in order. A reading is not `exact` if its view or its base is not."""
        age = self._age(max_age)
        if len(counters) > 1 and not age and self._are_unknown(counters):
            fresh = await self._fresh(counters)
            if self._are_unknown(counters):
                return _noted([fresh[name] for name in counters])
        found = await self._view(counters, age)
        missing = [name for name, reading in found.items() if reading is None]
        _CACHED.inc(len(found) - len(missing))
        if missing:
            found |= await self._look_up(missing, age)
            _LOOKED_UP.inc(len(missing))
        return _noted([found[name] for name in counters])  # type: ignore[misc] # all were found

    async def cached(self, counters: Sequence[str], max_age: float | None = None) -> dict[str, Reading]:
        """Readings of those counters for which a view will do that is taken within the call. The others may have to
        wait for the store or a thread. A counter counts as read as often as it stands here.
        """
        found = await self._view(counters, self._age(max_age), waits=False)
        cached = {name: reading for name, reading in found.items() if reading is not None}
        _CACHED.inc(len(_noted([cached[name] for name in counters if name in cached])))
        return cached

    def read_lately(self, counters: Collection[str]) -> bool:
        """Whether any of them was looked up in the last minute. If there are very many, the earliest are forgotten."""
        since = self._clock.monotonic() - LONGEST_AGE
        return any(self._answers[name].base.born >= since for name in self._answers.keys() & counters)

    async def forget(self, counters: Iterable[str]) -> None:
        """Drop the readings of these counters that are kept: a client has been shown newer ones. A lookup in flight may
        return older ones, too, so wait for its end first.
        """
        names = [*counters]
        if earlier := {self._flights[name] for name in names if name in self._flights}:
            await asyncio.wait(earlier)
        for name in names:
            self._answers.pop(name, None)

    async def look(self, counter: str, receipt: str) -> FreshRead:
        """Read one counter from the store, with its guard and whether that receipt is settled, all at one instant.

        The base is not cached, since a lookup in flight may have one of a later instant, or replace it by an older one.
        """
        async with self._slots, looking(self._store, self._overlay, self._clock, (counter,), also=(receipt,)) as look:
            reading, total = (await look.readings())[counter], look.totals[counter]
            return FreshRead(reading, total.guard, receipt in look.settled, total.flaw, look.views[counter].epoch)

    def _age(self, max_age: float | None) -> float:
        return self._cache_ttl if max_age is None else min(max_age, LONGEST_AGE)

    async def _view(self, names: Sequence[str], age: float, *, waits: bool = True) -> dict[str, Reading | None]:
        """Readings from the cached bases and a current view; None where no base will do. Unless it `waits`, also where
        so much is pending that it is added up in a thread. No view is asked for where there is no base of that age.
        A base that became older until the view came will not do: marks of what it lacks may be forgotten.

        If a base was made after the view was asked for, the view is asked for again: it may hold an entry that was
        applied and removed before the base asked for receipts, so the increment would count twice.
        """
        found: dict[str, Reading | None] = dict.fromkeys(names)
        answers, earliest = self._answers, self._clock.monotonic() - age
        rest = [name for name in found if (old := answers.get(name)) is not None and old.base.born >= earliest]
        while rest:
            begun = self._viewed
            views = await self._overlay.view(rest)
            rest = []
            for name, view in views.items():
                answer = answers.get(name)
                if answer is not None and answer.base.viewed > begun:
                    rest.append(name)
                elif answer is not None:
                    found[name] = await self._cached(name, answer, view, age, waits)
        return found

    async def _cached(self, name: str, answer: _Answer, view: View, age: float, waits: bool) -> Reading | None:
        """A reading from the cached base and the view; None if the base will not do."""
        if self._clock.monotonic() - answer.base.born > age:
            return None
        if answer.view.version == view.version:
            return answer.reading
        more, keep = pending_since(answer.base, answer.reading.pending, answer.view, view), True
        if more is None and _is_large(view):
            if not waits:
                return None
            more = await asyncio.to_thread(pending, answer.base, view)
            keep = self._answers.get(name) is answer
        elif more is None:
            more = pending(answer.base, view)
        return None if more is None else self._combine(name, answer.base, view, more, keep=keep)

    def _combine(self, name: str, base: Base, view: View, more: int, *, keep: bool = True) -> Reading:
        """The reading with `more` pending."""
        reading = reading_of(name, base, view, more)
        if keep:
            self._answers[name] = _Answer(base, view, reading)
        return reading

    async def _look_up(self, names: Sequence[str], age: float) -> Mapping[str, Reading]:
        """Wait for the lookups in flight, then look up together what is still missing.

        The base of a lookup that began before this read needs a current view. A lookup that began after it took its
        view within this read, so its readings are used as they are. So a read waits for two lookups at most.
        """
        found: dict[str, Reading] = {}
        earlier = {self._flights[name] for name in names if name in self._flights}
        if earlier:
            await asyncio.wait(earlier)
            views = await self._view(names, age)
            found = {name: reading for name, reading in views.items() if reading is not None}
        later = {self._flights[name] for name in names if name not in found and name in self._flights}
        own = [name for name in names if name not in found and name not in self._flights]
        if own:
            later.add(self._take_off(own))
        for flight in later:
            found |= await asyncio.shield(flight)
        return found

    def _take_off(self, names: Sequence[str]) -> asyncio.Task[Mapping[str, Reading]]:
        if len(self._flights) + len(names) > MOST_IN_FLIGHT:
            raise OverloadedError(f"{len(self._flights)} counters are being looked up: read fewer at once")
        flight = asyncio.create_task(self._snapshot(names), name=f"lookup of {names[0]}")

        def landed(flight: asyncio.Task[Mapping[str, Reading]]) -> None:
            for name in names:
                del self._flights[name]
            if not flight.cancelled():
                flight.exception()  # mark it as seen: each waiter gets it, but there may be none left

        for name in names:
            self._flights[name] = flight
        flight.add_done_callback(landed)
        return flight

    def _are_unknown(self, names: Sequence[str]) -> bool:
        return self._answers.keys().isdisjoint(names) and self._flights.keys().isdisjoint(names)

    async def _fresh(self, names: Sequence[str]) -> Mapping[str, Reading]:
        """Readings that are not kept, as others would have to make room for them. If an earlier base of one of them is
        kept, or comes to be kept, the next reading would show less.
        """
        async with self._slots, looking(self._store, self._overlay, self._clock, names) as look:
            _LOOKED_UP.inc(len(look.views))
            return await look.readings()

    async def _snapshot(self, names: Sequence[str]) -> Mapping[str, Reading]:
        store, overlay, clock = self._store, self._overlay, self._clock
        async with self._slots, looking(store, overlay, clock, names, viewed=self._count_view) as look:
            found = {}
            for name, view in look.views.items():
                base, ahead = look.base(name), name in look.ahead
                more = await look.pending(name, base) if look.waits(name) else 0
                reading = self._combine(name, base, view, more, keep=not ahead)
                found[name] = reading._replace(exact=False) if ahead else reading
            return found

    def _count_view(self) -> int:
        self._viewed += 1
        return self._viewed


def _noted(readings: list[Reading]) -> list[Reading]:
    if inexact := sum([not reading.exact for reading in readings]):
        metrics.INEXACT.inc(inexact)
    return readings


# Lists counters: those in the store, together with those whose increments are all pending or dead.


ALL: Final = 2**31
"""A limit for names of dead letters, which are few."""


class AllNames:
    """Lists every counter that has an accepted increment."""

    def __init__(self, store: CounterNames, overlay: Overlay) -> None:
        self._store = store
        self._overlay = overlay

    @property
    def searchable(self) -> bool:
        return isinstance(self._store, NameSearch)

    async def under(
        self, prefixes: Iterable[str], limit: int, after: str = "", part: str = ""
    ) -> tuple[list[str], bool]:
        """The first names under these prefixes, which are in order. And whether none is known to be missing: of a
        counter that had an accepted increment before the call.
        """
        names: list[str] = []
        complete = True
        for prefix in prefixes:
            page = partial(self.page, prefix, after, limit - len(names), part=part)
            try:
                names += await page(exact=True)
                complete = complete and self._overlay.shared
            except InexactError:
                names += await page(exact=False)
                complete = False
            if len(names) == limit:
                break
        return names, complete

    async def page(
        self, prefix: str, after: str, limit: int, until: str | None = None, *, part: str = "", exact: bool = False
    ) -> Sequence[str]:
        """Names as `CounterNames.names` returns them. Some may turn out not to exist when they are read. With `part`,
        only names that have it anywhere, which takes `searchable`.

        Increments move from the overlay to the dead letters or the store, and from the dead letters to the store. So
        these are read in that order: a counter that moves meanwhile is found twice and not missed. With `exact`,
        `InexactError` if an overlay that is shared may lack increments that other processes accepted.
        """
        exact = exact and self._overlay.shared
        pending = await self._overlay.names(prefix, after, None if part else limit, exact=exact)
        dead = await self._store.dead_names(prefix, after, ALL if part else limit)
        if part and isinstance(self._store, NameSearch):
            stored = await self._store.names_with(part, prefix, after, limit)
        else:
            stored = await self._store.names(prefix, after, limit, until)
        others = [name for name in (*pending, *dead) if part in name]
        names = sorted({*others, *stored}) if others else stored
        return [name for name in names if until is None or name <= until][:limit]


# Finds the largest counters under some prefixes, with exact values. docs/adr/0033-largest-first.md says why none is
# missed.


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
        async with self._turn:
            names = [name for prefix in prefixes for name in await self._overlay.names(prefix, "", MOST_IN_TURN + 1)]
            if len(names) > MOST_IN_TURN:
                readings, exact = await self._in_turn(prefixes, limit), False
            else:
                readings, exact = await self._at_once(prefixes, limit)
        await self._reader.forget([reading.name for reading in readings])
        return readings, exact

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
