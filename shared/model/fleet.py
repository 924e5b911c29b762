"""The fleet: which overlay is valid, what members may owe, and when messages of members that are gone are applied.
Pure.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import orjson

from shared.model.buckets import NEVER, StoreMillis

LONGEST_LOOK: Final = 1.0
"""Seconds for which readings may use one look at the fleet."""
LOOK_MARGIN: Final = 0.25
"""Seconds that a member waits in addition, since two clocks may run at different speeds."""
LOOK_EVERY: Final = 10.0
"""The longest time (s) between two looks at the fleet by an idle member."""
SILENCE: Final = 3_600.0
"""Seconds after its last look at which a member stops answering (ADR 18, rule 13)."""
_OLDER: Final = "older"
"""The name of the record that stands for all processes before there was a fleet."""


class NamedOverlay(NamedTuple):
    """The overlay that all members of an epoch write to."""

    epoch: int = 0
    """0 until the first overlay is named."""
    nonce: str = ""
    """Part of the keys of the epoch's entries, so that entries of earlier epochs are not seen."""
    identity: str = ""
    """The server and its run. A server that is restarted or promoted has another identity."""
    place: str = ""
    """The URL in the settings of the member that named it."""


NONE: Final = NamedOverlay()


class PublisherRecord(NamedTuple):
    """What the fleet knows of one member: where its entries are, or that it may owe entries."""

    joined: int = 0
    """The epoch whose overlay holds everything that it accepted. 0: it owes entries."""
    since: int = 0
    """The fleet's version that wrote this record. No two writes have the same."""
    topic: str = ""
    spool: str = ""
    """The id of the spool file in which it may have rows."""
    struck: StoreMillis = NEVER
    """When it was taken for dead, or `NEVER`. A struck member owes entries, too."""
    strikes: int = 0
    """How often it was taken for dead."""
    stopped: StoreMillis = NEVER
    """When it stopped in good order, or `NEVER`. It has answered nothing since, and is never struck (ADR 32)."""
    listed: bool = False
    """Whether the store keeps a list of the receipts that were missing then (`FleetBook.left_by`)."""

    def gone(self) -> bool:
        return bool(self.struck or self.stopped)


class FlusherRecord(NamedTuple):
    """What a flusher has seen: the evidence that the messages of gone members are applied (ADR 18, rule 16)."""

    topic: str = ""
    since: int = 0
    """The fleet's version in which it joined."""
    clear: StoreMillis = NEVER
    """In its last `WATCHES` it pulled without a gap, and held nothing that was published before this."""
    begun: StoreMillis = NEVER
    until: StoreMillis = NEVER
    """When it said so last."""
    struck: StoreMillis = NEVER
    """When it was taken for dead, or `NEVER`."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The content of the entity."""

    version: int = 0
    """0 if there is no entity."""
    overlay: NamedOverlay = NONE
    members: Mapping[str, PublisherRecord] = field(default_factory=dict)
    flushers: Mapping[str, FlusherRecord] = field(default_factory=dict)
    left: Mapping[str, FlusherRecord] = field(default_factory=dict)
    """Flushers that stopped in good order while a member was gone. What they saw still counts."""

    def whole(self) -> bool:
        """Whether the overlay holds everything that is accepted and not applied."""
        return bool(self.overlay.epoch) and not self.apart()

    def apart(self) -> Mapping[str, PublisherRecord]:
        """The members that keep the fleet from being whole."""
        return {name: one for name, one in self.members.items() if not self.joined(one)}

    def joined(self, record: PublisherRecord) -> bool:
        return bool(record.joined) and record.joined == self.overlay.epoch and not record.struck

    def owes(self, member: str, topic: str, spool: str = "") -> "Fleet":
        """The fleet in which the member may accept increments that are in no overlay."""
        strikes = self.members[member].strikes if member in self.members else 0
        return self._with(member, PublisherRecord(0, self.version + 1, topic, spool, NEVER, strikes))

    def joins(self, member: str, topic: str, spool: str = "") -> "Fleet":
        """Everything that the member has accepted is in the overlay."""
        return self._with(member, PublisherRecord(self.overlay.epoch, self.version + 1, topic, spool))

    def names(self, nonce: str, identity: str, place: str) -> "Fleet":
        """Begin a new epoch. All records owe entries from then on, though they are not changed."""
        return replace(self, overlay=NamedOverlay(self.overlay.epoch + 1, nonce, identity, place))

    def stops(self, member: str, now: StoreMillis, *, listed: bool) -> "Fleet":
        """The member answers nothing more. `listed`: all of it that may be pending is in its list."""
        before = self.members[member]
        stopped = before._replace(since=self.version + 1, struck=NEVER, stopped=now, listed=listed)
        return self._with(member, stopped)

    def strikes(self, member: str, now: StoreMillis) -> "Fleet":
        """Take the member for dead, unless it has stopped in good order."""
        before = self.members[member]
        if before.stopped:
            return self
        struck = before._replace(joined=0, since=self.version + 1, struck=now, strikes=before.strikes + 1)
        return self._with(member, struck)

    def takes_over(self, dead: Collection[str], now: StoreMillis) -> "Fleet":
        """Another member has taken over the spool files of these members and entered their rows. It may have published
        rows until now, so their strikes or stops count from now.
        """
        fleet = self
        for name, one in self.members.items():
            if name in dead and one.spool:
                struck, stopped = now if one.struck else NEVER, now if one.stopped else NEVER
                heir = one._replace(spool="", struck=struck, stopped=stopped, since=self.version + 1)
                fleet = fleet._with(name, heir)
        return fleet

    def without(self, *members: str) -> "Fleet":
        return replace(self, members={name: one for name, one in self.members.items() if name not in members})

    def flushes(self, flusher: str, topic: str, now: StoreMillis) -> "Fleet":
        """From now on the flusher may hold messages. This counts as a report, so
        that it is not taken for dead before its first one.
        """
        record = FlusherRecord(topic, self.version + 1, begun=now, until=now)
        return replace(self, flushers={**self.flushers, flusher: record})

    def _with(self, member: str, record: PublisherRecord) -> "Fleet":
        return replace(self, members={**self.members, member: record})


