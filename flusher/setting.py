"""Resets or deletes each counter of a page, as a set does: exactly, under a receipt of the job."""

import asyncio
from collections.abc import Sequence
from typing import Final

from flusher.visits import Outcome
from shared.errors import RefusedError
from shared.jobs import Job
from shared.receipts import key_of_visit
from shared.setter import Setter, Wish

AT_ONCE: Final = 16
"""Counters of a page. Each is a look and a commit of its own, since its guard has to be the one that was seen."""


class Setting:
    """To 0. A visit that finds the receipt changes nothing, though the counter may have been counted on since."""

    def __init__(self, setter: Setter, at_once: int = AT_ONCE) -> None:
        self._setter = setter
        self._at_once = at_once

    async def __call__(self, job: Job, names: Sequence[str]) -> Outcome:
        slots = asyncio.Semaphore(self._at_once)

        async def one(name: str) -> tuple[bool, str | None]:
            """Whether it is there, and why it could not be set."""
            async with slots:
                try:
                    change = await self._setter.set_existing(name, Wish(job.kind), key_of_visit(job.id, name))
                except RefusedError as error:
                    return True, str(error)
            return change is not None, None

        # All are awaited, also after the first failed: what goes on behind the caller's back is not bounded.
        ends = await asyncio.gather(*map(one, names), return_exceptions=True)
        found = []
        for end in ends:
            if isinstance(end, BaseException):
                raise end
            found.append(end)
        failed = [(name, why) for name, (_, why) in zip(names, found, strict=True) if why is not None]
        visited = sum(there for there, _ in found)
        return Outcome(visited, visited - len(failed), failed)
