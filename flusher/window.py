"""Owns what a flusher has pulled and not settled, and plans commits of it. Pure.

It keeps the parts as they came. What is left after some turn out to be applied (or dead) is summed anew from them, so
that the first of two equal ids may fall away and the second still carries it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from shared.parts import Part, parts_of
from shared.words import SHARD_FULL, Delivery, Envelope, Receipt

MOST_IN_COMMIT: Final = 2_500
"""Receipts and shards of one commit. Not less than the largest part has."""
MOST_BYTES_IN_COMMIT: Final = 3_000_000
"""Of names and keys: below what the smallest of the stores takes, whatever else a commit says of each."""

APPLIED: Final = "applied"
DEAD: Final = "dead"


@dataclass(slots=True)
class Held:
    """A message on lease, and the parts of its envelope."""

    delivery: Delivery
    parts: tuple[Part, ...]
    increments: int
    late: str | None
    """Why it can't be applied any more, whatever the store says."""


@dataclass(slots=True)
class Plan:
    """What goes into one commit."""

    parts: list[Part] = field(default_factory=list)
    receipts: dict[str, bool] = field(default_factory=dict)
    """Keys to insert, and whether a client chose the id."""
    sums: dict[str, int] = field(default_factory=dict)
    increments_dropped: int = 0
    """Increments whose client id is known, or stands in this plan already."""
    bytes: int = 0

    def take(self, part: Part, known: Mapping[str, str]) -> bool:
        """Add the part if the commit has room for all of it."""
        keyed = []
        seen: set[str] = set()
        for key, item in part.keyed:
            if known.get(key) != APPLIED and key not in self.receipts and key not in seen:
                seen.add(key)
                keyed.append((key, item))
        adds = dict(part.sums)
        for _, item in keyed:
            adds[item.counter] = adds.get(item.counter, 0) + item.delta
        size = sum(len(counter.encode()) + 100 for counter in adds) + 100 * (1 + len(keyed))
        if self.parts and (
            len(self.receipts) + len(self.sums) + 1 + len(keyed) + len(adds) > MOST_IN_COMMIT
            or self.bytes + size > MOST_BYTES_IN_COMMIT
            or any(abs(self.sums.get(counter, 0) + delta) > SHARD_FULL for counter, delta in adds.items())
        ):
            return False
        self.parts.append(part)
        self.bytes += size
        self.increments_dropped += len(part.keyed) - len(keyed)
        self.receipts[part.key] = part.retried
        for key, _ in keyed:
            self.receipts[key] = True
        for counter, delta in adds.items():
            self.sums[counter] = self.sums.get(counter, 0) + delta
        return True


class Window:
    """Messages in the order in which they came, and what is known of their receipts."""

    def __init__(self, *, revives: bool = False) -> None:
        """`revives`: a receipt that is found dead is no end; the next commit changes it."""
        self._revives = revives
        self.held: list[Held] = []
        self.known: dict[str, str] = {}
        self.dead: set[str] = set()
        """Receipts to be revived: what they stand for is planned like what has none."""
        self.counters: set[str] = set()
        self.bytes = 0
        self.oldest: int | None = None
        """When the oldest of it was published."""
        self.newest = 0
        """When the newest of it was, by the clocks of those who did."""

    def __bool__(self) -> bool:
        return bool(self.held)

    def add(self, delivery: Delivery, envelope: Envelope, late: str | None = None) -> None:
        self.held.append(Held(delivery, tuple(parts_of(envelope)), envelope.increments(), late))
        self.counters |= envelope.counters()
        self.bytes += len(delivery.message.data)
        self.newest = max(self.newest, delivery.published)
        self.oldest = delivery.published if self.oldest is None else min(self.oldest, delivery.published)

    def plan(self, most_parts: int) -> Plan:
        """The next commit: parts of which nothing is known, one of each key, as many as fit."""
        plan = Plan()
        for held in self.held:
            for part in held.parts:
                if part.key in self.known or part.key in plan.receipts:
                    continue
                if len(plan.parts) == most_parts or not plan.take(part, self.known):
                    return plan
        return plan

    def learn(self, keys: Collection[str], state: str) -> None:
        for key in keys:
            self.known[key] = state

    def found(self, keys: Collection[str], receipts: Mapping[str, Receipt]) -> None:
        """What a look at these keys saw."""
        for key in keys:
            receipt = receipts.get(key)
            if receipt is not None and receipt.state == DEAD and self._revives:
                self.dead.add(key)
                continue
            self.dead.discard(key)
            if receipt is not None:
                self.known[key] = receipt.state

    def unsettled(self) -> bool:
        return any(part.key not in self.known for held in self.held for part in held.parts)

    def settled(self) -> tuple[Sequence[Held], Sequence[Held]]:
        """Messages to acknowledge, and messages to bury, once none is unsettled."""
        done: list[Held] = []
        dead: list[Held] = []
        for held in self.held:
            states = {self.known[part.key] for part in held.parts}
            (dead if DEAD in states else done).append(held)
        return done, dead
