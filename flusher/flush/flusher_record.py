"""Keeps the fleet's record of this flusher: that it may hold messages, and, if a member is gone, how old they are."""

import logging
from typing import Final
from uuid import uuid4

from shared.fleet.fleet_view import FleetView
from shared.model.fleet import Fleet
from shared.model.gone_members import HOLDS, REPORTS, horizon, reported
from shared.model.times import NEVER, BrokerMillis, StoreMillis
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
        self._horizon = NEVER
        self._begun = NEVER
        """Since when nothing older than the horizon has been seen; `NEVER` while something is."""
        self._pulled = self._tended = float("-inf")

    def ready(self) -> bool:
        """Whether the flusher may hold messages."""
        return bool(self._id) and self._clock.monotonic() - self._looks.at < HOLDS

    def saw(self, oldest: BrokerMillis | None) -> None:
        """Note a pull, and when the oldest message that came or is held was published."""
        now = self._clock.monotonic()
        if now - self._pulled > GAP or (oldest is not None and oldest < self._horizon):
            self._begun = NEVER
        elif not self._begun:
            self._begun = self._looks.now()
        self._pulled = now

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
        if oldest := horizon(look.fleet, self._topic):
            await self._report(oldest)
        return True

    async def _enter(self) -> None:
        name = uuid4().hex[:12]
        await self._looks.change(lambda fleet, now: fleet.flushes(name, self._topic, now))
        self._id = name

    async def _report(self, clear: StoreMillis) -> None:
        if clear != self._horizon:
            self._horizon, self._begun = clear, NEVER
        if self._clock.monotonic() - self._pulled > GAP:
            self._begun = NEVER
        name, begun = self._id, self._begun

        def step(fleet: Fleet, now: StoreMillis) -> Fleet | None:
            if name not in fleet.flushers:
                return None
            return reported(fleet, name, clear=clear, begun=begun or now, now=now)

        await self._looks.change(step)

    async def leave(self) -> None:
        """Remove the record. The flusher must hold nothing."""
        name, self._id = self._id, ""
        if name:
            await self._looks.change(lambda fleet, _: fleet.without_flusher(name))
