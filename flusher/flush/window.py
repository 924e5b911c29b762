"""Holds the messages that a flusher pulled and has not settled, decides when to flush them, and plans the commits: what
one contains, and how much fits in it (`MOST_IN_COMMIT`). Pure.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, TypeVar

from shared.model.buckets import BrokerMillis, Rules, StoreMillis, TimeBucket, buckets_of
from shared.model.dead_letters import Body, read_body
from shared.model.receipts import Tally, notes_of_commit, read_note
from shared.model.words import APPLIED, DEAD, DROPPED, SHARD_FULL, Delivery, Envelope, Receipt

MOST_IN_COMMIT: Final = 5_000
"""Receipts, shards and buckets in one commit. An envelope that has more is committed alone."""
MOST_IN_COMMIT_OF_FILE: Final = 10_000
"""The same for a SQLite file. Ids lie all over their table, so the more of them a commit has, the more of them share a
page that it writes. All other writes wait for it.
"""
MOST_BYTES_IN_COMMIT: Final = 3_000_000
"""Bytes of names and keys in one commit: below the limit of every store, whatever else a commit holds."""
BYTES_OF_PLACE: Final = 4
"""Most bytes of a place in a note, as text: an envelope has at most 1,000."""


@dataclass(slots=True)
class Held:
    """A message on lease, and its envelopes."""

    delivery: Delivery
    envelopes: tuple[Envelope, ...]
    aged: bool
    """Whether its age matters, as its receipts may have expired. It does not in one file, or with `--too-old`."""
    until: StoreMillis | None = None
    """The time after which it must not be applied, as its receipts may be gone."""
    late: bool = False
    """Whether that time was over when it was judged."""


@dataclass(slots=True)
class Plan:
    """The content of one commit."""

    envelopes: list[Envelope] = field(default_factory=list)
    receipts: dict[str, bool] = field(default_factory=dict)
    """The keys of the receipts of its envelopes, and whether a client chose the id."""
    ids: dict[str, None] = field(default_factory=dict)
    """The keys of the receipts of increments with ids."""
    sums: dict[str, int] = field(default_factory=dict)
    rules: Rules = ()
    buckets: dict[TimeBucket, int] = field(default_factory=dict)
    """Sums by time, as the rules want them."""
    attempts: dict[str, str] = field(default_factory=dict)
    """Which use of a client's id is applied, by its receipt."""
    second_uses: dict[str, list[int]] = field(default_factory=dict)
    """The second uses in each envelope, by its receipt: see `Note`."""
    tally: Tally = field(default_factory=Tally)
    """An increment is deduplicated if its client id is known, or is in this plan already."""
    bytes: int = 0
    room: int = MOST_IN_COMMIT
    """Receipts, shards and buckets that it may have."""
    revives: bool = False
    """Whether its envelopes were dead letters, and were counted as such before."""
    until: StoreMillis | None = None
    """See `Bounds`, also for `messages`."""
    messages: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.receipts) + len(self.ids) + len(self.sums) + len(self.buckets)

    def receipt_keys(self) -> list[str]:
        """The keys of all its receipts."""
        return [*self.receipts, *self.ids]

    def come_from(self, held: Held, *, proved: bool) -> None:
        """Note the message that an envelope was taken from. `proved`: its age does not matter."""
        if held.delivery.token:  # else no broker holds it, and the dead receipt that is revived tells
            self.messages.append(held.delivery.message_id)
        if held.until is not None and not proved:
            self.until = held.until if self.until is None else min(self.until, held.until)

    def take(self, envelope: Envelope, known: Mapping[str, str]) -> bool:
        """Add the envelope if the commit has room for all of it."""
        adds = dict(envelope.sums)
        if 0 in adds.values():  # what adds nothing makes no counter
            adds = {name: total for name, total in adds.items() if total}
        ids: dict[str, None] = {}
        second_uses: list[int] = []
        for place, (key, (counter, delta, *_)) in enumerate(zip(envelope.ids, envelope.keyed, strict=True)):
            if known.get(key) != APPLIED and key not in self.ids and key not in ids:
                ids[key] = None
                if delta:
                    adds[counter] = adds.get(counter, 0) + delta
            else:
                second_uses.append(place)
        by_time = buckets_of(self.rules, envelope.created, adds) if self.rules else {}
        sums, buckets = _joined(self.sums, adds), _joined(self.buckets, by_time)
        new = [name for name in adds if name not in self.sums]
        new += [bucket.counter for bucket in by_time if bucket not in self.buckets]
        size = len("".join(new).encode()) + 100 * (len(new) + 1 + len(ids))
        size += BYTES_OF_PLACE * len(second_uses)
        if self.envelopes and (
            len(self) + 1 + len(ids) + len(new) > self.room
            or self.bytes + size > MOST_BYTES_IN_COMMIT
            or _is_beyond(SHARD_FULL, sums)
            or _is_beyond(SHARD_FULL, buckets)
        ):
            return False
        self.envelopes.append(envelope)
        self.bytes += size
        self._count(envelope, envelope.increments if envelope.second else len(second_uses))
        self.receipts[envelope.key] = envelope.retried
        if envelope.attempt:
            self.attempts[envelope.key] = envelope.attempt
        if second_uses:
            self.second_uses[envelope.key] = second_uses
        self.ids |= ids
        self.sums |= sums
        self.buckets |= buckets
        return True

    def _count(self, envelope: Envelope, dropped: int) -> None:
        """Count an envelope. A replay moves what was counted as dead, and adds nothing."""
        tally, increments = self.tally, envelope.increments
        dropped = min(dropped, increments)  # the use that was given up may have had fewer than this one
        self.tally = Tally(
            applied=tally.applied + increments - dropped,
            deduplicated=tally.deduplicated + dropped,
            dead=tally.dead - increments * self.revives,
            foreign=tally.foreign + increments * (envelope.foreign and not self.revives),
        )


