"""Owns how much waits or is on its way, and who holds how much of it: nobody gets all, and one more gets in. Pure.

A flow is a tenant, or a counter. It may hold as much as is left free after it: half of all when it is alone, a third
when two want all that they can get. Whoever holds nothing gets in while there is room.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ingest.publishing.batch import Batch
from shared.model.errors import OverloadedError, ShareError
from shared.runtime.drain_rate import Drain

BYTES: Final = 256
"""Of a body, or of a name and an id, that weigh as much as one increment."""
OWN: Final = 32
"""Increments that an envelope of its own weighs as much as: so many fewer of them go with one publish."""
_KEPT: Final = 8
"""One part of so many is kept from those who hold nothing and want a lot at once."""
_MEMORY: Final = 10
"""The rate is of the last so manieth part of what there is room for."""
_SETTING: Final = "COUNTERSINK_MAX_WAITING"


def weight_of(increments: int, size: int) -> int:
    """Of what came in so many bytes."""
    return max(increments, size // BYTES)


class Door:
    """While less than half is taken nobody can hold more than his share, so nobody is counted: what each flow holds is
    found out from the drafts when it comes to matter, and kept until a quarter is left.
    """

    def __init__(self, capacity: int, drafts: Callable[[], Iterable[Batch]]) -> None:
        """`drafts`: all that wait or are on their way, whenever asked."""
        self._capacity = capacity
        self._drafts = drafts
        self._drain = Drain(max(capacity / _MEMORY, 1.0))
        self._tenants: dict[str, int] = {}
        self._counters: dict[str, int] = {}
        self.held = 0
        """Weight of all that has entered and not left."""
        self.easy = capacity // 2
        """Up to here nobody is looked at; below 0 while all are counted."""

    def enter(self, tenant: str, weight: int, counts: Mapping[str, int], now: float) -> None:
        """Take it in, to be put into drafts at once; or say why not: `ShareError`, or `OverloadedError` to all."""
        if self.held + weight > self.easy:
            self._count(now)
            self._judge(tenant, weight, counts, now)
            _add(self._tenants, {tenant: weight})
            _add(self._counters, counts)
        self.held += weight

    def check(self, tenant: str, weight: int, now: float) -> None:
        """Raise what `enter` would, as far as can be said before it is known what it counts."""
        if self.held + weight > self.easy:
            self._count(now)
            self._judge(tenant, weight, {}, now)

    def leave(self, drafts: Iterable[Batch], now: float) -> None:
        """They are durable, or have failed."""
        gone = 0
        for draft in drafts:
            gone += sum(draft.senders.values())
            if self.easy < 0:
                _take(self._tenants, draft.senders)
                _take(self._counters, draft.by_counter())
        self.held -= gone
        if self.easy < 0:
            over = self.held <= self._capacity // 4
            self._drain.went(gone, now, last=over)
            if over:
                self.easy = self._capacity // 2
                self._tenants, self._counters = {}, {}

    def holders(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """Tenants and counters, while they are counted."""
        return self._tenants, self._counters

    def _count(self, now: float) -> None:
        if self.easy < 0:
            return
        self.easy = -1
        self._drain.begins(now)
        for draft in self._drafts():
            _add(self._tenants, draft.senders)
            _add(self._counters, draft.by_counter())

    def _judge(self, tenant: str, weight: int, counts: Mapping[str, int], now: float) -> None:
        if not self.held:
            return  # alone, whatever its size: else it would never get in
        free = self._capacity - self.held - weight
        if free < 0:
            raise OverloadedError(
                f"{self.held} increments wait to be published, {_SETTING} allows {self._capacity}",
                self._drain.seconds(-free, now),
            )
        held = self._tenants.get(tenant, 0)
        if held + weight > free and (held or (weight > free + 1 and free < self._capacity // _KEPT)):
            raise ShareError(
                f"{held} increments of this client ({tenant}) wait to be published, and {weight} more would be beyond"
                f" its share of the {self._capacity} that {_SETTING} allows: wait, send less at once, or add up"
                " increments of one counter before they are sent",
                self._drain.seconds(held + weight - free, now),
            )
        for counter, count in counts.items():
            held = self._counters.get(counter, 0)
            if held and held + count > free:
                raise ShareError(
                    f"{held} increments of the counter {counter!r} wait to be published, and {count} more would be"
                    f" beyond its share of the {self._capacity} that {_SETTING} allows: wait, or add up its increments"
                    " before they are sent; other counters are served",
                    self._drain.seconds(held + count - free, now),
                )


def _add(flows: dict[str, int], counts: Mapping[str, int]) -> None:
    for flow, count in counts.items():
        flows[flow] = flows.get(flow, 0) + count


def _take(flows: dict[str, int], counts: Mapping[str, int]) -> None:
    for flow, count in counts.items():
        left = flows[flow] - count
        if left:
            flows[flow] = left
        else:
            del flows[flow]
