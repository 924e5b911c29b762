"""What one commit of a flusher contains, and how much fits in it (`MOST_IN_COMMIT`). Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from shared.model.buckets import Rules, StoreMillis, TimeBucket, buckets_of
from shared.model.envelope import Envelope
from shared.model.receipts import Tally, notes_of_commit
from shared.model.words import APPLIED, SHARD_FULL, Delivery

MOST_IN_COMMIT: Final = 5_000
"""Receipts, shards and buckets in one commit. An envelope that has more is committed alone."""
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
    """Whether its receipts may expire before it is delivered again."""
    until: StoreMillis | None = None
    """The time after which it must not be applied, as its receipts may be gone."""

    def late(self, now: StoreMillis) -> bool:
        return self.until is not None and now > self.until


@dataclass(slots=True)
class Plan:
    """The content of one commit."""

    envelopes: list[Envelope] = field(default_factory=list)
    receipts: dict[str, bool] = field(default_factory=dict)
    """Keys to insert, and whether a client chose the id."""
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
    revives: bool = False
    """Whether its envelopes were dead letters, and were counted as such before."""
    until: StoreMillis | None = None
    """See `Bounds`, also for `messages`."""
    messages: list[str] = field(default_factory=list)

    def come_from(self, held: Held) -> None:
        """Note the message that an envelope was taken from."""
        if held.delivery.token:  # else no broker holds it, and the dead receipt that is revived tells
            self.messages.append(held.delivery.message_id)
        if held.until is not None:
            self.until = held.until if self.until is None else min(self.until, held.until)

    def take(self, envelope: Envelope, known: Mapping[str, str]) -> bool:
        """Add the envelope if the commit has room for all of it."""
        adds = {name: total for name, total in envelope.sums.items() if total}  # what adds nothing makes no counter
        keyed: dict[str, bool] = {}
        second_uses: list[int] = []
        for place, item in enumerate(envelope.keyed):
            key = item.key
            if known.get(key) != APPLIED and key not in self.receipts and key not in keyed:
                keyed[key] = True
                if item.delta:
                    adds[item.counter] = adds.get(item.counter, 0) + item.delta
            else:
                second_uses.append(place)
        by_time = buckets_of(self.rules, envelope.created, adds) if self.rules else {}
        sums, buckets = _joined(self.sums, adds), _joined(self.buckets, by_time)
        new = [*(adds.keys() - self.sums.keys())]
        new += [bucket.counter for bucket in by_time if bucket not in self.buckets]
        size = len("".join(new).encode()) + 100 * (len(new) + 1 + len(keyed))
        size += BYTES_OF_PLACE * len(second_uses)
        if self.envelopes and (
            len(self.receipts) + len(self.sums) + len(self.buckets) + 1 + len(keyed) + len(new) > MOST_IN_COMMIT
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
        self.receipts |= keyed
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
    """The sums that these envelopes will have."""
    return {of: sums.get(of, 0) + delta for of, delta in adds.items()} if sums else adds


def _is_beyond(limit: int, sums: Mapping[_T, int]) -> bool:
    return bool(sums) and not -limit <= min(sums.values()) <= max(sums.values()) <= limit


def notes_of(plan: Plan, commit: str) -> list[bytes]:
    """The notes of its receipts, in order."""
    attempts = [plan.attempts.get(key, "") for key in plan.receipts]
    tally = plan.tally._replace(dead=0)  # only dead receipts count what is dead
    seconds = {place: plan.second_uses[key] for place, key in enumerate(plan.receipts) if key in plan.second_uses}
    return notes_of_commit(attempts, commit, tally, plan.sums, seconds)
