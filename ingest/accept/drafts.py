"""What a client sent (`Batch`), and the drafts of envelopes in which it waits: how they are filled (`Coalescer`), how
long they wait (`Pace`), which uses of ids they hold, what clients are told, and their spans.
"""

from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from math import inf
from typing import Any, Final

import orjson

from shared.model.buckets import WallMillis
from shared.model.receipts import Note, key_of_envelope
from shared.model.words import MAX_SUM, Envelope, Increment
from shared.runtime.traces import REQUEST, BegunSpan, SpanLinks, Traces


@dataclass(slots=True)
class Batch:
    """What one request asks for: sums and counts of increments without ids; and the increments with ids."""

    sums: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    """Increments in a sum, where that is not 1."""
    keyed: list[Increment] = field(default_factory=list)
    increments: int = 0

    def entries(self) -> int:
        return len(self.sums) + len(self.keyed)

    def apart(self) -> "tuple[Batch, Batch]":
        keyed = Batch(keyed=self.keyed, increments=len(self.keyed))
        return Batch(self.sums, self.counts, [], self.increments - keyed.increments), keyed

    def by_counter(self) -> dict[str, int]:
        found = dict.fromkeys(self.sums, 1)
        found.update(self.counts)
        for item in self.keyed:
            found[item.counter] = found.get(item.counter, 0) + 1
        return found

    def content(self) -> bytes:
        """A digest of its sums and of its increments with ids. Batches with the same ones have the same digest."""
        keyed = [[*item] for item in self.keyed]
        return blake2b(orjson.dumps([self.sums, keyed], option=orjson.OPT_SORT_KEYS), digest_size=16).digest()

    def changed(self) -> list[str]:
        """The counters to which it adds something. What adds nothing makes no counter."""
        names = [name for name, total in self.sums.items() if total]
        return [*dict.fromkeys([*names, *(item.counter for item in self.keyed if item.delta)])]

    def drop(self, *, plain: Container[str] = (), keyed: Container[str] = ()) -> dict[str, int]:
        """Take out what is of these counters: without an id, and with one. Returns how many increments of each."""
        dropped: Counter[str] = Counter()
        for name in [name for name in self.sums if name in plain]:
            del self.sums[name]
            dropped[name] += self.counts.pop(name, 1)
        dropped.update(item.counter for item in self.keyed if item.counter in keyed)
        self.keyed = [item for item in self.keyed if item.counter not in keyed]
        self.increments -= dropped.total()
        return dropped


@dataclass(slots=True)
class Draft(Batch):
    """What waits to be published as one envelope: of one request, or of several that came at about the same time."""

    id: str = ""
    """The id of the envelope that it becomes."""
    attempt: str = ""
    """If the id is a client's: which use of it this is."""
    is_second: bool = False
    """If the id is a client's, and the draft is durable: whether this process knows an earlier use of it."""
    second_uses: set[int] = field(default_factory=set)
    """Once it is durable: the places in `keyed` of those whose ids this process knows from an earlier use."""
    weight: int = 0
    """An upper limit for the absolute value of each of its sums."""
    more: list[list[int]] = field(default_factory=list)
    """Sums of its first counters, of one increment each, that `add_up` adds to those in `sums`."""
    senders: dict[str, int] = field(default_factory=dict)
    """How much of the room each tenant holds until this draft is published."""
    posts: list[Any] = field(default_factory=list)
    """Who waits for it on the fast path, each with the place of its increment in `keyed`, or -1. All are answered
    together.
    """
    awaited: bool = False
    """Whether somebody waits until it is applied."""
    links: SpanLinks | None = None
    """The spans of the requests in it. None if no request has one."""
    traceparent: str = ""
    """The span of the draft, if it has one."""

    def join(self, batch: Batch) -> bool:
        """Add a batch without ids, if all its counters are here. What has the same counters in the same order, as
        batches of one client often do, is only kept until `add_up` adds it up in one go, which takes far less time.
        """
        if [*batch.sums] == [*self.sums]:
            if self.more and len(self.more[0]) < len(batch.sums):  # other counters came in between
                self.add_up()
            self.more.append([*batch.sums.values()])
            for name, count in batch.counts.items():
                self.counts[name] = self.counts.get(name, 1) + count - 1
        elif batch.sums.keys() <= self.sums.keys():
            for name, total in batch.sums.items():
                self.sums[name] += total
                self.counts[name] = self.counts.get(name, 1) + batch.counts.get(name, 1)
        else:
            return False
        self.increments += batch.increments
        return True

    def add_up(self) -> None:
        """Add what is in `more`. All of it has the counters that come first in `sums`."""
        if not self.more:
            return
        names, counts = [*self.sums][: len(self.more[0])], self.counts
        totals = zip([*self.sums.values()][: len(names)], *self.more, strict=True)
        self.sums.update(zip(names, map(sum, totals), strict=True))
        self.counts = dict.fromkeys(names, 1 + len(self.more))
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 1) + count - 1
        self.more = []

    def by_counter(self) -> dict[str, int]:
        self.add_up()
        return Batch.by_counter(self)

    def close(self, created: WallMillis, *, patient: bool = False) -> Envelope:
        self.add_up()
        keyed, retried = tuple(self.keyed), bool(self.attempt)
        return Envelope(
            self.id,
            self.sums,
            self.counts,
            keyed,
            created,
            increments=self.increments,
            retried=retried,
            attempt=self.attempt,
            traceparent=self.traceparent,
            patient=patient,
        )


