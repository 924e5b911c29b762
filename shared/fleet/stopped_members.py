"""Removes the record of a process that stopped in good order, once all that it listed then is settled (ADR 32)."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from shared.fleet.fleet_view import LOOK_WITHIN, FleetView
from shared.model.buckets import StoreMillis
from shared.model.errors import TransientError
from shared.model.fleet import Fleet, PublisherRecord
from shared.ports.store import FleetLook, ReceiptBook
from shared.runtime.clock import Clock

_log = logging.getLogger(__name__)

FIRST: Final = 1.0
"""Seconds between two looks for the receipts of a list. They double each time that nothing new is found."""
LONGEST: Final = 60.0
MOST: Final = 1_000
"""Receipts that are looked up at once."""


async def unsettled(store: ReceiptBook, keys: Sequence[str]) -> list[str]:
    """Those of the receipts that are not settled. `TransientError` if the store does not answer."""
    left = list[str]()
    for begin in range(0, len(keys), MOST):
        some = keys[begin : begin + MOST]
        found = (await store.receipts(some)).found
        left += [key for key in some if key not in found or not found[key].settled]
    return left


@dataclass(slots=True)
class _Missing:
    """The receipts of one list that were not found yet."""

    keys: list[str]
    due: float
    pause: float = FIRST


class StoppedMembers:
    """Works for one live member. Several may do it at once: a record is removed only as it was seen."""

    def __init__(self, looks: FleetView, store: ReceiptBook, clock: Clock) -> None:
        self._looks = looks
        self._store = store
        self._clock = clock
        self._missing: dict[str, _Missing] = {}

    async def tidy(self, look: FleetLook) -> None:
        """Look up what is due, and remove the records of which nothing is missing."""
        listed = {name: record for name, record in look.fleet.members.items() if record.listed}
        self._missing = {name: one for name, one in self._missing.items() if name in listed}
        for name, record in listed.items():
            try:
                async with asyncio.timeout(LOOK_WITHIN):
                    settled = await self._settled(name)
            except (TransientError, TimeoutError) as error:
                _log.debug("can't find out whether all that %s left behind is settled: %s", name, error)
                return
            if settled:
                await self._remove(name, record)

    async def _settled(self, name: str) -> bool:
        """Whether all of the list is settled. Looks for a part of it, if it is time to."""
        now = self._clock.monotonic()
        if name not in self._missing:
            its: Collection[str] | None = await self._looks.left_by(name)
            if its is None:  # then the evidence of flushers has to do
                self._missing[name] = _Missing([], float("inf"))
            else:
                self._missing[name] = _Missing([*its], now)
        missing = self._missing[name]
        while missing.keys and missing.due <= now:
            some = missing.keys[:MOST]
            left = await unsettled(self._store, some)
            missing.keys = [*missing.keys[MOST:], *left]
            if left:
                missing.pause = FIRST if len(left) < len(some) else min(2 * missing.pause, LONGEST)
                missing.due = now + missing.pause
        return not missing.keys and missing.due <= now

    async def _remove(self, name: str, record: PublisherRecord) -> None:
        def step(fleet: Fleet, _: StoreMillis) -> Fleet | None:
            return fleet.without(name) if fleet.members.get(name) == record else None

        if name not in (await self._looks.change(step)).fleet.members:
            _log.info("a process has stopped, and everything that it accepted is applied: %s", name)
