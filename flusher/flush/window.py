"""Owns what a flusher has pulled and not settled, and plans commits of it. Pure.

It keeps the parts as they came. What is left after some turn out to be applied (or dead) is summed anew from them, so
that the first of two equal ids may fall away and the second still carries it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from shared.model import bodies, notes
from shared.model.envelope import Envelope, Part, parts_of
from shared.model.words import APPLIED, DEAD, DROPPED, SHARD_FULL, Delivery, Receipt, Tally

MOST_IN_COMMIT: Final = 2_500
"""Receipts and shards of one commit. Not less than the largest part has."""
MOST_BYTES_IN_COMMIT: Final = 3_000_000
"""Of names and keys: below what the smallest of the stores takes, whatever else a commit says of each."""

TOO_OLD: Final = "it is older than receipts are kept, so nobody can say whether it has been applied"
"""The reason of a message that was buried for its age, and perhaps after it had been applied."""


@dataclass(slots=True)
class Held:
    """A message on lease, and the parts of its envelope."""

    delivery: Delivery
    parts: tuple[Part, ...]
    aged: bool
    """Whether receipts of it may expire before it comes again."""
    created: int = 0
    """Milliseconds since 1970, by the clock of whoever made it."""
    until: int | None = None
    """The store's time (ms) after which it can't be applied any more, as its receipts may be gone."""

    def late(self, now: int) -> bool:
        return self.until is not None and now > self.until


@dataclass(slots=True)
class Plan:
    """What goes into one commit."""

    parts: list[Part] = field(default_factory=list)
    receipts: dict[str, bool] = field(default_factory=dict)
    """Keys to insert, and whether a client chose the id."""
    sums: dict[str, int] = field(default_factory=dict)
    attempts: dict[str, str] = field(default_factory=dict)
    """Of receipts of ids that clients chose: which use of the id is applied."""
    tally: Tally = field(default_factory=Tally)
    """Deduplicated are increments whose client id is known, or stands in this plan already."""
    bytes: int = 0
    revives: bool = False
    """What is in it was dead-lettered, and counted then."""
    until: int | None = None
    """See `Bounds`; and so `messages`."""
    messages: list[str] = field(default_factory=list)

    def come_from(self, held: Held) -> None:
        """A part of it was taken from there."""
        if held.delivery.token:  # else no broker holds it, and the dead receipt that is revived tells
            self.messages.append(held.delivery.message_id)
        if held.until is not None:
            self.until = held.until if self.until is None else min(self.until, held.until)

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
        self._count(part, part.increments if part.second else len(part.keyed) - len(keyed))
        self.receipts[part.key] = part.retried
        if part.attempt:
            self.attempts[part.key] = part.attempt
        for key, _ in keyed:
            self.receipts[key] = True
        for counter, delta in adds.items():
            self.sums[counter] = self.sums.get(counter, 0) + delta
        return True

    def _count(self, part: Part, dropped: int) -> None:
        """A replay moves what was counted as dead, and adds nothing."""
        tally = self.tally
        dropped = min(dropped, part.increments)  # the use that was given up may have had fewer than this one
        self.tally = Tally(
            applied=tally.applied + part.increments - dropped,
            deduplicated=tally.deduplicated + dropped,
            dead=tally.dead - part.increments * self.revives,
            foreign=tally.foreign + part.increments * (part.foreign and not self.revives),
        )


class Window:
    """Messages in the order in which they came, and what is known of their receipts."""

    def __init__(self, *, revives: bool = False) -> None:
        """`revives`: a receipt that is found dead is no end; the next commit changes it."""
        self._revives = revives
        self.held: list[Held] = []
        self.known: dict[str, str] = {}
        self.dead: dict[str, int] = {}
        """Receipts to be revived: what they stand for is planned like what has none. With the increments they say."""
        self.vanished: set[str] = set()
        """Receipts that were seen dead and are not there any more: another replay may have applied them long ago."""
        self.kept: set[str] = set()
        """Dead receipts that are known to have a body, so that the store counts what they stand for as pending."""
        self.bodies: dict[str, Part] = {}
        """What those of `dead` stand for that have one."""
        self.attempts: dict[str, str] = {}
        """Of known receipts of ids that clients choose: which use of the id they stand for."""
        self.counters: set[str] = set()
        self.bytes = 0
        self.oldest: int | None = None
        """When the oldest of it was published."""
        self.newest = 0
        """When the newest of it was, by the clocks of those who did."""

    def __bool__(self) -> bool:
        return bool(self.held)

    def add(self, delivery: Delivery, envelope: Envelope, *, aged: bool = False) -> None:
        self.hold(delivery, tuple(parts_of(envelope)), aged=aged, created=envelope.created)
        self.counters |= envelope.counters()

    def hold(self, delivery: Delivery, parts: tuple[Part, ...], *, aged: bool = False, created: int = 0) -> None:
        """As `add`, of parts that are known already."""
        self.held.append(Held(delivery, parts, aged, created))
        self.bytes += len(delivery.message.data)
        self.newest = max(self.newest, delivery.published)
        self.oldest = delivery.published if self.oldest is None else min(self.oldest, delivery.published)

    def plan(self, most_parts: int) -> Plan:
        """The next commit: parts of which nothing is known, one of each key, as many as fit."""
        plan = Plan(revives=self._revives)
        for held in self.held:
            for part in held.parts:
                left = self._left(part, plan)
                if left is None or self.known.get(part.key) in {DEAD, DROPPED}:
                    continue
                if len(plan.parts) == most_parts or not plan.take(left, self.known):
                    return plan
                plan.come_from(held)
        return plan

    def judge(self, until: Callable[[int], int]) -> None:
        """`until`: when a message that was published at that time becomes too old."""
        for held in self.held:
            if held.aged:
                held.until = until(held.delivery.published)

    def drop(self, messages: Collection[str]) -> None:
        """Somebody else has settled them."""
        self.held = [held for held in self.held if held.delivery.message_id not in messages]

    def _left(self, part: Part, plan: Plan | None = None) -> Part | None:
        """What is still to be committed of it: itself; that it came as a second use of its id; or, of a copy, nothing.

        A copy is of the attempt that the receipt stands for, or was found by its own receipt of a second use.
        """
        planned, attempts = (plan.receipts, plan.attempts) if plan is not None else ({}, {})
        if part.key not in self.known and part.key not in planned:
            return self._revived(part) if part.key in self.dead else part
        if not part.attempt:
            return None
        first = attempts.get(part.key) or self.attempts.get(part.key, "")
        if first in {"", part.attempt}:
            return None
        second = part.as_second_use()
        return None if second.key in self.known or second.key in planned else second

    def _revived(self, part: Part) -> Part:
        """What the dead receipt stands for: its own body, since readers have counted that; or this letter."""
        body = self.bodies.get(part.key)
        return body or part.in_place_of(self.attempts[part.key], self.dead[part.key])

    def late(self, now: int) -> Iterator[tuple[Held, Part, str]]:
        """What is to be given up, and why: what came too late, and second uses of what was given up.

        A second use that came too late is done, if the first one was applied: it adds nothing.
        """
        for held in [*self.held]:
            for part in held.parts:
                late, left = held.late(now), self._left(part)
                if left is None:
                    continue
                if self.known.get(part.key) in {DEAD, DROPPED}:
                    yield held, left, TOO_OLD if late else "its id was given up before"
                elif late and left.second:
                    self.known[left.key] = APPLIED
                elif late or part.key in self.vanished:
                    yield held, part, TOO_OLD

    def holder(self, part: Part, now: int) -> Held | None:
        """The message that the store can keep the part of, if that is given up: not one that came too late, since it
        may have been applied; and of a second use there is nothing to keep.
        """
        holders = [held for held in self.held for one in held.parts if part.key == one.key]
        unsure = part.key in self.vanished or any(held.late(now) for held in holders)
        return holders[0] if holders and not unsure else None

    def learn(self, keys: Collection[str], state: str, attempts: Mapping[str, str] | None = None) -> None:
        """`attempts`: see `Plan`."""
        for key in keys:
            self.known[key] = state
        self.attempts |= attempts or {}

    def found(self, keys: Collection[str], receipts: Mapping[str, Receipt]) -> None:
        """What a look at these keys saw."""
        for key in keys:
            receipt = receipts.get(key)
            if receipt is None:
                if self.dead.pop(key, None) is not None:
                    self.vanished.add(key)
                continue
            note = notes.read(receipt.note)
            self.attempts[key] = note.attempt
            if receipt.body:
                self.kept.add(key)
            if receipt.state == DEAD and self._revives:
                self.dead[key] = note.tally.dead
                if receipt.body:
                    self.bodies[key] = bodies.read(receipt).part
            else:
                self.dead.pop(key, None)
                self.known[key] = receipt.state

    def unsettled(self) -> bool:
        return any(self._left(part) is not None for held in self.held for part in held.parts)

    def settled(self) -> tuple[Sequence[Held], Sequence[Held]]:
        """Messages to acknowledge, and messages to bury, once none is unsettled."""
        done: list[Held] = []
        dead: list[Held] = []
        for held in self.held:
            (dead if self.given_up(held) else done).append(held)
        return done, dead

    def given_up(self, held: Held) -> list[Part]:
        """Those of its receipts that are dead. A second use may be, though the first one has been brought back."""
        parts = [part for part in held.parts if self.known[part.key] == DEAD]
        parts += [
            second
            for part in held.parts
            if part.attempt and self.attempts.get(part.key, part.attempt) not in {"", part.attempt}
            if self.known.get((second := part.as_second_use()).key) == DEAD
        ]
        return parts

    def buries(self, part: Part) -> Tally:
        """What giving it up counts: nothing, if it was a dead letter before."""
        if self._revives and part.key not in self.vanished:
            return Tally()
        return Tally(dead=part.increments, foreign=0 if self._revives else part.increments * part.foreign)
