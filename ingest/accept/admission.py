"""Limits how many increments may wait or be pending, shares that room, and remembers the ids of clients
(`KnownIds`).
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from ingest.accept.drafts import Batch, Draft
from ingest.parsing.parse import BodyError
from shared.http.shares import Shares, excess_of
from shared.model.buckets import Monotonic
from shared.model.errors import OverloadedError, ShareError
from shared.model.receipts import CLIENT_IDS_REMEMBERED
from shared.model.words import Increment, Lately, Message
from shared.ports.broker import LimitedPublisher
from shared.runtime.retry import Drain

BYTES: Final = 256
"""This many bytes of a body, or of a name and an id, weigh as much as one increment."""
OWN: Final = 32
"""The weight of a batch that needs an envelope of its own, in increments: one publish takes only so many envelopes."""
_KEPT: Final = 8
"""The last 1/8 of the room is not for tenants that want a lot at once, even if they hold nothing."""
_MEMORY: Final = 10
"""The rate is measured over the last 1/10 of the room that became free."""
_SETTING: Final = "COUNTERSINK_MAX_WAITING"


def weight_of(increments: int, size: int) -> int:
    return max(increments, size // BYTES)


class Admission:
    """Keeps each flow, a tenant or a counter, within its share of the room.

    While less than half of the room is taken no flow can exceed its share, so flows are not counted. Above that, what
    each flow holds is counted from the drafts and kept up to date until only a quarter of the room is taken.
    """

    def __init__(self, capacity: int, drafts: Callable[[], Iterable[Draft]]) -> None:
        """`drafts` returns all drafts that wait or are being published."""
        self._capacity = capacity
        self._drafts = drafts
        self._drain = Drain(max(capacity / _MEMORY, 1.0))
        self._tenants, self._counters = Shares(capacity), Shares(capacity)
        self.held = 0
        """The weight of everything that has entered and not left."""
        self.easy = capacity // 2
        """Flows are not counted while `held` is at most this. -1 while they are counted."""

    def enter(self, tenant: str, weight: int, counts: Mapping[str, int], now: float) -> None:
        """Let increments in; the caller puts them into drafts at once. Raises `ShareError` if a flow would exceed its
        share, `OverloadedError` if there is no room for anybody.
        """
        if self.held + weight > self.easy:
            self._judge(tenant, weight, counts, now)
            self._enter({tenant: weight}, counts)
        self.held += weight

    def check(self, tenant: str, weight: int, now: float) -> None:
        """Raise what `enter` would raise, as far as that is known before the body is read."""
        if self.held + weight > self.easy:
            self._judge(tenant, weight, {}, now)

    def leave(self, drafts: Iterable[Draft], now: float) -> None:
        """Free the room of drafts that are durable or have failed."""
        gone = 0
        for draft in drafts:
            gone += sum(draft.senders.values())
            if self.easy < 0:
                for tenant, weight in draft.senders.items():
                    self._tenants.leave(tenant, weight)
                for counter, count in draft.by_counter().items():
                    self._counters.leave(counter, count)
        self.held -= gone
        if self.easy < 0:
            over = self.held <= self._capacity // 4
            self._drain.left(gone, now, last=over)
            if over:
                self.easy = self._capacity // 2
                self._tenants, self._counters = Shares(self._capacity), Shares(self._capacity)

    def _enter(self, senders: Mapping[str, int], counts: Mapping[str, int]) -> None:
        for tenant, weight in senders.items():
            self._tenants.enter(tenant, weight)
        for counter, count in counts.items():
            self._counters.enter(counter, count)

    def _judge(self, tenant: str, weight: int, counts: Mapping[str, int], now: float) -> None:
        if self.easy >= 0:
            self.easy = -1
            self._drain.begins(now)
            for draft in self._drafts():
                self._enter(draft.senders, draft.by_counter())
        if not self.held:
            return  # whatever its size, or it would never get in
        left = self._tenants.left(weight)
        if left < 0:
            raise OverloadedError(
                f"{self.held} increments wait to be published, and {_SETTING} allows {self._capacity}: try again later",
                self._drain.seconds(-left, now),
            )
        held = self._tenants.held_by(tenant)
        excess = excess_of(held, weight, left)
        if not held and weight > left + 1 and left < self._capacity // _KEPT:
            excess = weight - left
        if excess:
            raise ShareError(
                f"{held} increments of this client ({tenant}) wait to be published, and {weight} more would exceed"
                f" its share of the {self._capacity} that {_SETTING} allows: wait, send less at once, or add up"
                " increments of one counter before they are sent",
                self._drain.seconds(excess, now),
            )
        for counter, count in counts.items():
            held = self._counters.held_by(counter)
            if excess := excess_of(held, count, left):
                raise ShareError(
                    f"{held} increments of the counter {counter!r} wait to be published, and {count} more would"
                    f" exceed its share of the {self._capacity} that {_SETTING} allows: wait, or add up its increments"
                    " before they are sent; other counters are served",
                    self._drain.seconds(excess, now),
                )


# Shares what may be pending in the broker among tenants.


LEAST: Final = 1_048_576
"""With a smaller limit there are no shares, since they would be smaller than what one publish takes."""
PER_SUM: Final = 32
"""About what a sum that waits to be published weighs, besides the counter's name."""
PER_ID: Final = 160
"""The same for an increment with an id, besides the id and the counter's name."""
_STEP: Final = 64
"""Published batches are remembered in parts of 1/64 of the limit."""
EFFORT: Final = 1 / 20
"""The part of the time that estimating what waits may take. What comes until the next estimate is added to the last."""


