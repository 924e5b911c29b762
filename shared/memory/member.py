"""The overlay in an ingest's own memory, with a member in the fleet, so that others know that they do not see it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from shared.fleet.fleet_view import FleetView
from shared.fleet.membership import UNKNOWN, Membership
from shared.memory.overlay import ProcessOverlay
from shared.model.envelope import Envelope
from shared.model.errors import TransientError
from shared.model.fleet import LOOK_EVERY
from shared.runtime.clock import Clock
from shared.runtime.retry import ended

_log = logging.getLogger(__name__)

SOON: Final = 1.0
"""Seconds between two tries while the store is away."""


class MemberOverlay(ProcessOverlay):
    """Its member always owes (ADR 18, rule 4), so all processes on one spool file or one topic share a record."""

    def __init__(self, clock: Clock, looks: FleetView, membership: Membership) -> None:
        super().__init__(clock)
        self._looks = looks
        self._membership = membership
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start. If the store is away, nothing is accepted until it has answered."""
        with suppress(TransientError):
            await self._step()
        self._task = asyncio.create_task(self._run(), name="membership")

    async def close(self) -> None:
        """Stop. The record stays, since what was accepted here may not be applied yet."""
        await ended(self._task)
        await self._looks.close()

    @asynccontextmanager
    async def entered(self, envelopes: Sequence[Envelope]) -> AsyncIterator[None]:
        self.check()
        async with super().entered(envelopes):
            yield
            await self._membership.until_free()
            self.check()

    def check(self) -> None:
        self._membership.check()

    async def _run(self) -> None:
        while True:
            known = self._membership.state != UNKNOWN and self._looks.answered
            await asyncio.sleep(LOOK_EVERY if known else SOON)
            try:
                await self._step()
            except TransientError as error:
                _log.debug("can't update the record of this process in the store, trying again: %s", error)

    async def _step(self) -> None:
        look = await self._looks.get(SOON / 2)
        if look is None:
            return
        self._membership.reconcile(look)
        if (found := self._membership.found) is not None:
            async for envelope, _ in found.rows.read():
                self._add(envelope, confirmed=True)
            self._membership.inherit(found)
        if self._membership.state == UNKNOWN and not self._membership.shares(look):
            await self._membership.owe()