_T = TypeVar("_T")


def _joined(sums: Mapping[_T, int], adds: Mapping[_T, int]) -> Mapping[_T, int]:
    """What the sums of these are when they are added."""
    return adds if sums.keys().isdisjoint(adds) else {of: sums.get(of, 0) + delta for of, delta in adds.items()}


def _is_beyond(limit: int, sums: Mapping[_T, int]) -> bool:
    return bool(sums) and not -limit <= min(sums.values()) <= max(sums.values()) <= limit


def notes_of(plan: Plan, commit: str) -> list[bytes]:
    """The notes of the envelopes' receipts. Those of ids have none."""
    attempts = [plan.attempts.get(key, "") for key in plan.receipts]
    tally = plan.tally._replace(dead=0)  # only dead receipts count what is dead
    seconds = {place: plan.second_uses[key] for place, key in enumerate(plan.receipts) if key in plan.second_uses}
    return notes_of_commit(attempts, commit, tally, plan.sums, seconds)


TOO_OLD: Final = "it is older than receipts are kept, so nobody can say whether it has been applied"
"""The reason of a message that was buried for its age. It may have been applied before."""


class Window:
    """Messages in the order of their arrival, and what is known of their receipts."""

    def __init__(self, *, revives: bool = False) -> None:
        """`revives`: commits change dead receipts, as a replay does. Otherwise a dead receipt settles its envelope."""
        self._revives = revives
        self.held: list[Held] = []
        self.known: dict[str, str] = {}
        self.dead: dict[str, int] = {}
        """Dead receipts to be revived, with their increments. Their envelopes are planned as if they had no receipt."""
        self.kept: set[str] = set()
        """Dead receipts that are known to have a body. Readers count those as pending."""
        self.bodies: dict[str, Body] = {}
        """The bodies of receipts of `dead`."""
        self.attempts: dict[str, str] = {}
        """Which use of a client's id each known receipt stands for."""
        self.counters: set[str] = set()
        self.bytes = 0
        self.patient = True
        """Whether nobody waits for what is in it."""
        self.oldest: BrokerMillis | None = None
        self.newest = BrokerMillis(0)

    def __bool__(self) -> bool:
        return bool(self.held)

    def add(self, delivery: Delivery, envelopes: tuple[Envelope, ...], *, aged: bool = False) -> None:
        """Hold a message, and its envelopes."""
        self.held.append(Held(delivery, envelopes, aged))
        for envelope in envelopes:
            self.counters |= envelope.counters()
            self.patient &= envelope.patient
        self.bytes += len(delivery.message.data)
        self.newest = max(self.newest, delivery.published)
        self.oldest = delivery.published if self.oldest is None else min(self.oldest, delivery.published)

    def plan(self, most: int, rules: Rules = (), room: int = MOST_IN_COMMIT) -> Plan:
        """The next commit: unsettled envelopes, one of each key, as many as fit, at most `most`."""
        plan = Plan(revives=self._revives, rules=rules, room=room)
        for held in self.held:
            for envelope in held.envelopes:
                left = self._left(envelope, plan)
                if left is None or self.known.get(envelope.key) in {DEAD, DROPPED}:
                    continue
                proved = held.aged and self._proved(left)
                if held.late and not proved:  # a copy in time has it, or it is a second use, and adds nothing
                    continue
                if len(plan.envelopes) == most or not plan.take(left, self.known):
                    return plan
                plan.come_from(held, proved=proved)
        return plan

    def judge(self, now: StoreMillis, until: Callable[[BrokerMillis], StoreMillis]) -> None:
        """Set until when each message may be applied. `until` tells it from the time of its publish."""
        for held in self.held:
            if held.aged:
                held.until = until(held.delivery.published)
                held.late = now > held.until

    def drop(self, messages: Collection[str]) -> None:
        self.held = [held for held in self.held if held.delivery.message_id not in messages]

    def _left(self, envelope: Envelope, plan: Plan | None = None) -> Envelope | None:
        """What is left to commit of an envelope: itself; that it is a second use of its id; or nothing for a copy.

        A copy has the attempt that the receipt stands for, or has its own receipt as a second use.
        """
        planned, attempts = (plan.receipts, plan.attempts) if plan is not None else ({}, {})
        key = envelope.key
        if key not in self.known and key not in planned:
            return self._revived(envelope) if key in self.dead else envelope
        if not envelope.attempt:
            return None
        first = attempts.get(key) or self.attempts.get(key, "")
        if first in {"", envelope.attempt}:
            return None
        second = envelope.as_second_use()
        return None if second.key in self.known or second.key in planned else second

    def _revived(self, envelope: Envelope) -> Envelope:
        """The envelope that a dead receipt stands for: its body, since readers have counted that; else this letter."""
        key = envelope.key
        if (body := self.bodies.get(key)) is not None:
            return body.envelope
        return envelope.in_place_of(self.attempts[key], self.dead[key])

    def _proved(self, left: Envelope) -> bool:
        """Whether receipts prove that the rest of an envelope was not applied. If they do, its age does not matter. Any
        dead receipt proves this of a second use. Of a first use, only one with a body does: without one, the message
        came too late.
        """
        if left.second:
            return left.key in self.dead
        return left.key in self.bodies and all(key in self.known for key in left.ids)

    def late(self) -> Iterator[tuple[Held, Envelope, str]]:
        """The envelopes to give up, and why: those that came too late, and second uses of those that were given up.

        A second use that came too late is settled if the first one was applied: it adds nothing. In a replay, it is
        settled if the first one was dropped. A first use that came too late is not given up if a copy came in time.
        """
        any_late = any(held.late for held in self.held)
        in_time = {one.key for held in self.held if any_late and not held.late for one in held.envelopes}
        for held in [*self.held]:
            for envelope in held.envelopes:
                left = self._left(envelope)
                if left is None:
                    continue
                late = held.late and (left.second or envelope.key not in in_time) and not self._proved(left)
                first = self.known.get(envelope.key)
                if first == DROPPED and self._revives:
                    self.known[left.key] = DROPPED
                elif first in {DEAD, DROPPED}:
                    yield held, left, TOO_OLD if late else "its id was given up before"
                elif late and left.second:
                    self.known[left.key] = APPLIED
                elif late:
                    yield held, envelope, TOO_OLD

    def holder(self, envelope: Envelope) -> Held | None:
        """The message whose envelope a dead receipt can hold as its body. None if all came too late, so that it may be
        applied already, or if the envelope is a second use, which has nothing to keep.
        """
        for held in self.held:
            if not held.late and any(one.key == envelope.key for one in held.envelopes):
                return held
        return None

    def learn(self, keys: Collection[str], state: str, attempts: Mapping[str, str] | None = None) -> None:
        """Note that these receipts exist. `attempts`: see `Plan`."""
        self.known |= dict.fromkeys(keys, state)
        self.attempts |= attempts or {}

    def found(self, keys: Collection[str], receipts: Mapping[str, Receipt]) -> None:
        """Take the receipts that were found under these keys."""
        for key in keys:
            receipt = receipts.get(key)
            self.bodies.pop(key, None)
            if receipt is None:
                self.dead.pop(key, None)
                continue
            note = read_note(receipt.note)
            self.attempts[key] = note.attempt
            if receipt.body:
                self.kept.add(key)
            if receipt.state == DEAD and self._revives:
                self.dead[key] = note.tally.dead
                if receipt.body:
                    self.bodies[key] = read_body(receipt)
            else:
                self.dead.pop(key, None)
                self.known[key] = receipt.state

    def unsettled(self) -> bool:
        return any(self._left(envelope) is not None for held in self.held for envelope in held.envelopes)

    def settled(self) -> tuple[Sequence[Held], Sequence[Held]]:
        """The messages to acknowledge and the messages to bury. Call it once none is unsettled."""
        done: list[Held] = []
        dead: list[Held] = []
        for held in self.held:
            (dead if self.given_up(held) else done).append(held)
        return done, dead

    def given_up(self, held: Held) -> list[Envelope]:
        """The envelopes of a message whose receipts are dead. A second use may be, though the first was replayed."""
        dead = [one for one in held.envelopes if self.known[one.key] == DEAD]
        dead += [
            second
            for one in held.envelopes
            if one.attempt and self.attempts.get(one.key, one.attempt) not in {"", one.attempt}
            if self.known.get((second := one.as_second_use()).key) == DEAD
        ]
        return dead

    def buries(self, envelope: Envelope) -> Tally:
        """The tally of giving up an envelope: nothing if it was a dead letter before."""
        if self._revives:
            return Tally()
        return Tally(dead=envelope.increments, foreign=envelope.increments * envelope.foreign)


