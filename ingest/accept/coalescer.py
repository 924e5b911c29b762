"""Sums increments that wait for a publish into envelopes that fit into one commit; and how long they wait
(`Pace`). Pure.
"""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from ingest.accept.batch import Batch, Draft
from shared.model.words import MAX_SUM, Increment

MAX_ENTRIES: Final = 1_000
"""Counters and ids in one envelope. With its receipts, shards and configs it fits into a commit of any store."""
LARGE: Final = 100
"""A batch with so many counters is not added one by one, which would cost more than it saves."""


class Coalescer:
    """Adds increments to the newest draft, and opens another when it is full. Drafts are taken in order of arrival."""

    def __init__(self, mint: Callable[[], str], max_entries: int = MAX_ENTRIES) -> None:
        self._mint = mint
        self._max_entries = max_entries
        self._closed: deque[Draft] = deque()
        self._open: Draft | None = None
        self.waiting = 0
        """The number of increments that have not been taken."""

    def __bool__(self) -> bool:
        return self._open is not None or bool(self._closed)

    def drafts(self) -> Iterator[Draft]:
        """All drafts that have not been taken."""
        yield from self._closed
        if self._open is not None:
            yield self._open

    def add(self, counter: str, total: int, count: int = 1) -> Draft:
        """Add `count` increments without an id that sum to `total`."""
        draft = self._open
        weight = abs(total)
        if draft is None or draft.entries() >= self._max_entries or draft.weight + weight > MAX_SUM:
            draft = self._next()
        draft.weight += weight
        there = draft.sums.get(counter)
        if there is not None:
            draft.counts[counter] = draft.counts.get(counter, 1) + count
            total += there
        elif count != 1:
            draft.counts[counter] = count
        draft.sums[counter] = total
        draft.increments += count
        self.waiting += count
        return draft

    def add_keyed(self, item: Increment) -> Draft:
        """Add one increment with an id."""
        draft = self._open
        weight = abs(item.delta)
        if draft is None or draft.entries() >= self._max_entries or draft.weight + weight > MAX_SUM:
            draft = self._next()
        draft.weight += weight
        draft.keyed.append(item)
        draft.increments += 1
        self.waiting += 1
        return draft

    def add_batch(self, batch: Batch) -> list[Draft]:
        """Add a batch. Returns the drafts that hold it."""
        drafts: dict[str, Draft] = {}
        if len(batch.sums) >= LARGE:
            for part in self._divide(batch):
                draft = self._join(part)
                drafts[draft.id] = draft
        else:
            for counter, total in batch.sums.items():
                draft = self.add(counter, total, batch.counts.get(counter, 1))
                drafts[draft.id] = draft
        for item in batch.keyed:
            draft = self.add_keyed(item)
            drafts[draft.id] = draft
        return list(drafts.values())

    def add_whole(self, batch: Batch, envelope_id: str) -> Draft:
        """Add a batch as one envelope, with its client's id. Check `fits` before."""
        self._seal()
        draft = Draft(batch.sums, batch.counts, batch.keyed, batch.increments, envelope_id, self._mint())
        self._closed.append(draft)
        self.waiting += draft.increments
        return draft

    def fits(self, batch: Batch) -> bool:
        return batch.entries() <= self._max_entries

    def take(self, limit: int) -> list[Draft]:
        """Take up to `limit` drafts, the oldest first."""
        if len(self._closed) < limit:
            self._seal()
        taken = [self._closed.popleft() for _ in range(min(limit, len(self._closed)))]
        self.waiting -= sum(draft.increments for draft in taken)
        return taken

    def _join(self, batch: Batch) -> Draft:
        """Add a large batch to the open draft if that has all its counters, which saves names; else to a new one."""
        draft = self._open
        weight = max(map(abs, {*batch.sums.values()}))
        if draft is None or draft.weight + weight > MAX_SUM or not draft.join(batch):
            draft = self._next(batch)
        draft.weight += weight
        self.waiting += batch.increments
        return draft

    def _divide(self, batch: Batch) -> Iterator[Batch]:
        if self.fits(batch) and not batch.keyed:
            yield batch
            return
        sums = iter(batch.sums.items())
        while some := dict(islice(sums, self._max_entries)):
            counts = {name: batch.counts[name] for name in some if name in batch.counts}
            yield Batch(some, counts, [], len(some) + sum(counts.values()) - len(counts))

    def _next(self, batch: Batch | None = None) -> Draft:
        self._seal()
        of = batch or Batch()
        self._open = draft = Draft(of.sums, of.counts, of.keyed, of.increments, self._mint())
        return draft

    def _seal(self) -> None:
        if self._open is not None:
            self._closed.append(self._open)
            self._open = None


# Decides how long increments wait for others before they are published together. Pure.


STREAM: Final = 4
"""So many requests in one publish make a stream."""
GAP: Final = 0.005
"""A stream ends when nothing comes for so many seconds."""
STRETCH: Final = 5
"""A stream waits at most for so many lingers."""


class Pace:
    """Decides for one process when the next publish starts. It is told what happens, and asked how long to wait."""

    def __init__(self, linger: float, *, metered: bool) -> None:
        self._linger = linger
        self._longest = STRETCH * linger if metered else 0.0
        self._last = float("-inf")
        self._before = 0
        self._since = 0
        self._seen = 0

    def arrived(self) -> None:
        """Called when a request's increments have come."""
        self._since += 1

    def started(self, now: float) -> None:
        """Called when a publish of everything that had come starts."""
        self._last = now
        self._before, self._since, self._seen = self._since, 0, 0

    def streams(self, now: float) -> bool:
        return self._before >= STREAM and now - self._last < self._longest

    def delay(self, now: float, *, busy: bool) -> float:
        """Seconds to wait before calling `look`; 0 to publish at once. `busy`: a publish is under way."""
        if self.streams(now):
            return self.look(now)
        return self._linger if busy else 0.0

    def look(self, now: float) -> float:
        """Seconds to wait before calling it again; 0 to publish now."""
        ended = self._seen == self._since
        self._seen = self._since
        if ended or not self.streams(now):
            return 0.0
        return min(GAP, self._last + self._longest - now)