def gathered(batches: Iterable[Batch]) -> Batch:
    """What several batches hold together. Its sums may be larger than those of a draft."""
    sums: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    keyed: list[Increment] = []
    for batch in batches:
        sums.update(batch.sums)
        counts.update(dict.fromkeys(batch.sums, 1) | batch.counts)
        keyed += batch.keyed
    return Batch(sums, counts, keyed, counts.total() + len(keyed))


# Sums increments that wait for a publish into envelopes that fit into one commit. Pure.


MAX_ENTRIES: Final = 1_000
"""Counters and ids in one envelope. With its receipts, shards and configs it fits into a commit of any store."""
LARGE: Final = 100
"""A batch with this many counters is not added one by one, which would cost more than it saves."""


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
"""This many requests in one publish make a stream."""
GAP: Final = 0.005
"""A stream ends when nothing comes for this many seconds."""
STRETCH: Final = 5
"""A stream waits at most for this many lingers."""
QUIET_TURNS: Final = 2
"""Where publishes are free, a stream ends when nothing comes for this many turns of the event loop."""
TOGETHER: Final = 0.0005
"""Seconds that it waits there at most. Clients that were answered together send their next requests together."""
ENOUGH: Final = 64
"""Requests in one publish there, which cost little each: none of them waits for more."""


class Pace:
    """Decides for one process when the next publish starts. It is told what happens, and asked how long to wait: a
    number of seconds before calling `look`, which may be 0 for the next turn of the event loop; None to publish in this
    turn.
    """

    def __init__(self, linger: float, *, metered: bool) -> None:
        """`metered`: each publish is paid for. Where it is free, it still takes the time of a commit."""
        self._linger = linger
        self._metered = metered
        self._longest = STRETCH * linger if metered else 0.0
        self._gap, self._turns = (GAP, 1) if metered else (0.0, QUIET_TURNS)
        self._enough = inf if metered else ENOUGH
        self._until = -inf
        """How long a stream may wait."""
        self._before = 0
        self._since = 0
        self._seen = 0
        self._quiet = 0

    def arrived(self) -> None:
        self._since += 1

    def started(self, now: float) -> None:
        self._until = now + self._longest
        self._before, self._since, self._seen, self._quiet = self._since, 0, 0, 0

    def streams(self, now: float) -> bool:
        return self._before >= STREAM and now < self._until and self._since < self._enough

    def delay(self, now: float, *, busy: bool) -> float | None:
        """How long to wait now that a publish could start, or beside those under way if the process is `busy`."""
        if not self._metered and not busy:
            self._until = now + TOGETHER
        if self.streams(now):
            return self.look(now)
        return self._linger if busy else None

    def look(self, now: float) -> float | None:
        """How long to wait still."""
        self._quiet = self._quiet + 1 if self._seen == self._since else 0
        self._seen = self._since
        if not self.streams(now) or self._quiet >= self._turns:
            return None
        return min(self._gap, self._until - now)


