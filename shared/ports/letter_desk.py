"""The interface through which requests read, replay and drop dead letters."""

from collections.abc import Sequence
from typing import Protocol

from shared.model.dead_letters import DropResult, LetterPage, Place, ReplayResult


class LetterDesk(Protocol):
    """What administrators do with dead letters. Each call may be interrupted anywhere, repeated, and made by several
    processes at once: receipts make each increment count once. `OverloadedError`: too many calls wait for their turn.
    """

    async def page(self, place: Place, limit: int) -> LetterPage:
        """At most `limit` dead letters from this place on. It changes nothing. A page may be short, or empty, and not
        be the last one.
        """
        ...

    async def replay(self, ids: Sequence[str] | None, *, too_old: bool) -> ReplayResult:
        """Count the letters with these ids, or all letters for None. It ends after some seconds; `more` says that the
        same call has to be made again. `TransientError`: the store is away; some may be counted, and none is lost.
        """
        ...

    async def drop(self, ids: Sequence[str]) -> DropResult:
        """Give these letters up for good. Reads exclude them when this returns."""
        ...
