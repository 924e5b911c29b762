"""Limits how many increments may wait to be published, and shares that room among tenants and counters. Pure.

A flow is a tenant or a counter. It may hold as much as then is still free: half of the room if it is alone, a third if
two flows take all they can get. A flow that holds nothing gets in as long as there is room.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ingest.publishing.batch import Draft
from shared.model.errors import OverloadedError, ShareError
from shared.runtime.drain_rate import Drain

BYTES: Final = 256
"""So many bytes of a body, or of a name and an id, weigh as much as one increment."""
OWN: Final = 32
"""The weight of a batch that needs an envelope of its own, in increments: one publish takes only so many envelopes."""
_KEPT: Final = 8
"""The last 1/8 of the room is not for flows that want a lot at once, even if they hold nothing."""
_MEMORY: Final = 10
"""The rate is measured over the last 1/10 of the room that became free."""
_SETTING: Final = "COUNTERSINK_MAX_WAITING"


def weight_of(increments: int, size: int) -> int:
    """The weight of increments that came in a body of `size` bytes."""
    return max(increments, size // BYTES)


class Admission:
    """Keeps each flow within its share of the room.

    While less than half of the room is taken no flow can exceed its share, so flows are not counted. Above that, what
    each flow holds is counted from the drafts and kept up to date until only a quarter of the room is taken.
    """

    def __init__(self, capacity: int, drafts: Callable[[], Iterable[Draft]]) -> None:
        """`drafts` returns all drafts that wait or are being published."""
        self._capacity = capacity
        self._drafts = drafts
        self._drain = Drain(max(capacity / _MEMORY, 1.0))
        self._tenants: Counter[str] = Counter()
        self._counters: Counter[str] = Counter()
        self.held = 0
        """The weight of everything that has entered and not left."""
        self.easy = capacity // 2
        """Flows are not counted while `held` is at most this. -1 while they are counted."""

    def enter(self, tenant: str, weight: int, counts: Mapping[str, int], now: float) -> None:
        """Let increments in; the caller puts them into drafts at once. Raises `ShareError` if a flow would exceed its
        share, `OverloadedError` if there is no room for anybody.
        """
        if self.held + weight > self.easy:
            self._count(now)
            self._judge(tenant, weight, counts, now)
            self._tenants[tenant] += weight
            self._counters.update(counts)
        self.held += weight

    def check(self, tenant: str, weight: int, now: float) -> None:
        """Raise what `enter` would raise, as far as that is known before the body is read."""
        if self.held + weight > self.easy:
            self._count(now)
            self._judge(tenant, weight, {}, now)

    def leave(self, drafts: Iterable[Draft], now: float) -> None:
        """Free the room of drafts that are durable or have failed."""
        gone = 0
        for draft in drafts:
            gone += sum(draft.senders.values())
            if self.easy < 0:
                _take(self._tenants, draft.senders)
                _take(self._counters, draft.by_counter())
        self.held -= gone
        if self.easy < 0:
            over = self.held <= self._capacity // 4
            self._drain.left(gone, now, last=over)
            if over:
                self.easy = self._capacity // 2
                self._tenants, self._counters = Counter(), Counter()

    def _count(self, now: float) -> None:
        if self.easy < 0:
            return
        self.easy = -1
        self._drain.begins(now)
        for draft in self._drafts():
            self._tenants.update(draft.senders)
            self._counters.update(draft.by_counter())

    def _judge(self, tenant: str, weight: int, counts: Mapping[str, int], now: float) -> None:
        if not self.held:
            return  # whatever its size, or it would never get in
        free = self._capacity - self.held - weight
        if free < 0:
            raise OverloadedError(
                f"{self.held} increments wait to be published, {_SETTING} allows {self._capacity}",
                self._drain.seconds(-free, now),
            )
        held = self._tenants[tenant]
        if held + weight > free and (held or (weight > free + 1 and free < self._capacity // _KEPT)):
            raise ShareError(
                f"{held} increments of this client ({tenant}) wait to be published, and {weight} more would be beyond"
                f" its share of the {self._capacity} that {_SETTING} allows: wait, send less at once, or add up"
                " increments of one counter before they are sent",
                self._drain.seconds(held + weight - free, now),
            )
        for counter, count in counts.items():
            held = self._counters[counter]
            if held and held + count > free:
                raise ShareError(
                    f"{held} increments of the counter {counter!r} wait to be published, and {count} more would be"
                    f" beyond its share of the {self._capacity} that {_SETTING} allows: wait, or add up its increments"
                    " before they are sent; other counters are served",
                    self._drain.seconds(held + count - free, now),
                )


def _take(flows: Counter[str], counts: Mapping[str, int]) -> None:
    flows.subtract(counts)
    for flow in counts:
        if not flows[flow]:
            del flows[flow]
