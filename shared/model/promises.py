"""Owns how long receipts of envelopes live, and until when an envelope may be applied: by promises kept in the store.

Flushers may have different settings, or others than those before them. So each says in the store what it promises. What
an envelope may meet was made under some of the promises that were in force since it was published, and the least of
them judges it. Receipts are made by the greatest that is in force. See docs/adr/0015. Pure.
"""

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from shared.model.receipts import CLIENT_IDS_REMEMBERED, DAY, HOUR

RENEWED: Final = HOUR
"""Milliseconds after which a flusher renews its promise before it writes another receipt."""
FORCE: Final = 3 * HOUR
"""A promise may stand behind receipts that were made so long after it was renewed, and behind none that are younger."""
FORGOTTEN: Final = 100 * DAY


class Promise(NamedTuple):
    """What flushers of one setting promise of envelopes. All numbers in milliseconds."""

    reach: int
    """An envelope that was published longer ago than that is not applied any more."""
    life: int
    """A receipt lives at least so long after its message was published."""
    seen: int = 0
    """When a flusher last renewed the promise, by the store's time."""


class Ages(NamedTuple):
    """What the age of an overlay's entry says, whose receipt is not found. Both in ms, by the store's time."""

    over: int
    """An entry that was published before can't be applied any more."""
    unsure: int
    """An entry that was published before may have been applied under a receipt that has expired."""


def ages(promises: Collection[Promise], now: int) -> Ages:
    """What the stored promises say at that time of the store.

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
        return Ages(0, 0)
    longest = max(one.life - one.reach for one in promises) + max(one.reach for one in promises)
    bound = max(one.seen for one in promises) + FORCE
    least = min(one.life for one in promises)
    return Ages(max(0, min(now - longest - HOUR, bound)), max(0, now - least + HOUR))


def promised(retention: int, spool_age: int) -> Promise:
    """What a flusher with these settings (milliseconds) promises.

    An envelope may be published twice: at once in vain, and again when a spool forwards it, `spool_age` later or an
    hour more at most. So a receipt lives longer than both together.
    """
    return Promise(retention + HOUR, retention + max(DAY, spool_age + 3 * HOUR))


class Promises:
    """Those that are in the store, and ours."""

    def __init__(self, ours: Promise, others: Iterable[Promise] = ()) -> None:
        self.ours = ours
        self._all = [ours, *others]

    def renew(self, now: int) -> Promise | None:
        """What is to be kept in the store before a receipt is written. None if it, or a greater one by which receipts
        are made then, was renewed lately: so a tool that runs once with other settings changes nothing.
        """
        greater = [one.seen for one in self._all if one.seen and one.life >= self.ours.life]
        return None if greater and now - max(greater) < RENEWED else self.ours._replace(seen=now)

    def until(self, published: int) -> int:
        """The last time at which an envelope of that time may be applied.

        A copy of it may have been published earlier, and waited in a spool; an id in it may have been used earlier.
        """
        earliest = published - max(one.life - one.reach for one in self._all) - CLIENT_IDS_REMEMBERED
        return published + min(one.reach for one in self._all if self._behind(one, earliest))

    def expires(self, made: int, *, of_client: bool) -> int:
        """When a receipt expires that is made now for what was published at that time, or earlier."""
        life = max(one.life for one in self._all if self._behind(one, made))
        return made + life + (CLIENT_IDS_REMEMBERED if of_client else 0)

    def oldest_spooled(self, now: int) -> int:
        """What a spool took before that time must not be forwarded any more, by any promise that was in force then."""
        return max(
            min(now - (one.life - one.reach - HOUR), now if one is self.ours else one.seen + FORCE + 1)
            for one in self._all
        )

    def _behind(self, one: Promise, time: int) -> bool:
        return one is self.ours or one.seen + FORCE >= time
