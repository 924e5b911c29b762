"""Receipt keys, how long receipts live, and until when an envelope may be applied (`promised`). Pure."""

import re
from collections.abc import Collection, Iterable
from hashlib import sha256
from typing import Final, NamedTuple

from shared.model.buckets import NEVER, BrokerMillis, Millis, StoreMillis

HOUR: Final = Millis(3_600_000)
DAY: Final = Millis(24 * HOUR)
DAY_SECONDS: Final = DAY // 1_000
CLIENT_IDS_REMEMBERED: Final = Millis(8 * DAY)
"""A client's id counts once for at least this long after its first use."""
_KEY_OF_ID: Final = re.compile("i[0-9a-f]{64}")


def key_of_envelope(envelope_id: str) -> str:
    return "e" + sha256(envelope_id.encode()).hexdigest()


def key_of_part(envelope_id: str, number: int) -> str:
    """The key of a part of a divided envelope. The prefix keeps it apart from envelope ids that look like a part's."""
    return "p" + sha256(f"{envelope_id}/{number}".encode()).hexdigest()


def key_of_second_use(key: str, attempt: str) -> str:
    """The key of a second use of a client's id. It counts as deduplicated once, however often it is delivered."""
    return "s" + sha256(f"{key}/{attempt}".encode()).hexdigest()


def key_of_increment(counter: str, client_id: str) -> str:
    """The key of an increment with an id. The counter's length keeps ('a', 'bc') and ('ab', 'c') apart."""
    return "i" + sha256(f"{len(counter)}:{counter}{client_id}".encode()).hexdigest()


def half_of_id(key: str) -> bytes | None:
    """Half of the hash in the key of an increment, 16 bytes; None if the key is of something else."""
    return bytes.fromhex(key[1:33]) if _KEY_OF_ID.fullmatch(key) else None


def key_of_half(half: bytes) -> str:
    """What is known of a key if only `half_of_id` was kept."""
    return "i" + half.hex()


def key_of_set(counter: str, kind: str, idempotency_key: str) -> str:
    """The key of a set, reset or delete. The kind is part of it: the same idempotency key may be used for each."""
    return "c" + sha256(f"{kind}:{len(counter)}:{counter}{idempotency_key}".encode()).hexdigest()


def key_of_import(commit_id: str) -> str:
    """The key of an import's commit. Marks tell what was imported; the receipt is for audits."""
    return "m" + sha256(commit_id.encode()).hexdigest()


def key_of_drop(identity: str) -> str:
    """The key of a drop of dead letters, which stands for no increments."""
    return "d" + sha256(identity.encode()).hexdigest()


def key_of_visit(job: str, counter: str) -> str:
    """The key of a job's change to a counter. A job's id has no colon."""
    return "j" + sha256(f"{job}:{counter}".encode()).hexdigest()


def key_of_compaction(identity: str) -> str:
    """The key of a compaction, which stands for no increments."""
    return "k" + sha256(identity.encode()).hexdigest()


def lifetime(retention: Millis, *, of_client: bool) -> Millis:
    """How long a receipt lives: longer than the broker can deliver its message again.

    The receipt of a client's id lives 8 days longer: a retry that is accepted on the last day is flushed later.
    """
    return Millis(retention + DAY + (CLIENT_IDS_REMEMBERED if of_client else 0))


# Decides how long receipts of envelopes live, and until when an envelope may be applied. Pure.


RENEWED: Final = HOUR
"""Milliseconds after which a flusher renews its promise before it writes another receipt."""
FORCE: Final = 3 * HOUR
"""Milliseconds after its last renewal for which receipts may have been made under a promise."""
FORGOTTEN: Final = 100 * DAY


class Promise(NamedTuple):
    """What flushers with the same settings promise."""

    reach: Millis
    """An envelope published longer ago than this is not applied."""
    life: Millis
    """A receipt lives at least this long after its message was published."""
    seen: StoreMillis = NEVER
    """When a flusher last renewed the promise."""