# Tells which uses of ids and keys a request made, and how many of them are known to be second ones. Pure.


class Uses:
    """The uses that a request made. Make it right after its increments were added: others may be added behind them."""

    def __init__(self, drafts: Sequence[Draft], keyed: int) -> None:
        """`drafts`: those that hold the request. `keyed`: how many increments with ids it has."""
        self._whole = [draft for draft in drafts if draft.attempt]
        self._items: list[tuple[Draft, range]] = []
        # The ids of this request are the last ones in each draft, and its last ids are in the last draft.
        for draft in reversed(drafts):
            there = len(draft.keyed)
            first = max(there - keyed, 0)
            if first < there:
                self._items.append((draft, range(first, there)))
                keyed -= there - first

    def second(self, notes: Mapping[str, Note] | None = None) -> int:
        """How many increments are known to be second uses, once the drafts are durable: by this process, and by the
        notes of their receipts.
        """
        notes = notes or {}
        return sum([draft.increments for draft in self._whole if _is_second(draft, notes)]) + sum(
            [_second_in(draft, places, notes) for draft, places in self._items]
        )


def _is_second(draft: Draft, notes: Mapping[str, Note]) -> bool:
    note = notes.get(key_of_envelope(draft.id)) if notes else None
    return draft.is_second or (note is not None and note.attempt not in {"", draft.attempt})


def _second_in(draft: Draft, places: range, notes: Mapping[str, Note]) -> int:
    note = notes.get(key_of_envelope(draft.id)) if notes else None
    known = draft.second_uses if note is None else draft.second_uses.union(note.second_uses)
    return sum([place in known for place in places]) if known else 0


_DUPLICATE: Final = b',"duplicate":true'


def accepted_one(receipt: str, *, is_second: bool, more: bytes = b"") -> bytes:
    """The answer to one increment that is durable. `is_second`: its id is known to have been used before. `more`:
    further fields.
    """
    return b'{"accepted":1,"receipt":"%b"%b%b}' % (receipt.encode(), _DUPLICATE if is_second else b"", more)


def accepted_many(
    increments: int,
    receipt: str,
    second: int = 0,
    *,
    rejected: Sequence[Mapping[str, Any]] = (),
    bad: int = 0,
    **more: Any,
) -> bytes:
    """The answer to a batch. `increments`: how many were accepted. `second`: how many of their ids are known to have
    been used before. `bad`: how many items were rejected; `rejected` may list fewer. `more`: further fields.
    """
    answer = {"accepted": increments, "rejected": rejected, "receipt": receipt}
    if bad > len(rejected):
        answer["rejected_count"] = bad
    if second:
        answer |= {"duplicates": second} | ({"duplicate": True} if second == increments else {})
    return orjson.dumps(answer | more)


# Makes the spans of envelopes: which requests each one links to, and when it begins and ends.


def link_request(*drafts: Draft) -> None:
    """Link these drafts to the request that is being answered, if it has a span."""
    request = REQUEST.get()
    if request is None or request.span is None:
        return
    for draft in drafts:
        draft.links = draft.links or SpanLinks()
        draft.links.add(request.span)


def begun(traces: Traces | None, drafts: Iterable[Draft]) -> list[BegunSpan]:
    """Begin the spans of drafts that are published now: of those that are linked to a request, and no others."""
    spans: list[BegunSpan] = []
    if traces is not None:
        for draft in drafts:
            if draft.links is not None:
                span = traces.envelope(draft.links, draft.increments)
                if span.trace.sampled:
                    draft.traceparent = span.trace.traceparent()
                spans.append(span)
    return spans
