"""When nothing is left of members that are gone, by what all flushers have seen (rule 16). Pure.

It is the one rule of the fleet that is no proof: Pub/Sub may deliver a message to nobody for as long as this takes.
Times are of the store's clock, in milliseconds.
"""

from dataclasses import replace
from typing import Final

from shared.model.fleet import SILENCE, Fleet, Record

HOLDS: Final = 600.0
"""Seconds after its last look at which a flusher gives back what it holds; and the longest lease of a broker."""
WATCHES: Final = 2 * HOLDS + 60.0
"""Seconds for which all flushers must have seen nothing old before a member that is gone is forgotten. They count from
when it can't have published anything more.
"""
REPORTS: Final = 60.0
"""Seconds between two reports of a flusher, while there is something to watch for."""
OVERDUE: Final = 5 * REPORTS


def horizon(fleet: Fleet, topic: str) -> int:
    """When the members of the topic that are gone have surely published their last; 0 if there are none."""
    gone = (one for one in fleet.members.values() if one.struck and one.topic in {topic, ""})
    return max(map(_last_publish, gone), default=0)


def reported(fleet: Fleet, flusher: str, *, clear: int, begun: int, now: int) -> Fleet:
    """A flusher has held and pulled nothing that was published before `clear`, from `begun` to `now`. Members and
    flushers that are gone, by all reports, are forgotten.
    """
    watch = fleet.flushers[flusher]._replace(clear=clear, begun=begun, until=now)
    return _without_gone(_without_silent(replace(fleet, flushers={**fleet.flushers, flusher: watch}), now), now)


def _without_silent(fleet: Fleet, now: int) -> Fleet:
    """A flusher that does not report is taken for dead; some time later it holds nothing any more."""
    strike = max((one.struck for one in fleet.members.values()), default=0)
    flushers = {}
    for name, one in fleet.flushers.items():
        if not one.struck and now - max(one.until, strike) > OVERDUE * 1000:
            flushers[name] = one._replace(struck=now)
        elif not one.struck or now - one.struck <= WATCHES * 1000:
            flushers[name] = one
    return replace(fleet, flushers=flushers)


def _without_gone(fleet: Fleet, now: int) -> Fleet:
    gone = [name for name, one in fleet.members.items() if one.struck and not one.spool and _unseen(fleet, one, now)]
    return fleet.without(*gone)


def _unseen(fleet: Fleet, record: Record, now: int) -> bool:
    """Whether every flusher of its topic has seen nothing so old for long enough, after the last that it could have
    published: before that it may just have been quiet. Nobody knows the topic of an older version, so its record needs
    all of them.
    """
    last = _last_publish(record)
    watches = [one for one in fleet.flushers.values() if record.topic in {one.topic, ""}]
    return bool(watches) and all(
        one.clear >= last and one.until - max(one.begun, last) >= WATCHES * 1000 and now - one.until <= OVERDUE * 1000
        for one in watches
    )


def _last_publish(record: Record) -> int:
    """A member that was struck has published nothing later: a minute is for a commit that was under way."""
    return record.struck + int(SILENCE * 1000) + 60_000
