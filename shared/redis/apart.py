"""Receipts in the store by which a member that can't reach Redis says that it goes on, and others that it must not.

For each member id there is a row of receipts, k = 0, 1, 2…, of which each can be inserted once. The member inserts the
next one: it may accept without Redis for a while. Somebody else inserts it first, as `fenced`: it may not, ever again.
"""

import asyncio
from hashlib import sha256
from typing import Final

from shared.clock import Clock
from shared.errors import AlreadyAppliedError, OverloadedError, TransientError
from shared.ports import Store
from shared.receipts import DAY
from shared.words import Commit, Receipt

PERIOD: Final = 60.0
"""Seconds that one receipt is good for."""
PATIENCE: Final = 5.0
"""Seconds for the store to answer."""
APART: Final = "apart"
FENCED: Final = "fenced"
KEPT: Final = 8 * DAY


def key_of(member: str, number: int) -> str:
    return "a" + sha256(f"apart/{member}/{number}".encode()).hexdigest()


async def insert(store: Store, clock: Clock, member: str, number: int, state: str) -> tuple[str, bool]:
    """The state of that receipt now: this one, unless there was one before; and whether there was none."""
    key = key_of(member, number)
    receipt = Receipt(key, int(clock.now() * 1000) + KEPT, state)
    try:
        async with asyncio.timeout(PATIENCE):
            try:
                await store.apply(Commit((receipt,), ()))
            except AlreadyAppliedError:
                found = (await store.receipts([key])).found
            else:
                return state, True
    except TimeoutError as error:
        raise TransientError("the store does not answer in time") from error
    if key not in found:
        raise TransientError("a receipt has expired while it was looked at")
    return found[key].state, False


class Apart:
    """The right of one member id to accept without Redis."""

    def __init__(self, member: str, store: Store, clock: Clock, period: float = PERIOD) -> None:
        self.member = member
        self._store = store
        self._clock = clock
        self._period = period
        self._number = 0
        self._until = float("-inf")
        self._turn = asyncio.Lock()
        self.fenced = False

    def left(self) -> float:
        """Seconds for which it may still accept."""
        return self._until - self._clock.monotonic()

    async def extend(self) -> None:
        """For another period from now on, if this one is nearly over; whoever has fenced it waits for its end.

        `OverloadedError` if it has ended and been fenced.
        """
        async with self._turn:  # a number left out would be free to be fenced
            if self.left() >= self._period / 3:
                return
            try:
                await self._extend()
            except TransientError:
                if self.left() <= 0:
                    raise

    async def _extend(self) -> None:
        while not self.fenced:
            begun = self._clock.monotonic()
            state, new = await insert(self._store, self._clock, self.member, self._number, APART)
            if state != APART:
                self.fenced = True
                break
            self._number += 1
            if new:
                self._until = begun + self._period
                return
            # It is of an earlier try that was not answered. Its period began then, and the next may be fenced by now.
        raise OverloadedError(
            "Redis can't be reached from here, and the others count on it that nothing is accepted here meanwhile;"
            " writes can be accepted when it can be reached again"
        )


async def fence(store: Store, clock: Clock, member: str) -> int:
    """Nothing is accepted in a period that begins later. How many periods it has had."""
    number = 0
    while (await insert(store, clock, member, number, FENCED))[0] != FENCED:
        number += 1
    return number