def first(now: StoreMillis, *, used: bool) -> Fleet:
    """The fleet of a store that has no entity. If the store was `used` before, something unknown may be pending: from
    an older version, or from a fleet whose entity was deleted or restored.
    """
    return Fleet(members={_OLDER: PublisherRecord(since=1, struck=StoreMillis(max(now, 1)), strikes=1)} if used else {})


def begun(fleet: Fleet, _: StoreMillis) -> Fleet | None:
    """A step that makes the fleet's entity if it is missing. Take it before you write the first receipt into a new
    store: one with receipts and without the entity counts as one that has lost it.
    """
    return None if fleet.version else fleet


def written(fleet: Fleet) -> bytes:
    said: dict[str, Any] = {"version": fleet.version, "overlay": fleet.overlay._asdict()}
    for name in ("members", "flushers", "left"):
        said[name] = {its: _written(record) for its, record in getattr(fleet, name).items()}
    return orjson.dumps(said)


def _written(record: PublisherRecord | FlusherRecord) -> dict[str, Any]:
    """Without what has its default, so that a version that does not know a field can read records without it."""
    return {name: value for name, value in record._asdict().items() if value}


def read(data: bytes) -> Fleet:
    said: dict[str, Any] = orjson.loads(data)
    members = {name: PublisherRecord(**record) for name, record in said["members"].items()}
    flushers = {name: FlusherRecord(**record) for name, record in said["flushers"].items()}
    left = {name: FlusherRecord(**record) for name, record in said.get("left", {}).items()}
    return Fleet(said["version"], NamedOverlay(**said["overlay"]), members, flushers, left)


# Decides when the messages of members that are gone have all been applied, from what flushers saw (ADR 18, rule 16).
# Pure.


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
    fleet = _without_silent(fleet, now)
    gone = [name for name, one in fleet.members.items() if one.gone() and not one.spool and _unseen(fleet, one, now)]
    return fleet.without(*gone)


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


def _unseen(fleet: Fleet, record: PublisherRecord, now: StoreMillis) -> bool:
    """Whether flushers have watched the member's topic for long enough. The record of an older version has no topic, so
    it needs all topics.
    """
    topics = {record.topic} if record.topic else {one.topic for one in fleet.flushers.values()}
    return bool(topics) and all(_watched(fleet, topic, _last_publish(record), now) for topic in topics)


def _watched(fleet: Fleet, topic: str, last: StoreMillis, now: StoreMillis) -> bool:
    """Whether at least one flusher of the topic has pulled for long enough since `last`, all in all, while none of them
    saw anything that was published before. What a stopped one saw is waited for again, since it gave that back.
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
