"""Tells which names are new, and whether there is room for new counters: COUNTERSINK_MAX_COUNTERS limits how many there
are under a prefix.

The store says which counters there are, and how many. A counter is in the store only after a flush. So this process
holds the names that it has admitted since, until the store has them. The count and these together stay in the limit.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Self

from ingest.access.rates import NewQuota
from shared.config.lists import NameLimit
from shared.counters.reader import MOST_LOOKUPS
from shared.model.buckets import Monotonic
from shared.model.errors import OverloadedError, ShareError, TransientError, amount
from shared.model.words import Lately, View, pages
from shared.ports.overlay import Overlay
from shared.ports.store import Store
from shared.runtime.clock import Clock

COUNT_AGAIN: Final = 5.0
"""Seconds for which a count is used, and after which a client may try again."""
ANSWER_WITHIN: Final = 10.0
"""Seconds for the store to count or to look names up."""
PAUSE: Final = 1.0
"""Seconds after a look-up that failed in which the store is not asked again."""
BELIEVED: Final = 60.0
"""Seconds for which a name that was found needs no look-up. It may be removed meanwhile, and then comes back."""
MOST_KNOWN: Final = 50_000
"""Names that need no look-up."""
HELD: Final = 3_600.0
"""Seconds after which an admitted name gives its room back, even if the store still lacks it: its publish may have
failed, and nobody may have tried again.
"""
PAGE: Final = 1_000
"""Names in one question to the store."""
MOST_PAGES: Final = 50
"""Admitted names that are looked up before a count. The others stay held until a later count."""


class _Room:
    """How many counters there are under a prefix, as far as this process knows."""

    __slots__ = ("counted", "held", "limit")

    def __init__(self, limit: NameLimit) -> None:
        self.limit = limit
        self.counted: int | None = None
        """What the store counted last."""
        self.held = 0
        """Names under the prefix that are admitted, and were not in the store yet when it counted."""

    def flaw_of(self, name: str) -> str | None:
        """Why there is no room for one more; None if there is."""
        prefix, most = self.limit
        if self.counted is not None and self.counted + self.held < most:
            return None
        under = f"under the prefix {prefix!r}" if prefix else "in all"
        return (
            f"COUNTERSINK_MAX_COUNTERS allows {amount(most, 'counter')} {under}, and that many exist: {name[:100]!r}"
            " would be one more. Counters that exist still count; delete some to make room"
        )


@dataclass(slots=True)
class Trial:
    """The new names of a request, which are admitted for it. In its context, they give their room back if the block
    fails: nothing of them counts.
    """

    quota: NewQuota | None = None
    """Of the sender, if it may make this many counters alone."""
    give_back: Callable[[Iterable[str], NewQuota | None], None] | None = None
    names: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self.give_back is not None:
            self.give_back(self.names, self.quota)


class NewNames:
    """Admits new names while there is room. Names of counters that exist, or that were admitted before, need none."""

    def __init__(self, store: Store, overlay: Overlay, limits: Sequence[NameLimit], clock: Clock) -> None:
        self._store = store
        self._overlay = overlay
        self._rooms = [_Room(limit) for limit in limits]
        self._clock = clock
        self._known: Lately[str, Monotonic] = Lately(MOST_KNOWN)
        """Until when a name needs no look-up."""
        self._admitted: dict[str, Monotonic] = {}
        """When each name was admitted that the store did not have yet when it counted. Those to look for first come
        first.
        """
        self._counting = asyncio.Lock()
        self._lookups = asyncio.Semaphore(MOST_LOOKUPS)
        self._count_at = self._ask_at = float("-inf")

    def knows(self, name: str) -> bool:
        """Whether `admit` would admit the name without asking the store."""
        return self._known.get(name, 0.0) > self._clock.monotonic()

    def may_refuse(self, trial: Trial) -> bool:
        """Whether anything limits the new names of the request."""
        return bool(self._rooms) or trial.quota is not None

    def trial(self, quota: NewQuota | None = None) -> Trial:
        return Trial(quota, self._give_back)

    async def check(self, name: str, trial: Trial | None = None) -> None:
        """Admit the name, or raise `ShareError`. Raises what `admit` raises, too."""
        if refused := await self.admit((name,), trial):
            raise refusal(refused[name], refused)

    async def admit(self, names: Iterable[str], trial: Trial | None = None) -> dict[str, str]:
        """Returns the names that are refused, each with the reason. All others may be counted now. Names that take room
        are added to the trial.

        Raises `OverloadedError` if the store can't be asked, and without it nobody knows whether a name must be
        refused.
        """
        refused: dict[str, str] = {}
        trial = trial or Trial()
        rest = iter(names)
        while self.may_refuse(trial) and (page := [*islice(rest, PAGE)]):
            refused |= await self._admit(page, trial, together=False)
        return refused

    async def admit_together(self, names: Collection[str], trial: Trial, hint: str) -> dict[str, str]:
        """Like `admit`, for at most `PAGE` names, but if one is refused, all are. `hint` is added to the reason."""
        refused = await self._admit([*names], trial, together=True)
        if not refused:
            return {}
        return dict.fromkeys(names, f"{next(iter(refused.values()))}. {hint}")

    async def _admit(self, names: Sequence[str], trial: Trial, *, together: bool) -> dict[str, str]:
        quota = trial.quota
        if not self.may_refuse(trial):
            return {}
        now, known = self._clock.monotonic(), self._known
        unknown = [name for name in names if known.get(name, 0.0) <= now]
        if not unknown:
            return {}
        found = await self._find(unknown)
        missing = unknown if found is None else [name for name in unknown if name not in found]
        if not missing:
            return {}
        if self._rooms:
            await self._count()
        refused: dict[str, str] = {}
        taken: list[str] = []
        for name in missing:
            if name not in self._admitted:
                if why := self._flaw_of(name, quota):
                    refused[name] = why
                    continue
                self._take(name, quota)
                taken.append(name)
            self._remember(name)
        trial.refused += refused
        if refused and (together or found is None):
            self._give_back(taken, quota)
        else:
            trial.names += taken
        if refused and found is None:
            raise OverloadedError(
                "the store does not say whether these counters exist, and there is no room for new ones: try again",
                PAUSE,
            )
        return refused

    async def _find(self, names: Sequence[str]) -> Collection[str] | None:
        """The names among these that are in the store or pending; None if the store can't be asked."""
        async with self._lookups:
            if self._clock.monotonic() < self._ask_at:
                return None
            try:
                async with asyncio.timeout(ANSWER_WITHIN):
                    pending = await self._overlay.view(names)  # first, as increments move to the store
                    found = {*await self._store.shards(names), *(name for name in names if _is_pending(pending[name]))}
            except (TransientError, TimeoutError):
                self._ask_at = self._clock.monotonic() + PAUSE
                return None
        await asyncio.sleep(0)  # a file answers at once, and others want a turn
        for name in found:
            self._remember(name)
        return found

    async def _count(self) -> None:
        """Have a count that is not too old, or the last one if the store can't be asked.

        Admitted names that are in the store are looked for before it counts: so the count contains them, and one that
        is flushed in between is counted twice until the next time, rather than not at all.
        """
        async with self._counting:
            if self._clock.monotonic() >= self._count_at:
                try:
                    async with asyncio.timeout(ANSWER_WITHIN):
                        arrived = await self._arrived()
                        counts = [await self._store.count(*room.limit) for room in self._rooms]
                except (TransientError, TimeoutError):
                    self._count_at = self._clock.monotonic() + PAUSE
                else:
                    self._count_at = self._clock.monotonic() + COUNT_AGAIN
                    for room, counted in zip(self._rooms, counts, strict=True):
                        room.counted = counted
                    for name in (*arrived, *self._expired()):
                        self._release(name)
        if self._rooms[0].counted is None:
            raise OverloadedError(
                "COUNTERSINK_MAX_COUNTERS limits the number of counters, and the store does not say how many exist: try"
                " again later",
                COUNT_AGAIN,
            )

    async def _arrived(self) -> list[str]:
        """Admitted names that are in the store. They arrive in about the order in which they were admitted, so the
        others are not asked for once most of a page have not arrived. These come last the next time: they may never
        arrive.
        """
        arrived: list[str] = []
        for page in pages([*islice(self._admitted, MOST_PAGES * PAGE)], PAGE):
            there = await self._store.shards(page)
            arrived += there
            if 2 * len(there) < len(page):
                for name in page:
                    if name in self._admitted:
                        self._admitted[name] = self._admitted.pop(name)
                break
            await asyncio.sleep(0)
        return arrived

    def _expired(self) -> list[str]:
        until = self._clock.monotonic() - HELD
        return [name for name, since in self._admitted.items() if since < until]

    def _flaw_of(self, name: str, quota: NewQuota | None) -> str | None:
        """Why there may be no such new counter; None if there may."""
        of_quota = None if quota is None else quota.flaw_of(name)
        return of_quota or next(filter(None, (room.flaw_of(name) for room in self._under(name))), None)

    def _take(self, name: str, quota: NewQuota | None) -> None:
        if quota is not None:
            quota.take()
        if self._rooms:
            self._admitted[name] = self._clock.monotonic()
        for room in self._under(name):
            room.held += 1

    def _give_back(self, names: Iterable[str], quota: NewQuota | None) -> None:
        for name in names:
            self._release(name)
            self._known.pop(name, None)
            if quota is not None:
                quota.give_back()

    def _release(self, name: str) -> None:
        if self._admitted.pop(name, None) is not None:
            for room in self._under(name):
                room.held -= 1

    def _under(self, name: str) -> list[_Room]:
        return [room for room in self._rooms if name.startswith(room.limit.prefix)]

    def _remember(self, name: str) -> None:
        self._known[name] = Monotonic(self._clock.monotonic() + BELIEVED)


def _is_pending(view: View) -> bool:
    """Whether the counter will be there. An entry that adds nothing makes none."""
    return any(entry.changes() for entry in view.entries)


def refusal(why: str, counters: Iterable[str]) -> ShareError:
    """The error of a request whose increments were all rejected, and the counters for which there is no room."""
    error = ShareError(why, COUNT_AGAIN)
    error.counters = [*dict.fromkeys(counters)]
    return error