GROWTH: Final = 1.5
"""Each window is so much longer than the one before, as long as nobody waits."""
_PART: Final = 4
"""A window that holds 1/4 of the bytes that it may hold is flushed, even if nobody waits for it."""


@dataclass(slots=True)
class FlushPolicy:
    """A window is flushed when the first of these limits is reached."""

    max_age: float
    """Seconds from its first message, while somebody waits."""
    max_counters: int
    max_bytes: int
    longest: float = 0.0
    """Seconds that the age may grow to while nobody waits."""
    max_messages: float = inf
    patience: float = field(init=False)
    """The present age, in seconds from the first message."""

    def __post_init__(self) -> None:
        self.patience = self.max_age

    def due(self, window: Window, begun: float, now: float, *, urgent: bool) -> bool:
        """`urgent`: a request of this process waits for what is in the window."""
        if not window:
            return False
        if urgent or self.full(window):
            return True
        age = now - begun
        if age >= self.max_age and (not window.patient or window.bytes >= self.max_bytes // _PART):
            return True
        return age >= self.patience

    def full(self, window: Window) -> bool:
        if len(window.held) >= self.max_messages:
            return True
        return len(window.counters) >= self.max_counters or window.bytes >= self.max_bytes

    def closed(self, window: Window) -> None:
        """The window is being flushed, and the next one begins."""
        longest = max(self.max_age, self.longest)
        self.patience = min(self.patience * GROWTH, longest) if window.patient else self.max_age
