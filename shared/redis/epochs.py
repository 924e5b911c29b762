"""Epochs: what Redis holds is of one, until it may have lost something. Whoever notices begins the next, and says what
may be lost for good.
"""

import asyncio
import logging
from collections.abc import Iterable
from hashlib import sha256
from typing import Final, NamedTuple
from uuid import uuid4

from shared.clock import Clock
from shared.errors import AlreadyAppliedError, TransientError
from shared.ports import Store
from shared.receipts import DAY
from shared.redis.fleet_scripts import EPOCH, LOOK
from shared.redis.links import AwayError
from shared.redis.server import Server
from shared.words import Commit, Receipt

_log = logging.getLogger(__name__)

GRACE: Final = 2.0
"""Seconds in which members that the one who begins an epoch has not heard of may come."""
PATIENCE: Final = 2.0


class Fleet(NamedTuple):
    """What a member knew of the others when it last renewed."""

    now: int
    """Redis's time (ms)."""
    orphans: int
    """Confirmed entries of nobody who would write them again."""
    suspect: bool
    top: int
    """The greatest floor of any counter."""
    arrived: int
    """Members so far in the epoch."""
    epoch: bytes
    members: dict[str, int]
    """And until when their leases are."""


class Epochs:
    """`lifetime`: milliseconds of receipts, so that what was accepted earlier is applied or buried."""

    def __init__(
        self, server: Server, store: Store, clock: Clock, prefix: str, *, lifetime: int, grace: float = GRACE
    ) -> None:
        self._server = server
        self._store = store
        self._clock = clock
        self._prefix = prefix
        self._lifetime = lifetime
        self._grace = grace
        self._marked = 0

    async def current(self, fleet: Fleet | None, own: Iterable[str]) -> tuple[int, bytes]:
        """Redis's time and the epoch. If there is none of this run of Redis, a new one."""
        now, same, epoch = await self._server.ask(LOOK, looking=True)
        if same:
            return now, epoch
        if fleet is None:
            lost, members, top = await self._used(), {*own}, 0
            grace = self._grace if lost else 0.0
        else:
            lost = bool(fleet.orphans or fleet.suspect) or await self._others_arrived(fleet)
            members, top = {*own, *fleet.members}, fleet.top
            grace = self._grace
        new = uuid4().hex[:12]
        head = (epoch, new, int(lost), int(grace * 1000), top)
        if await self._server.ask(EPOCH, *head, *members, looking=True) and fleet is not None:
            _log.warning("Redis at %s has been restarted or emptied: it is told everything again", self._server.shown)
        now, same, epoch = await self._server.ask(LOOK, looking=True)
        if not same:
            raise AwayError("Redis changes while it is looked at")
        return now, epoch

    def _arrival(self, epoch: bytes, number: int) -> str:
        return "u" + sha256(f"fleet-member/{self._prefix}/{epoch.decode()}/{number}".encode()).hexdigest()

    async def arrive(self, epoch: bytes, fleet: Fleet | None) -> int:
        """A number in this epoch, taken in the store: it tells whoever begins the next that there was one more."""
        number = fleet.arrived if fleet is not None and fleet.epoch == epoch else 0
        expires = int(self._clock.now() * 1000) + self._lifetime
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    receipt = Receipt(self._arrival(epoch, number), expires, "fleet")
                    number += 1
                    try:
                        await self._store.apply(Commit((receipt,), ()))
                    except AlreadyAppliedError:
                        continue
                    return number
        except (TransientError, TimeoutError) as error:
            _log.warning(
                "the store does not take the mark that a member arrives: %s", str(error) or "no answer in time"
            )
            return 0

    async def _others_arrived(self, fleet: Fleet) -> bool:
        """Whether there was a member that this one has not heard of."""
        try:
            async with asyncio.timeout(PATIENCE):
                return bool((await self._store.receipts([self._arrival(fleet.epoch, fleet.arrived)])).found)
        except (TransientError, TimeoutError):
            return True

    def _key(self, day: int) -> str:
        return "u" + sha256(f"fleet-used/{self._prefix}/{day}".encode()).hexdigest()

    def _today(self) -> int:
        return int(self._clock.now() * 1000) // DAY

    async def _used(self) -> bool:
        """Whether a fleet has accepted anything lately that might not be applied."""
        today = self._today()
        days = range(today - self._lifetime // DAY - 1, today + 2)
        try:
            async with asyncio.timeout(PATIENCE):
                return bool((await self._store.receipts([self._key(day) for day in days])).found)
        except (TransientError, TimeoutError):
            return True

    async def mark_used(self) -> None:
        """Once a day, before anything is accepted."""
        today = self._today()
        if self._marked == today:
            return
        receipt = Receipt(self._key(today), (today + 2) * DAY + self._lifetime, "fleet")
        try:
            async with asyncio.timeout(PATIENCE):
                await self._store.apply(Commit((receipt,), ()))
        except AlreadyAppliedError:
            pass
        except (TransientError, TimeoutError) as error:
            why = str(error) or "no answer in time"
            _log.warning("the store does not take the mark that this fleet is in use: %s", why)
            return
        self._marked = today
