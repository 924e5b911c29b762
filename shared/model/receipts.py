"""Receipts: their keys, how long they live, until when an envelope may be applied (`promised`), and the notes in them.
Pure.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from typing import Any, Final, NamedTuple

import orjson

from shared.model.buckets import DAY, HOUR, NEVER, BrokerMillis, Millis, StoreMillis

CLIENT_IDS_REMEMBERED: Final = Millis(8 * DAY)
"""A client's id counts once for at least this long after its first use."""
KEY_OF_ID: Final = re.compile("i[0-9a-f]{32}")


def key_of_envelope(envelope_id: str) -> str:
    return "e" + sha256(envelope_id.encode()).hexdigest()


def key_of_part(envelope_id: str, number: int) -> str:
    """The key of a part of a divided envelope. The prefix keeps it apart from envelope ids that look like a part's."""
    return "p" + sha256(f"{envelope_id}/{number}".encode()).hexdigest()


def key_of_second_use(key: str, attempt: str) -> str:
    """The key of a second use of a client's id. It counts as deduplicated once, however often it is delivered."""
    return "s" + sha256(f"{key}/{attempt}".encode()).hexdigest()


def key_of_increment(counter: str, client_id: str) -> str:
    """The key of an increment with an id. The counter's length keeps ('a', 'bc') and ('ab', 'c') apart.

    Half of the hash is enough, see docs/adr/0029-ids-in-sqlite.md. All stores have the same keys, so that ids can be
    moved from one to another.
    """
    return key_of_half(sha256(f"{len(counter)}:{counter}{client_id}".encode()).digest()[:16])


def half_of_id(key: str) -> bytes | None:
    """The half of a hash in the key of an increment, 16 bytes; None if the key is of something else."""
    return bytes.fromhex(key[1:]) if KEY_OF_ID.fullmatch(key) else None


def halves_of_ids(keys: Iterable[str]) -> bytes:
    """The halves of the hashes in the keys of increments, one after the other."""
    return bytes.fromhex("".join([key[1:] for key in keys]))


def key_of_half(half: bytes) -> str:
    """The key from which `half_of_id` is taken."""
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


def keys_of_changes(job: str) -> str:
    """What the keys of a job's receipts begin with, if their notes are its result (`key_of_change`)."""
    return f"j{job}:"


def key_of_change(job: str, counter: str) -> str:
    """Like `key_of_visit`, for a job whose receipts are its result. In hex, names keep their order, and have nothing
    that keys must not have, such as spaces.
    """
    return keys_of_changes(job) + counter.encode().hex()


def counter_of_change(key: str) -> str | None:
    """The counter in what `key_of_change` made; None for a further receipt of the same change."""
    return None if key.endswith("+") else bytes.fromhex(key.rpartition(":")[2]).decode()


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

    def in_force_until(self) -> StoreMillis:
        """Until when all receipts that are made live for as long as we promise, or longer. A commit that comes later
        may miss one.
        """
        return StoreMillis(max(one.seen for one in self._all if one.life >= self.ours.life) + FORCE)

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


# The notes in receipts, from which an audit adds everything up again: short JSON.
#
# The receipt of a batch with an Idempotency-Key says which use of the key it stands for. The receipt of an envelope
# says which of its increments with ids were not counted, because their ids had been used before. The first receipt of a
# commit holds the commit's id and its tally of increments; the receipt of a set holds the value before and after. The
# sums of the commit are in its first receipts, divided so that each fits into an entity: one list of names for all
# envelopes, all or nothing with the commit.


class Tally(NamedTuple):
    """The outcomes of increments. Each increment is counted once, in the commit that settled it."""

    applied: int = 0
    deduplicated: int = 0
    """Second uses of a client's id."""
    dead: int = 0
    foreign: int = 0
    """How many of these came in messages of other publishers."""


MOST_SUMS: Final = 1_000
"""Sums in one note: at most 825 kB, with the longest names. An envelope has at most this many counters, so a commit has
enough receipts for its sums.
"""
SILENT: Final = b"{}"
"""Replaces an existing note and says nothing."""
_ATTEMPT: Final = "a"
_COMMIT: Final = "c"
_SUMS: Final = "s"
_TALLY: Final = ("n", "d", "x", "f")
_CHANGE: Final = "v"
_SECOND: Final = "u"
_COPIED: Final = "o"


@dataclass(frozen=True, slots=True)
class Note:
    """What a receipt says."""

    attempt: str = ""
    commit: str = ""
    tally: Tally = field(default_factory=Tally)
    sums: Mapping[str, int] = field(default_factory=dict)
    change: tuple[int, int] | None = None
    """The value before and after a set."""
    copied: int = 0
    """The store that it was copied from; 0 if it was counted here."""
    second_uses: Sequence[int] = ()
    """The places, in `keyed` of an envelope, of the increments that were not counted because their ids had been used
    before.
    """


_NOTHING: Final = Note()


def notes_of_commit(
    attempts: Iterable[str],
    commit: str,
    tally: Tally,
    sums: Mapping[str, int],
    second_uses: Mapping[int, Sequence[int]] | None = None,
) -> list[bytes]:
    """A note for each receipt of a commit, in order. `attempts`: which use of its id each receipt stands for, or "".
    `second_uses`: see `Note`, by the place of the receipt.
    """
    left = iter(sums.items())
    first = {_COMMIT: commit} | {name: count for name, count in zip(_TALLY, tally, strict=True) if count}
    notes: list[bytes] = []
    second_uses = second_uses or {}
    for place, attempt in enumerate(attempts):
        note: dict[str, Any] = {_ATTEMPT: attempt} if attempt else {}
        if place in second_uses:
            note[_SECOND] = second_uses[place]
        if not notes:
            note |= first
        if some := dict(islice(left, MOST_SUMS)):
            note[_SUMS] = some
        notes.append(orjson.dumps(note) if note else b"")
    return notes


def notes_of_change(commit: str, counter: str, deltas: Iterable[int], before: int, after: int) -> list[bytes]:
    """The notes of a set: one for each delta (64 bits each), at least one. Totals may be larger, so they are text."""
    first: dict[str, Any] = {_COMMIT: commit, _CHANGE: [str(before), str(after)]}
    rest = [{_SUMS: {counter: delta}} for delta in deltas]
    return [orjson.dumps(note) for note in ([first | rest[0], *rest[1:]] if rest else [first])]


def said_again(note: bytes) -> bytes:
    """The part of a note that answers a repeated request: which use of an id it stands for, second uses, and what a set
    changed. What an audit adds up is left out.
    """
    data: dict[str, Any] = orjson.loads(note) if note else {}
    said = {name: data[name] for name in (_ATTEMPT, _SECOND, _CHANGE) if name in data}
    return orjson.dumps(said) if said else b""


def copied_from(source: int, note: bytes) -> bytes:
    """The note, which also says that the receipt was copied."""
    return orjson.dumps((orjson.loads(note) if note else {}) | {_COPIED: source})


def read_note(note: bytes) -> Note:
    if not note:
        return _NOTHING
    data: dict[str, Any] = orjson.loads(note)
    tally = Tally(*[data.get(name, 0) for name in _TALLY])
    change = (int(data[_CHANGE][0]), int(data[_CHANGE][1])) if _CHANGE in data else None
    return Note(
        data.get(_ATTEMPT, ""),
        data.get(_COMMIT, ""),
        tally,
        data.get(_SUMS, {}),
        change,
        data.get(_COPIED, 0),
        data.get(_SECOND, ()),
    )
