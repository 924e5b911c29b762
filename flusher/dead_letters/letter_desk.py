"""Does what administrators ask about dead letters over HTTP: the same as the command, in steps of some seconds."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

from flusher.dead_letters.letter_filter import LetterFilter
from flusher.dead_letters.letter_pass import MOST_BYTES, LetterPass
from flusher.dead_letters.open_letter import OpenedLetter, open_letter, open_receipt, sums_of
from flusher.dead_letters.replay import Replay, ReplayOutcome
from flusher.flush.flush_parts import FlushParts
from shared.model.dead_letters import (
    MOST_COUNTERS,
    MOST_REASON,
    MOST_START,
    Dropped,
    DropResult,
    Left,
    LetterPage,
    LetterRow,
    Place,
    ReplayResult,
)
from shared.model.errors import OverloadedError, TransientError
from shared.model.promises import Promise
from shared.model.words import DEAD
from shared.ports.broker import DeadLetters

AT_ONCE: Final = 100
"""Letters in one step, after which other requests have their turn."""
MOST_LOOKED_AT: Final = 1_000
"""Letters of the broker that one page looks at. Most are left out where the store has them, too."""
LONGEST: Final = 5.0
"""Seconds after which a replay or a drop ends with the step that it is in."""
PATIENCE: Final = 3.0
"""Seconds for which one step is retried while the store is away."""
LONGEST_CALL: Final = 30.0
"""Seconds after which a call fails. Cut off anywhere, it can be repeated."""
MOST_WAITING: Final = 10
"""Calls that wait for their turn."""
MOST_REASONS: Final = 100
"""Letters that a result names with the reasons why they are left."""


class OneAtATime:
    """Implements `LetterDesk`. Only one call works at a time: on Pub/Sub, calls would hide letters from each other, and
    letters must take a bounded part of the memory.
    """

    def __init__(
        self,
        tools: FlushParts,
        letters: Callable[[], DeadLetters],
        *,
        topic: str,
        ages: bool,
        promise: Promise,
        obstacles: Callable[[bool], Awaitable[Sequence[str]]],
    ) -> None:
        """`ages`: as for a flusher. `obstacles`: the reasons for a flusher not to start, which forbid a replay, too."""
        self._tools = tools
        self._open = letters
        self._topic = topic
        self._ages = ages
        self._promise = promise
        self._obstacles = obstacles
        self._turn = asyncio.Lock()
        self._callers = 0

    async def page(self, place: Place, limit: int) -> LetterPage:
        async with self._one_of_few():
            rows: list[LetterRow] = []
            while place.in_store and len(rows) < limit:
                page = await self._tools.store.dead(place.after, limit - len(rows))
                rows += [_row(open_receipt(one), DEAD) for one in page]
                place = Place(in_store=True, after=page[-1].key) if page else Place(in_store=False)
            if len(rows) == limit:
                return LetterPage(rows, place, complete=False)
            return await self._rest(rows, place, limit)

    async def _rest(self, rows: list[LetterRow], place: Place, limit: int) -> LetterPage:
        """The page with letters that only the broker has."""
        looked_at = 0
        async with self._passing() as letters:
            if rows and not letters.letters.complete:  # no page can follow the letters', so they get a whole one
                return LetterPage(rows, place, complete=False)
            if place.after:
                letters.letters.continue_after(place.after)
            while len(rows) < limit and looked_at < MOST_LOOKED_AT:
                some = await letters.letters.pull(min(AT_ONCE, limit - len(rows)), MOST_BYTES)
                if not some:
                    return LetterPage(rows, None, letters.letters.complete)
                looked_at += len(some)
                place = Place(in_store=False, after=some[-1].delivery.token)
                opened = [open_letter(one, self._topic) for one in some]
                found = await letters.receipts(opened)
                rows += [_row(one, one.state(found)) for one in opened if not one.is_in_store(found)]
                await asyncio.sleep(0)
            return LetterPage(rows, place if letters.letters.complete else None, complete=False)

    async def replay(self, ids: Sequence[str] | None, *, too_old: bool) -> ReplayResult:
        wanted, result = LetterFilter(ids or ()), ReplayResult()
        reasons: list[Left] = []
        async with self._one_of_few():
            if obstacles := await self._obstacles(True):
                raise TransientError(obstacles[0])
            async with self._passing() as letters:
                replay = Replay(self._tools, letters.letters, ages=self._ages, too_old=too_old)
                async for batch in self._steps(letters, None if ids is None else wanted, result):
                    for outcome in await replay.run(batch, PATIENCE):
                        _add(result, outcome)
                        if outcome.why is not None and len(reasons) < MOST_REASONS:
                            reasons.append(Left(outcome.opened.name, outcome.why[:MOST_REASON]))
        result.reasons = reasons
        result.not_found = () if result.more else wanted.missed()
        return result

    async def drop(self, ids: Sequence[str]) -> DropResult:
        wanted, result = LetterFilter(ids), DropResult()
        dropped: list[Dropped] = []
        async with self._one_of_few(), self._passing() as letters:
            async for batch in self._steps(letters, wanted, result):
                for one in batch:
                    _, number = one.left_to_drop(await letters.drop(one))
                    dropped.append(Dropped(one.name, number))
        result.dropped = dropped
        result.not_found = () if result.more else wanted.missed()
        return result

    async def _steps(
        self, letters: LetterPass, wanted: LetterFilter | None, result: ReplayResult | DropResult
    ) -> AsyncIterator[list[OpenedLetter]]:
        """The wanted letters, or all, until the time is over."""
        clock = self._tools.clock
        ends = clock.monotonic() + LONGEST
        while (wanted is None or not wanted.seen_all()) and (batch := await letters.pull(AT_ONCE)):
            if chosen := batch if wanted is None else wanted.of(batch):
                yield chosen
            if clock.monotonic() >= ends:
                result.more = wanted is None or not wanted.seen_all()
                return
            await asyncio.sleep(0)

    @contextlib.asynccontextmanager
    async def _one_of_few(self) -> AsyncIterator[None]:
        if self._callers > MOST_WAITING:
            raise OverloadedError("too many requests look at dead letters", LONGEST)
        self._callers += 1
        try:
            async with self._turn, asyncio.timeout(LONGEST_CALL):
                yield
        except TimeoutError:
            raise TransientError("the store or the broker does not answer; nothing is lost, try again") from None
        finally:
            self._callers -= 1

    @contextlib.asynccontextmanager
    async def _passing(self) -> AsyncIterator[LetterPass]:
        letters = self._open()
        try:
            yield LetterPass(letters, self._tools.store, self._tools.overlay, self._topic, self._promise)
        finally:
            await letters.close()


def _row(opened: OpenedLetter, state: str) -> LetterRow:
    sums = sums_of(opened.envelopes)
    data = opened.letter.delivery.message.data
    there = bool(opened.letter.delivery.token)
    return LetterRow(
        id=opened.name,
        published=opened.published,
        reason=opened.letter.reason[:MOST_REASON],
        state=state,
        flaw=None if opened.flaw is None else opened.flaw[:MOST_REASON],
        increments=opened.increments,
        counters=dict([*sums.items()][:MOST_COUNTERS]),
        more_counters=max(len(sums) - MOST_COUNTERS, 0),
        size=len(data) if there else None,
        start=data[:MOST_START].decode(errors="backslashreplace") if there else None,
    )


def _add(result: ReplayResult, outcome: ReplayOutcome) -> None:
    result.counted += outcome.counted
    result.already += outcome.already
    result.dropped += outcome.dropped
    result.left += outcome.left
    result.letters += 1
    result.letters_left += outcome.why is not None
