"""Removes the records of members that seem to be gone. Several processes may do each step at once."""

import logging
from collections.abc import Mapping
from typing import Any, Final

from shared.fleet.fleet_view import FleetView
from shared.model.fleet import Fleet, PublisherRecord
from shared.model.times import StoreMillis
from shared.ports.fleet import FleetLook
from shared.redis.member_scripts import FENCE
from shared.redis.server import Server
from shared.runtime.clock import Clock

_log = logging.getLogger(__name__)

SILENT: Final = 10.0
"""Seconds without a sign of life in Redis after which a member that has joined is fenced."""
STRUCK_AFTER: Final = 30.0
"""Seconds for which a record owes before its member is taken for dead. They double each time that it came back."""
MOST: Final = 3_600.0


class GoneMembers:
    """Works for one live member. That another is silent is only a hint, so each step is safe if the other lives."""

    def __init__(self, server: Server, looks: FleetView, clock: Clock, member: str, silent: float = SILENT) -> None:
        self._server = server
        self._looks = looks
        self._clock = clock
        self._member = member
        self._silent = silent
        self._since: dict[str, tuple[object, float]] = {}
        """The last sign of each member, and when it was first seen."""

    async def tidy(self, look: FleetLook, seen: Mapping[str, str]) -> None:
        """Fence or strike members that seem to be gone. `seen`: when Redis last heard each member of the epoch."""
        fleet = look.fleet
        others = {name: record for name, record in fleet.members.items() if name != self._member}
        self._since = {name: one for name, one in self._since.items() if name in others}
        for name, record in others.items():
            still = self._still(name, (record, seen.get(name)))
            if fleet.joined(record):
                if still >= self._silent:
                    await self._fence(fleet, name, record)
            elif not record.gone() and still >= min(STRUCK_AFTER * 2**record.strikes, MOST):
                await self._strike(name, record)

    def _still(self, name: str, sight: object) -> float:
        """For how many seconds the member has looked like this."""
        now = self._clock.monotonic()
        if name not in self._since or self._since[name][0] != sight:
            self._since[name] = sight, now
        return now - self._since[name][1]

    async def _fence(self, fleet: Fleet, name: str, record: PublisherRecord) -> None:
        """Fence it. Without an entry in the overlay, all that it answered is applied: its record goes (rule 11)."""
        reply: Any = await self._server.ask(FENCE, fleet.overlay, name)
        if reply[0] != b"ok" or reply[1]:
            return

        def step(now: Fleet, _: StoreMillis) -> Fleet | None:
            same = now.overlay == fleet.overlay and now.members.get(name) == record
            return now.without(name) if same else None

        if name not in (await self._looks.change(step)).fleet.members:
            _log.info("a process is gone, and everything that it accepted is applied: %s", name)

    async def _strike(self, name: str, record: PublisherRecord) -> None:
        def step(now: Fleet, time: StoreMillis) -> Fleet | None:
            return now.strikes(name, time) if now.members.get(name) == record else None

        after = (await self._looks.change(step)).fleet.members.get(name)
        if after is None or after.strikes == record.strikes:
            return
        _log.warning(
            "process %s may be gone, and may have accepted something that no overlay holds: reads are not exact until"
            " it is back, or flushers have seen that nothing of it is left",
            name,
        )
