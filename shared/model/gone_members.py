"""Decides when the messages of members that are gone have all been applied, from what flushers saw (rule 16). Pure.

This is the one rule of the fleet that is not a proof: Pub/Sub could hold a message back for as long as this takes.
What flushers saw adds up: one that stops in good order leaves its record behind, and the others go on from there.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from shared.model.fleet import SILENCE, Fleet, FlusherRecord, PublisherRecord
from shared.model.times import StoreMillis

HOLDS: Final = 600.0
"""Seconds after its last look at which a flusher gives its messages back. Also a broker's longest lease."""
WATCHES: Final = 2 * HOLDS + 60.0
"""Seconds for which flushers must have pulled, and have seen nothing old, before a member that is gone is forgotten.
They begin when the member can't have published anything more.
"""
REPORTS: Final = 60.0
"""Seconds between two reports of a flusher while a member is gone."""
OVERDUE: Final = 5 * REPORTS
KEPT: Final = 12 * WATCHES
"""Seconds for which the record of a flusher that stopped is of use. Flushers hand over more often."""
MARGIN: Final = 60.0
"""Seconds for a commit that was under way, and by which the broker's clock and the store's may differ."""


def gone(fleet: Fleet, topic: str) -> Collection[PublisherRecord]:
    """The members of this topic that are gone. Flushers report as long as there are any."""
    return [one for one in fleet.members.values() if one.gone() and one.topic in {topic, ""}]


def reported(fleet: Fleet, flusher: str, *, clear: StoreMillis, now: StoreMillis) -> Fleet:
    """The fleet after a flusher reports that in the last `WATCHES` it neither held nor pulled anything published before
    `clear`. Members and flushers that are gone according to all reports are forgotten.
    """
    record = fleet.flushers[flusher]._replace(clear=clear, until=now)
    fleet = replace(fleet, flushers={**fleet.flushers, flusher: record}, left=_of_use(fleet, now))
    return _without_gone(_without_silent(fleet, now), now)


def leaves(fleet: Fleet, flusher: str, *, clear: StoreMillis, now: StoreMillis) -> Fleet:
    """The fleet after a flusher that holds nothing has stopped. `clear`: as in a report."""
    left = {**_of_use(fleet, now)}
    if gone(fleet, fleet.flushers[flusher].topic):
        left[flusher] = fleet.flushers[flusher]._replace(clear=clear, until=now)
    return replace(fleet, flushers={name: one for name, one in fleet.flushers.items() if name != flusher}, left=left)


def _of_use(fleet: Fleet, now: StoreMillis) -> dict[str, FlusherRecord]:
    """What flushers saw that stopped. A member that is taken for dead later must be watched from then on anyway."""
    return {name: one for name, one in fleet.left.items() if now - one.until <= KEPT * 1000 and gone(fleet, one.topic)}


def _without_silent(fleet: Fleet, now: StoreMillis) -> Fleet:
    """A flusher that does not report is taken for dead. It is forgotten when it can't hold messages any more."""
    flushers = {}
    for name, one in fleet.flushers.items():
        asked = min((max(member.struck, member.stopped) for member in gone(fleet, one.topic)), default=now)
        if not one.struck and now - max(one.until, asked) > OVERDUE * 1000:
            flushers[name] = one._replace(struck=now)
        elif not one.struck or now - one.struck <= WATCHES * 1000:
            flushers[name] = one
    return replace(fleet, flushers=flushers)


def _without_gone(fleet: Fleet, now: StoreMillis) -> Fleet:
    forgotten = [
        name for name, one in fleet.members.items() if one.gone() and not one.spool and _unseen(fleet, one, now)
    ]
    return fleet.without(*forgotten)


def _unseen(fleet: Fleet, record: PublisherRecord, now: StoreMillis) -> bool:
    """Whether flushers have watched the member's topic for long enough. The record of an older version has no topic, so
    it needs all topics.
    """
    topics = {record.topic} if record.topic else {one.topic for one in fleet.flushers.values()}
    return bool(topics) and all(_watched(fleet, topic, _last_publish(record), now) for topic in topics)


def _watched(fleet: Fleet, topic: str, last: StoreMillis, now: StoreMillis) -> bool:
    """Whether at least one flusher of the topic has pulled for long enough since `last`, all in all, while none of them
    saw anything that was published before. What one saw that stopped is waited for anew, since it gave it back.
    """
    here = [one for one in fleet.flushers.values() if one.topic == topic]
    if not here or any(one.clear < last or now - one.until > OVERDUE * 1000 for one in here):
        return False
    left = [one for one in fleet.left.values() if one.topic == topic]
    since = max([last, *(one.until for one in left if one.clear < last)])
    pulled, earliest = 0, min(one.until for one in here)
    for one in sorted([*here, *left], key=lambda one: one.until, reverse=True):
        begun = max(one.begun, since)
        pulled += max(0, min(one.until, earliest) - begun)
        earliest = min(earliest, begun)
    return pulled >= WATCHES * 1000


def _last_publish(record: PublisherRecord) -> StoreMillis:
    """The last time at which a member that is gone can have published. One that was struck may have lived on."""
    end = record.stopped or record.struck + int(SILENCE * 1000)
    return StoreMillis(end + int(MARGIN * 1000))
