"""The fleet: which overlay is the one, and who may have accepted something that is not in it. Pure.

One entity in the store holds all of it (ADR 18). A reading may say `exact` only if the entity says that the fleet is
whole: there is an overlay, and the record of every member has joined its epoch. Each change makes a new version.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import orjson

LONGEST_LOOK: Final = 1.0
"""Seconds for which one look at the fleet may serve readings."""
MARGIN: Final = 0.25
"""Seconds that a member waits beyond that, so that two clocks may run apart."""
LOOK_EVERY: Final = 10.0
"""Seconds between two looks at the fleet of a member that nobody asks for anything, at most."""
SILENCE: Final = 3_600.0
"""Seconds after its last look at which a member stops answering (P in the model)."""
_OLDER: Final = "older"
"""The record of whatever ran on this store before there was a fleet."""


class NamedOverlay(NamedTuple):
    """The overlay that all members of an epoch write to."""

    epoch: int = 0
    """0 until somebody names the first one."""
    nonce: str = ""
    """Stands in the keys of the epoch's entries, so that nothing of an earlier epoch is seen."""
    identity: str = ""
    """Which run of which server it is. A server that is restarted or promoted has another one."""
    place: str = ""
    """Where the settings of the member that named it say that it is."""


NONE: Final = NamedOverlay()


class Record(NamedTuple):
    """What the fleet knows of one member: where its entries are, or that it may have answered what is in no overlay."""

    joined: int = 0
    """The epoch in whose overlay all that it answers is entered; 0: it owes entries."""
    since: int = 0
    """The version of the fleet in which the record was written. No two writes have the same."""
    topic: str = ""
    """What it publishes to."""
    spool: str = ""
    """The id of the spool file that it may have rows in."""
    struck: int = 0
    """When it was taken for dead: milliseconds since 1970 by the store's clock, or 0. It owes, too."""
    strikes: int = 0
    """How often that happened to it."""


class Watch(NamedTuple):
    """What a flusher has seen, as evidence that nothing is left of members that are gone (rule 16). Times are of the
    store's clock, in milliseconds.
    """

    topic: str = ""
    since: int = 0
    """The version of the fleet in which it came."""
    clear: int = 0
    """It has held and pulled nothing that was published before then…"""
    begun: int = 0
    """…since then, without a gap…"""
    until: int = 0
    """…until then."""
    struck: int = 0
    """When it was taken for dead, or 0."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """All that the entity says."""

    version: int = 0
    """0: there is no entity."""
    overlay: NamedOverlay = NONE
    members: Mapping[str, Record] = field(default_factory=dict)
    flushers: Mapping[str, Watch] = field(default_factory=dict)

    def whole(self) -> bool:
        """Whether the overlay holds everything that was accepted and is not applied."""
        return bool(self.overlay.epoch) and not self.apart()

    def apart(self) -> Mapping[str, Record]:
        """The members that keep the fleet from being whole."""
        return {name: one for name, one in self.members.items() if not self.joined(one)}

    def joined(self, record: Record) -> bool:
        return bool(record.joined) and record.joined == self.overlay.epoch and not record.struck

    def owes(self, member: str, topic: str, spool: str = "") -> "Fleet":
        """From now on the member may answer what is in no overlay."""
        strikes = self.members[member].strikes if member in self.members else 0
        return self._with(member, Record(0, self.version + 1, topic, spool, 0, strikes))

    def joins(self, member: str, topic: str, spool: str = "") -> "Fleet":
        """All that the member has answered is in the overlay."""
        return self._with(member, Record(self.overlay.epoch, self.version + 1, topic, spool))

    def names(self, nonce: str, identity: str, place: str) -> "Fleet":
        """A new epoch. All records owe from then on, untouched."""
        return replace(self, overlay=NamedOverlay(self.overlay.epoch + 1, nonce, identity, place))

    def strikes(self, member: str, now: int) -> "Fleet":
        """The member is taken for dead; `now` is the store's time (ms)."""
        before = self.members[member]
        struck = before._replace(joined=0, since=self.version + 1, struck=now, strikes=before.strikes + 1)
        return self._with(member, struck)

    def takes_over(self, dead: Collection[str], now: int) -> "Fleet":
        """The spool files of these members are with one who has entered their rows. It may have published some of them
        until now, and so a strike counts from now on.
        """
        fleet = self
        for name, one in self.members.items():
            if name in dead and one.spool:
                struck, since = now if one.struck else 0, self.version + 1
                fleet = fleet._with(name, one._replace(spool="", struck=struck, since=since))
        return fleet

    def without(self, *members: str) -> "Fleet":
        return replace(self, members={name: one for name, one in self.members.items() if name not in members})

    def flushes(self, flusher: str, topic: str, now: int) -> "Fleet":
        """From now on the flusher may hold messages; `now` is the store's time (ms). It has been heard, so nobody takes
        it for dead before it could report.
        """
        watch = Watch(topic, self.version + 1, begun=now, until=now)
        return replace(self, flushers={**self.flushers, flusher: watch})

    def without_flusher(self, flusher: str) -> "Fleet":
        return replace(self, flushers={name: one for name, one in self.flushers.items() if name != flusher})

    def _with(self, member: str, record: Record) -> "Fleet":
        return replace(self, members={**self.members, member: record})


def first(now: int, *, used: bool) -> Fleet:
    """Of a store without the entity. If the store was `used` before, somebody may have accepted what nobody knows of:
    an older version, or a fleet whose entity was deleted or put back.
    """
    return Fleet(members={_OLDER: Record(since=1, struck=max(now, 1), strikes=1)} if used else {})


def written(fleet: Fleet) -> bytes:
    """The fleet as it is stored."""
    members = {name: record._asdict() for name, record in fleet.members.items()}
    flushers = {name: watch._asdict() for name, watch in fleet.flushers.items()}
    overlay = fleet.overlay._asdict()
    return orjson.dumps({"version": fleet.version, "overlay": overlay, "members": members, "flushers": flushers})


def read(data: bytes) -> Fleet:
    """What `written` made."""
    said: dict[str, Any] = orjson.loads(data)
    members = {name: Record(**record) for name, record in said["members"].items()}
    flushers = {name: Watch(**watch) for name, watch in said["flushers"].items()}
    return Fleet(said["version"], NamedOverlay(**said["overlay"]), members, flushers)
