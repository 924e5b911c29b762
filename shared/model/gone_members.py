"""Decides when the messages of members that are gone have all been applied, from what flushers saw (rule 16). Pure.

This is the one rule of the fleet that is not a proof: Pub/Sub could hold a message back for as long as this takes.
"""

from dataclasses import replace
from typing import Final

from shared.model.fleet import SILENCE, Fleet, PublisherRecord
from shared.model.times import NEVER, StoreMillis

HOLDS: Final = 600.0
"""Seconds after its last look at which a flusher gives its messages back. Also a broker's longest lease."""
WATCHES: Final = 2 * HOLDS + 60.0
"""Seconds for which all flushers must have seen nothing old before a member that is gone is forgotten. They begin
when the member can't have published anything more.
"""
REPORTS: Final = 60.0
"""Seconds between two reports of a flusher while a member is gone."""
OVERDUE: Final = 5 * REPORTS


def horizon(fleet: Fleet, topic: str) -> StoreMillis:
    """The time by which the topic's gone members had certainly published their last message; 0 if none is gone."""
    gone = (one for one in fleet.members.values() if one.struck and one.topic in {topic, ""})
    return max(map(_last_publish, gone), default=NEVER)


def reported(fleet: Fleet, flusher: str, *, clear: StoreMillis, begun: StoreMillis, now: StoreMillis) -> Fleet:
    """The fleet after a flusher reports that from `begun` to `now` it neither held nor pulled anything published before
    `clear`. Members and flushers that are gone according to all reports are forgotten.
    """
    record = fleet.flushers[flusher]._replace(clear=clear, begun=begun, until=now)
    return _without_gone(_without_silent(replace(fleet, flushers={**fleet.flushers, flusher: record}), now), now)


def _without_silent(fleet: Fleet, now: StoreMillis) -> Fleet:
    """A flusher that does not report is taken for dead. It is forgotten when it can't hold messages any more."""
    strike = max((one.struck for one in fleet.members.values()), default=0)
    flushers = {}
    for name, one in fleet.flushers.items():
        if not one.struck and now - max(one.until, strike) > OVERDUE * 1000:
            flushers[name] = one._replace(struck=now)
        elif not one.struck or now - one.struck <= WATCHES * 1000:
            flushers[name] = one
    return replace(fleet, flushers=flushers)


def _without_gone(fleet: Fleet, now: StoreMillis) -> Fleet:
    gone = [name for name, one in fleet.members.items() if one.struck and not one.spool and _unseen(fleet, one, now)]
    return fleet.without(*gone)


def _unseen(fleet: Fleet, record: PublisherRecord, now: StoreMillis) -> bool:
    """Whether every flusher of its topic has watched for long enough, and has seen nothing that the member could have
    published. Watching counts from the member's last possible publish: before, the member may just have been quiet. The
    record of an older version has no topic, so it needs all flushers.
    """
    last = _last_publish(record)
    flushers = [one for one in fleet.flushers.values() if record.topic in {one.topic, ""}]
    return bool(flushers) and all(
        one.clear >= last and one.until - max(one.begun, last) >= WATCHES * 1000 and now - one.until <= OVERDUE * 1000
        for one in flushers
    )


def _last_publish(record: PublisherRecord) -> StoreMillis:
    """The last time at which a struck member can have published. A minute allows for a commit that was under way."""
    return StoreMillis(record.struck + int(SILENCE * 1000) + 60_000)
