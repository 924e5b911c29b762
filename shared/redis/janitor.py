"""Members that have lapsed: they are fenced, so that they accept nothing any more, and then forgotten."""

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import Final

from shared.clock import Clock
from shared.errors import TransientError
from shared.ports import Store
from shared.redis.apart import fence
from shared.redis.fleet_scripts import DROP
from shared.redis.server import Server

_log = logging.getLogger(__name__)

MARGIN: Final = 1.0
"""Seconds beyond a period, for two clocks that run apart."""


class Janitor:
    """Of one live member. Several may be at it: each step can be done twice."""

    def __init__(self, server: Server, store: Store, clock: Clock, *, patience: float, period: float) -> None:
        self._server = server
        self._store = store
        self._clock = clock
        self._patience = patience
        self._period = period
        self._lapsed: dict[tuple[str, int], float] = {}
        """Since when they have been seen so."""
        self._at_work: dict[tuple[str, int], asyncio.Task[None]] = {}

    def look(self, now: int, members: Mapping[str, int]) -> None:
        """Give them some time to come back by themselves; those of an earlier epoch more, since much would be lost."""
        here = self._clock.monotonic()
        lapsed = {(name, until) for name, until in members.items() if until <= now}
        self._lapsed = {one: self._lapsed.get(one, here) for one in lapsed}
        for one, since in self._lapsed.items():
            patience = self._patience if one[1] else 2 * self._patience
            if here - since >= patience and one not in self._at_work:
                self._at_work[one] = asyncio.create_task(self._forget(*one), name=f"fence {one[0]}")
                self._at_work[one].add_done_callback(partial(self._done, one))

    def _done(self, one: tuple[str, int], _: object) -> None:
        del self._at_work[one]

    async def _forget(self, name: str, until: int) -> None:
        try:
            periods = await fence(self._store, self._clock, name)
            if periods:
                await asyncio.sleep(self._period * 1.01 + MARGIN)
            lost = bool(periods) or not until
            if await self._server.ask(DROP, name, until, int(lost)):
                _log.warning(
                    "a process is gone that wrote to Redis at %s: %s",
                    self._server.shown,
                    "reads are exact when the flushers have applied what it may have accepted"
                    if lost
                    else "nothing is lost",
                )
        except TransientError as error:
            _log.debug("fencing failed and is tried again: %s", error)

    async def close(self) -> None:
        tasks = [*self._at_work.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