class PendingShares:
    """Keeps each tenant within its share, once a quarter of the limit is pending."""

    def __init__(
        self, publisher: LimitedPublisher, drafts: Callable[[], Iterable[Draft]], now: Callable[[], float]
    ) -> None:
        """`drafts`: all that are not published yet."""
        self._publisher = publisher
        self._drafts = drafts
        self._now = now
        self._parts: deque[Shares] = deque()
        """What was published, in parts, the oldest first."""
        self._published, self._waiting = Shares(0), Shares(0)
        """What all parts hold, and what drafts will add to that. The broker knows the limit, and what is left of it."""
        self._estimate_again = float("-inf")
        self._rest = _Rest()
        self.easy = True
        """Whether so little is pending that nobody need be judged."""

    def published(self, drafts: Sequence[Draft], messages: Sequence[Message]) -> None:
        """These drafts are in the broker now, as these messages."""
        pending, most = self._publisher.pending()
        for draft, message in zip(drafts, messages, strict=True):
            if not self._parts or self._parts[-1].held > most // _STEP:
                self._parts.append(Shares(0))
            self._rest.divide(draft, self._publisher.weigh(message), self._published, self._parts[-1])
        self._forget(pending)
        self.easy = most < LEAST or pending <= most // 4

    def judge(self, tenant: str, weight: int) -> None:
        """Raise `ShareError` if so much more would be beyond the tenant's share."""
        pending, most = self._publisher.pending()
        self.easy = pending <= most // 4
        if self.easy:
            return
        self._forget(pending)
        begun = self._now()
        if begun >= self._estimate_again:
            self._waiting, rest = Shares(0), _Rest()
            for draft in self._drafts():
                rest.divide(draft, weight_of_batch(draft), self._waiting)
            ended = self._now()
            self._estimate_again = ended + (ended - begun) / EFFORT
        held = self._published.held_by(tenant) + self._waiting.held_by(tenant)
        if excess_of(held, weight, most - pending - self._waiting.held - weight):
            raise ShareError(
                f"increments of this client ({tenant}) that wait to be applied take {held} bytes, and {weight} more"
                f" would exceed its share of the {most} that COUNTERSINK_MAX_PENDING_BYTES allows: send less at once,"
                " or check that a flusher is running"
            )
        self._waiting.enter(tenant, weight)

    def _forget(self, pending: int) -> None:
        """Forget what must have been applied, if only so much is pending."""
        while self._parts and self._published.held - self._parts[0].held >= pending:
            for tenant, weight in self._parts.popleft().holders.items():
                self._published.leave(tenant, weight)


