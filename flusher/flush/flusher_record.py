"""Keeps the fleet's record of this flusher: that it may hold messages, and, if a member is gone, how old they are."""

import logging
from typing import Final
from uuid import uuid4

from shared.fleet.fleet_view import FleetView
from shared.model.buckets import NEVER, BrokerMillis, StoreMillis
from shared.model.fleet import HOLDS, REPORTS, WATCHES, Fleet, gone, leaves, reported
from shared.runtime.clock import Clock

_log = logging.getLogger(__name__)

GAP: Final = 30.0
"""Seconds without a pull after which a flusher starts to watch again from the beginning."""


class BacklogWitness:
    """Lets a flusher pull only while its record is in the store, and the store was not away for too long."""

    def __init__(self, looks: FleetView, clock: Clock, topic: str) -> None:
        self._looks = looks
        self._clock = clock
        self._topic = topic
        self._id = ""
        self._seen: list[tuple[StoreMillis, StoreMillis, BrokerMillis]] = []
        """What was seen, by the minute: from when, until when, and when the oldest of it was published."""
        self._pulled = self._tended = float("-inf")

    def ready(self) -> bool:
        """Whether the flusher may hold messages."""
        return bool(self._id) and self._clock.monotonic() - self._looks.at < HOLDS

    def saw(self, oldest: BrokerMillis | None) -> None:
        """Note a pull, and when the oldest message that came or is held was published."""
        self._note_gap()
        self._pulled = self._clock.monotonic()
        if oldest is not None:
            self._note(oldest)

    def _note_gap(self) -> None:
        """Without pulls it does not know what there is, so it may be anything."""
        if self._clock.monotonic() - self._pulled > GAP:
            self._note(BrokerMillis(NEVER))

    def _note(self, oldest: BrokerMillis) -> None:
        now = self._looks.now()
        if self._seen and now - self._seen[-1][0] < REPORTS * 1000:
            begun, _, before = self._seen.pop()
            self._seen.append((begun, now, min(before, oldest)))
        else:
            self._seen = [one for one in self._seen if now - one[1] <= WATCHES * 1000]
            self._seen.append((now, now, oldest))

    def _clear(self) -> StoreMillis:
        """The time before which nothing was published that it saw in the last `WATCHES`."""
        self._note_gap()
        now = self._looks.now()
        return StoreMillis(
            min((oldest for _, until, oldest in self._seen if now - until <= WATCHES * 1000), default=now)
        )

    async def tend(self) -> bool:
        """Report, at most now and then. Returns False if others took this flusher for dead: it must hold nothing."""
        if not self._id:
            await self._enter()
        if self._clock.monotonic() - self._tended < REPORTS:
            return True
        self._tended = self._clock.monotonic()
        look = await self._looks.get(REPORTS / 2)
        if look is None:
            return True
        record = look.fleet.flushers.get(self._id)
        if record is None or record.struck:
            _log.warning("other flushers took this flusher for dead: it gives its messages back and starts again")
            self._id = ""
            return False
        if gone(look.fleet, self._topic):
            await self._report()
        return True

    async def _enter(self) -> None:
        name = uuid4().hex[:12]
        await self._looks.change(lambda fleet, now: fleet.flushes(name, self._topic, now))
        self._id, self._pulled = name, self._clock.monotonic()

    async def _report(self) -> None:
        name = self._id

        def step(fleet: Fleet, now: StoreMillis) -> Fleet | None:
            return reported(fleet, name, clear=self._clear(), now=now) if name in fleet.flushers else None

        await self._looks.change(step)

    async def leave(self) -> None:
        """Remove the record. The flusher must hold nothing."""
        name, self._id = self._id, ""

        def step(fleet: Fleet, now: StoreMillis) -> Fleet | None:
            return leaves(fleet, name, clear=self._clear(), now=now) if name in fleet.flushers else None

        if name:
            await self._looks.change(step)
