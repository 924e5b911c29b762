"""Owns the record of one publisher in the fleet, and says whether it may answer.

`memory://` has members, too: they only ever owe, and those of one topic share a record.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final, NamedTuple
from uuid import uuid4

from shared.fleet.looks import Looks
from shared.model.errors import OverloadedError
from shared.model.fleet import LONGEST_LOOK, MARGIN, SILENCE, Fleet, Record
from shared.ports.fleet import FleetLook, Rows, SpoolFile
from shared.runtime.clock import Clock

_log = logging.getLogger(__name__)

UNKNOWN: Final = "unknown"
"""Nobody knows what the store says of this member; it answers nothing."""
OWES: Final = "owes"
JOINING: Final = "joining"
"""A commit is under way that says that it has joined."""
JOINED: Final = "joined"


class Heritage(NamedTuple):
    """What a member finds in its spool file."""

    dead: Collection[str]
    """Others that had the file and are gone."""
    rows: Rows
    """Theirs, and its own."""


def new_member() -> str:
    """A name that no other run has, or has had."""
    return uuid4().hex[:16]


def in_memory(topic: str, spool: str) -> str:
    """The member that stands for all processes whose overlay is their own memory, on one spool file or one topic."""
    return f"memory-{spool or topic}"


class Membership:
    """One run of one publisher. It answers nothing before its record is in the store (rules 4, 6 and 13)."""

    def __init__(
        self,
        looks: Looks,
        clock: Clock,
        *,
        member: str,
        topic: str,
        spool: SpoolFile | None = None,
        longest_look: float = LONGEST_LOOK,
        silence: float = SILENCE,
    ) -> None:
        self.id = member
        self._looks = looks
        self._clock = clock
        self._topic = topic
        self._file = spool
        self._spool = spool.id if spool is not None else ""
        if spool is not None:
            spool.hold(member)
        self.found: Heritage | None = None
        """Its rows are to be entered before anything else; then call `inherit`."""
        self._heir_of: Collection[str] | None = None
        """Those whose rows were entered, and who still have the file by the last look; None before the first ones."""
        self._wait = longest_look + MARGIN if longest_look else 0.0
        self._silence = silence
        self._turn = asyncio.Lock()
        self.state = UNKNOWN
        self.epoch = 0
        """The one that it has joined."""
        self._seen_epoch = 0
        self._seen_at = 0.0
        """When the current epoch was first seen here."""
        self._free = 0.0
        """From when on it may answer: until then a reader's look may be of before the last change."""

    def joined(self, fleet: Fleet) -> bool:
        return self.state == JOINED and self.epoch == fleet.overlay.epoch

    def check(self) -> None:
        """`OverloadedError` if this process may answer nothing now."""
        if self.state == UNKNOWN:
            raise OverloadedError(
                "this process is not in the store's list of those that accept increments; it goes in as soon as the"
                " store answers (COUNTERSINK_STORE)"
            )
        if not self._spool and self._clock.monotonic() - self._looks.at > self._silence:
            raise OverloadedError(
                f"the store has not answered for {self._silence:.0f} seconds, so the other processes may take this one"
                " for dead; it goes on as soon as the store answers (COUNTERSINK_STORE)"
            )

    async def until_free(self) -> None:
        """Return when no reading leans on a look of before the last change."""
        if (left := self._free - self._clock.monotonic()) > 0:
            await asyncio.sleep(left)
            await self.until_free()

    def reconcile(self, look: FleetLook) -> None:
        """What a look says of this member."""
        overlay = look.fleet.overlay
        if overlay.epoch != self._seen_epoch:
            self._seen_epoch, self._seen_at = overlay.epoch, self._clock.monotonic()
        self._find(look.fleet)
        if self.state not in {OWES, JOINED}:
            return
        record = look.fleet.members.get(self.id)
        if record is None or record.struck:
            _log.info("this process was taken for dead, and comes back")
            self.state = UNKNOWN
        elif self.state == JOINED and not record.joined:  # it did commit that it owes, and has not heard of it
            self.state = UNKNOWN

    def shares(self, look: FleetLook) -> bool:
        """Whether another process has had the record say `owes`, so that it speaks for this one, too."""
        record = look.fleet.members.get(self.id)
        if record is None or record.struck or record.joined or record.spool != self._spool:
            return False
        self._owes(look)
        return True

    async def owe(self) -> None:
        """Return when the store says that this process may have answered what is in no overlay."""
        async with self._turn:
            if self.state == OWES:
                return
            look = await self._changed(
                lambda fleet, now: self._inherits(fleet, now).owes(self.id, self._topic, self._spool)
            )
            self._owes(look)

    def _owes(self, look: FleetLook) -> None:
        self.state = OWES
        if look.fleet.overlay.epoch:  # before there was an overlay no reading was exact
            self._free = self._clock.monotonic() + self._wait

    async def join(self, epoch: int) -> bool:
        """Have the store say that all that was answered is in the overlay of the epoch; False if it has ended.

        Call it in the same step in which you saw that nothing is left to be written.
        """
        if self.state == JOINING:
            return False
        before, self.state = self.state, JOINING

        def step(fleet: Fleet, now: int) -> Fleet | None:
            if fleet.overlay.epoch != epoch:
                return None
            return self._inherits(fleet, now).joins(self.id, self._topic, self._spool)

        async with self._turn:
            try:
                look = await self._changed(step)
            except BaseException:
                self.state = UNKNOWN
                raise
            if look.fleet.overlay.epoch != epoch:
                self.state = before  # nothing was written
                return False
            self.state, self.epoch = JOINED, epoch
            if epoch > 1:  # before the first one no reading was exact
                self._free = max(self._free, self._seen_at + self._wait)
            return True

    async def leave(self) -> None:
        """Take the record away: everything that was answered is applied."""
        async with self._turn:
            self.state = UNKNOWN
            await self._changed(lambda fleet, _: fleet.without(self.id) if self.id in fleet.members else None)

    def inherit(self, found: Heritage) -> None:
        """Its rows are entered: the next change of the record takes the file over from those who had it."""
        self._heir_of, self.found = found.dead, None

    def _find(self, fleet: Fleet) -> None:
        """At first whatever is in the file; later what is there when somebody who had it, too, is struck and gone."""
        if self._file is None or self.found is not None:
            return
        first, had = self._heir_of is None, self._with_spool(fleet)
        if self._heir_of is not None:
            had = {name: one for name, one in had.items() if one.struck and name not in self._heir_of}
        if first or had:
            dead = had.keys() - self._file.alive()  # asked before the rows are read: these add none any more
            if first or dead:
                self.found = Heritage(dead, self._file.rows())

    def _with_spool(self, fleet: Fleet) -> dict[str, Record]:
        """Others that may have rows in the same file."""
        return {name: one for name, one in fleet.members.items() if one.spool == self._spool and name != self.id}

    def _inherits(self, fleet: Fleet, now: int) -> Fleet:
        return fleet.takes_over(self._heir_of or (), now)

    async def _changed(self, step: Callable[[Fleet, int], Fleet | None]) -> FleetLook:
        look = await self._looks.change(step)
        if self._heir_of and self._with_spool(look.fleet).keys().isdisjoint(self._heir_of):
            self._heir_of = ()  # `memory://` may use the name of its record again
        self.reconcile(look)
        return look
