"""Records of members that are gone: removed when nothing of theirs can be missing. Each step can be done by several."""

import logging
from collections.abc import Mapping
from typing import Any, Final

from shared.fleet.looks import Looks
from shared.model.fleet import Fleet, Record
from shared.ports.fleet import FleetLook
from shared.redis.member_scripts import FENCE
from shared.redis.server import Server
from shared.runtime.clock import Clock

_log = logging.getLogger(__name__)

SILENT: Final = 10.0
"""Seconds without a word in Redis after which a member that has joined is fenced."""
STRUCK_AFTER: Final = 30.0
"""Seconds for which a record owes before its member is taken for dead, doubled with each time that it came back."""
MOST: Final = 3_600.0


class Janitor:
    """Of one live member. That others are silent is no more than a hint: what it does to a live one is safe."""

    def __init__(self, server: Server, looks: Looks, clock: Clock, member: str, silent: float = SILENT) -> None:
        self._server = server
        self._looks = looks
        self._clock = clock
        self._member = member
        self._silent = silent
        self._since: dict[str, tuple[object, float]] = {}
        """What was last seen of a member, and when first."""

    async def tidy(self, look: FleetLook, seen: Mapping[str, str]) -> None:
        """`seen`: when Redis has last heard the members of the epoch."""
        fleet = look.fleet
        others = {name: record for name, record in fleet.members.items() if name != self._member}
        self._since = {name: one for name, one in self._since.items() if name in others}
        for name, record in others.items():
            still = self._still(name, (record, seen.get(name)))
            if fleet.joined(record):
                if still >= self._silent:
                    await self._fence(fleet, name, record)
            elif not record.struck and still >= min(STRUCK_AFTER * 2**record.strikes, MOST):
                await self._strike(name, record)

    def _still(self, name: str, sight: object) -> float:
        """For how many seconds it has been seen like this."""
        now = self._clock.monotonic()
        if name not in self._since or self._since[name][0] != sight:
            self._since[name] = sight, now
        return now - self._since[name][1]

    async def _fence(self, fleet: Fleet, name: str, record: Record) -> None:
        """Rule 11: once it is fenced and has no entry in the overlay, everything that it answered is applied."""
        reply: Any = await self._server.ask(FENCE, fleet.overlay, name)
        if reply[0] != b"ok" or reply[1]:
            return

        def step(now: Fleet, _: int) -> Fleet | None:
            same = now.overlay == fleet.overlay and now.members.get(name) == record
            return now.without(name) if same else None

        if name not in (await self._looks.change(step)).fleet.members:
            _log.info("a process is gone, and everything that it accepted is applied: %s", name)

    async def _strike(self, name: str, record: Record) -> None:
        def step(now: Fleet, time: int) -> Fleet | None:
            return now.strikes(name, time) if now.members.get(name) == record else None

        after = (await self._looks.change(step)).fleet.members.get(name)
        if after is None or after.strikes == record.strikes:
            return
        _log.warning(
            "a process may be gone that accepted what no overlay holds (%s): reads are not exact until it is back, or"
            " flushers have seen that nothing of it is left",
            name,
        )