class Ages(NamedTuple):
    """What the age of an overlay entry without a receipt means."""

    over: StoreMillis
    """An entry published earlier can't be applied any more."""
    unsure: StoreMillis
    """An entry published earlier may have been applied under a receipt that has expired."""


def ages(promises: Collection[Promise], now: StoreMillis) -> Ages:
    """The limits that follow from the stored promises, at this time of the store.

    A spool forwards nothing that has waited for the greatest `life - reach`, less an hour. A flusher applies nothing
    older than the greatest `reach`, by a date of the broker that may be an hour off. Together that is the longest way
    of an entry. A receipt lives for the least `life`, or longer. An hour more on each side is for what is under way.

    One promise binds all spools and flushers, also those with other settings, for what is taken up to 3 hours after it
    was renewed. An entry that is younger than that may meet others of any settings, so it is kept: no flusher has
    applied anything since then.

    The promises may be read late. A new one does not lift what an older one binds. A receipt that is made under it
    lives for a day or more, so the promise is known long before such a receipt expires. Where there is no promise, no
    flusher has applied anything.
    """
    if not promises:
        return Ages(NEVER, NEVER)
    longest = max(one.life - one.reach for one in promises) + max(one.reach for one in promises)
    bound = max(one.seen for one in promises) + FORCE
    least = min(one.life for one in promises)
    return Ages(StoreMillis(max(0, min(now - longest - HOUR, bound))), StoreMillis(max(0, now - least + HOUR)))


def promised(retention: Millis, spool_age: Millis) -> Promise:
    """What a flusher with these settings promises.

    An envelope may be published twice: at once, without an answer, and again when a spool forwards it, at most
    `spool_age` and an hour later. So a receipt lives longer than both together.
    """
    return Promise(Millis(retention + HOUR), Millis(retention + max(DAY, spool_age + 3 * HOUR)))


class Promises:
    """The promises in the store, and that of this flusher."""

    def __init__(self, ours: Promise, others: Iterable[Promise] = ()) -> None:
        self.ours = ours
        self._all = [ours, *others]

    def renew(self, now: StoreMillis) -> Promise | None:
        """The promise to store before a receipt is written. None if it was renewed recently, or a larger one was, by
        which receipts are made then. So a tool that runs once with other settings changes nothing.
        """
        greater = [one.seen for one in self._all if one.seen and one.life >= self.ours.life]
        return None if greater and now - max(greater) < RENEWED else self.ours._replace(seen=now)

    def until(self, published: BrokerMillis) -> StoreMillis:
        """The last time at which an envelope published at that time may be applied.

        A copy of it may have been published earlier, and waited in a spool; an id in it may have been used earlier.
        """
        at = StoreMillis(published)  # by a date of the broker that may be an hour off, for which `reach` has room
        earliest = StoreMillis(at - max(one.life - one.reach for one in self._all) - CLIENT_IDS_REMEMBERED)
        return StoreMillis(at + min(one.reach for one in self._all if self._behind(one, earliest)))

    def expires(self, made: StoreMillis, *, of_client: bool) -> StoreMillis:
        """When a receipt expires that is made now, for an envelope published at `made` or earlier."""
        life = max(one.life for one in self._all if self._behind(one, made))
        return StoreMillis(made + life + (CLIENT_IDS_REMEMBERED if of_client else 0))

    def oldest_spooled(self, now: StoreMillis) -> StoreMillis:
        """The time before which a spool must not have accepted what it forwards, by all promises in force then."""
        oldest = max(
            min(now - (one.life - one.reach - HOUR), now if one is self.ours else one.seen + FORCE + 1)
            for one in self._all
        )
        return StoreMillis(oldest)

    def _behind(self, one: Promise, time: StoreMillis) -> bool:
        return one is self.ours or one.seen + FORCE >= time