class _Rest:
    """Divides what drafts weigh among tenants. A batch may be several drafts, and only the last one names its sender:
    so the weight of the earlier drafts is kept until then.
    """

    def __init__(self) -> None:
        self._weight = 0

    def divide(self, draft: Draft, weight: int, *all_shares: Shares) -> None:
        self._weight += weight
        if total := sum(draft.senders.values()):
            for tenant, its in draft.senders.items():
                for shares in all_shares:
                    shares.enter(tenant, -(-self._weight * its // total))
            self._weight = 0


def weight_of_batch(batch: Batch) -> int:
    """About what a batch will weigh in the broker."""
    sums = PER_SUM * len(batch.sums) + sum(map(len, batch.sums))
    return sums + sum([weight_of_id(item) for item in batch.keyed])


def weight_of_id(item: Increment) -> int:
    """The same for an increment with an id."""
    return PER_ID + len(item.counter) + len(item.id or "")


# Remembers what this process accepted under the ids of clients. An id that comes again with other content is most
# probably a mistake, and would not count. With the same content, it is a second use. Pure.


_INSTEAD: Final = (
    "this request added nothing. Of the two, only one counts: perhaps this one, if you sent it before. If it is not a"
    " retry, send it with a new id or key"
)
MOST: Final = 20_000
"""Ids that are remembered: the last ones, and none longer than a client's id counts once."""


class KnownIds:
    """What each id stands for. Nothing depends on it but what clients are told."""

    def __init__(self, most: int = MOST) -> None:
        self._known: Lately[int, tuple[bytes | int, Monotonic]] = Lately(most)

    def check(self, items: Sequence[Increment], now: Monotonic) -> None:
        """Raise a 422 if another delta was accepted under one of these ids. If ids are equal, only the first counts."""
        first = {_of_item(item): item for item in reversed(items)} if self._known else {}
        for id_, item in first.items():
            if self._is_other(id_, item.delta, now):
                name = item.counter[:100]
                raise BodyError(
                    422, f"another delta for {name!r} was accepted under the same id or key: {_INSTEAD}", "id"
                )

    def check_whole(self, envelope_id: str, batch: Batch, now: Monotonic) -> None:
        """Raise a 422 if another batch was accepted under this Idempotency-Key."""
        if self.is_other(envelope_id, batch, now):
            why = f"another body was accepted under the same Idempotency-Key: {_INSTEAD}"
            raise BodyError(422, why, "Idempotency-Key")

    def is_other(self, envelope_id: str, batch: Batch, now: Monotonic) -> bool:
        """Whether another batch was accepted under the id of this envelope."""
        return self._is_other(hash(envelope_id), batch.content(), now)

    def accepted(self, draft: Draft, now: Monotonic) -> None:
        """Remember what is durable now, and mark the second uses in the draft. The first use of an id stays."""
        for place, item in enumerate(draft.keyed):
            if not self._is_new(_of_item(item), item.delta, now):
                draft.second_uses.add(place)
        if draft.attempt:
            draft.is_second = not self._is_new(hash(draft.id), draft.content(), now)

    def _is_other(self, id_: int, content: bytes | int, now: Monotonic) -> bool:
        known = self._find(id_, now)
        return known is not None and known != content

    def _find(self, id_: int, now: Monotonic) -> bytes | int | None:
        """What was accepted under the id, if it is not so long ago that the id may count again."""
        content, then = self._known.get(id_, (None, now))
        return content if now - then < CLIENT_IDS_REMEMBERED / 1_000 else None

    def _is_new(self, id_: int, content: bytes | int, now: Monotonic) -> bool:
        """Remember the id. Returns whether this is the first use of it."""
        if self._find(id_, now) is not None:
            return False
        self._known[id_] = content, now
        return True


def _of_item(item: Increment) -> int:
    """Python's own hash: 64 bits with a secret of this process, so that nobody can choose ids with the same one."""
    return hash((item.counter, item.id))
