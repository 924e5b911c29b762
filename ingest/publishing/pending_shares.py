"""Shares what may be pending in the broker among tenants.

The broker only knows how much is pending. This process knows in which order it has published what, and flushers take it
in about that order: so what is pending of its own is at most what it has published last.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from ingest.publishing.batch import Batch, Draft
from shared.model.errors import ShareError
from shared.model.words import Increment, Message
from shared.ports.broker import LimitedPublisher

LEAST: Final = 1_048_576
"""With a smaller limit there are no shares, since they would be smaller than what one publish takes."""
PER_SUM: Final = 32
"""What a sum that waits to be published weighs beside the counter's name, about."""
PER_ID: Final = 160
"""The same of an increment with an id, beside the id and the counter's name."""
_STEP: Final = 64
"""Published batches are remembered in parts of 1/64 of the limit."""
EFFORT: Final = 1 / 20
"""The part of the time that estimating what waits may take. What comes until the next estimate is added to the last."""


class PendingShares:
    """Keeps each tenant within its share, once a quarter of the limit is pending: it may have as much as is free."""

    def __init__(
        self, publisher: LimitedPublisher, drafts: Callable[[], Iterable[Draft]], now: Callable[[], float]
    ) -> None:
        """`drafts`: all that are not published yet."""
        self._publisher = publisher
        self._drafts = drafts
        self._now = now
        self._parts: deque[tuple[int, Counter[str]]] = deque()
        """What was published, and for whom, oldest first."""
        self._sum = 0
        self._tenants: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self._estimate_again = float("-inf")
        self._rest = _Rest()
        self.easy = True
        """Whether so little is pending that nobody need be judged."""

    def published(self, drafts: Sequence[Draft], messages: Sequence[Message]) -> None:
        """These drafts are in the broker now, as these messages."""
        pending, most = self._publisher.pending()
        weights = [self._publisher.weigh(message) for message in messages]
        for tenants, weight in zip(self._rest.of_each(drafts, weights), weights, strict=True):
            self._add(tenants, weight, most)
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
            self._waiting = _estimate([*self._drafts()])
            ended = self._now()
            self._estimate_again = ended + (ended - begun) / EFFORT
        held = self._tenants[tenant] + self._waiting[tenant]
        free = most - pending - self._waiting.total() - weight
        if held and held + weight > free:
            raise ShareError(
                f"increments of this client ({tenant}) that wait to be applied take {held} bytes, and {weight} more"
                f" would be beyond its share of the {most} that COUNTERSINK_MAX_PENDING_BYTES allows: send less at"
                " once, or see that a flusher is running"
            )
        self._waiting[tenant] += weight

    def _add(self, part: dict[str, int], weight: int, most: int) -> None:
        if not self._parts or self._parts[-1][0] > most // _STEP:
            self._parts.append((0, Counter()))
        size, tenants = self._parts[-1]
        tenants.update(part)
        self._tenants.update(part)
        self._parts[-1] = (size + weight, tenants)
        self._sum += weight

    def _forget(self, pending: int) -> None:
        """Forget what must have been applied, if only so much is pending."""
        while self._parts and self._sum - self._parts[0][0] >= pending:
            size, tenants = self._parts.popleft()
            self._sum -= size
            self._tenants -= tenants


class _Rest:
    """Divides what drafts weigh among tenants. A batch may be several drafts, and only the last one names its sender:
    so the weight of the earlier drafts is kept until then.
    """

    def __init__(self) -> None:
        self._weight = 0

    def of_each(self, drafts: Sequence[Draft], weights: Sequence[int]) -> Iterator[dict[str, int]]:
        for draft, weight in zip(drafts, weights, strict=True):
            self._weight += weight
            total = sum(draft.senders.values())
            yield {tenant: -(-self._weight * its // total) for tenant, its in draft.senders.items()}
            if total:
                self._weight = 0


def weight_of(batch: Batch) -> int:
    """What a batch will weigh in the broker, about."""
    sums = PER_SUM * len(batch.sums) + sum(map(len, batch.sums))
    return sums + sum([weight_of_id(item) for item in batch.keyed])


def weight_of_id(item: Increment) -> int:
    """The same of an increment with an id."""
    return PER_ID + len(item.counter) + len(item.id or "")


def _estimate(drafts: Sequence[Draft]) -> Counter[str]:
    waiting: Counter[str] = Counter()
    for part in _Rest().of_each(drafts, [weight_of(draft) for draft in drafts]):
        waiting.update(part)
    return waiting
