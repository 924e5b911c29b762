"""Goes through, replays and drops dead letters, for the command and over HTTP, in steps of a few seconds."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from flusher.dead_letters.letters import LetterFilter, OpenedLetter, open_letter, open_receipt, sums_of
from flusher.flush.commit_loop import BEFORE, LEFT_AS_UNSURE, Flush, FlushTools
from flusher.flush.window import Window
from flusher.service import make_tools
from shared.config.settings import Settings, promise_of
from shared.model.buckets import StoreMillis
from shared.model.dead_letters import (
    MOST_REASON,
    MOST_START,
    MOST_SUMS_SHOWN,
    DeadLetter,
    DroppedLetter,
    LetterPage,
    LettersDropped,
    LettersReplayed,
    LetterState,
    Place,
    Why,
)
from shared.model.errors import AlreadyAppliedError, ChangedError, LateError, OverloadedError, TransientError
from shared.model.receipts import Promise, Promises, key_of_drop
from shared.model.words import APPLIED, DEAD, DROPPED, MARKED, Bounds, Commit, Envelope, Receipt, Receipts
from shared.ports.broker import DeadLetters
from shared.ports.overlay import Overlay
from shared.ports.store import Commits
from shared.runtime.ids import mint
from shared.wiring.files import until_closed
from shared.wiring.process import Parts

# Replays dead letters. They are flushed like messages, but their dead receipts become `applied`.


RETRY_LETTERS_FOR: Final = 60.0
"""Seconds to retry while the store is away, for the letters of one step."""


@dataclass(slots=True)
class ReplayOutcome:
    """The outcome of one letter, in numbers of increments."""

    opened: OpenedLetter
    counted: int = 0
    already: int = 0
    """Counted earlier, or by another letter."""
    dropped: int = 0
    """Dropped earlier."""
    left: int = 0
    why: str | None = None
    """Why it stays a dead letter; None if it does not."""


class Replay:
    """Replays letters that this process got from `letters`."""

    def __init__(self, tools: FlushTools, letters: DeadLetters, *, too_old: bool = False) -> None:
        """`too_old`: also replay letters that are too old to judge. The operator knows that they were not applied."""
        self._tools = tools
        self._letters = letters
        self._judges = not (tools.one_file or too_old)

    async def run(self, opened: Sequence[OpenedLetter], patience: float = RETRY_LETTERS_FOR) -> list[ReplayOutcome]:
        """Replay the letters. `TransientError`: the store was away for `patience` seconds. Some may be counted; none is
        lost.
        """
        keys = [*dict.fromkeys(key for one in opened for key in (*one.receipt_keys(), *one.second_uses()))]
        looked = await self._tools.store.now()
        receipts = await self._tools.store.receipts(keys)
        window = Window(revives=True)
        outcomes = []
        for one in opened:
            outcome = ReplayOutcome(one, why=one.flaw)
            outcomes.append(outcome)
            if one.vanished(receipts.found):
                outcome.why, outcome.left = LEFT_AS_UNSURE, one.increments
            elif one.flaw is None:
                window.add(one.letter.delivery, one.envelopes, aged=self._judges)
        flush = Flush(window, self._tools, self._letters, looked)
        flush.learn(keys, receipts)
        await flush.run(patience)
        tried = [envelope.key for one in outcomes if one.why is None for envelope in one.opened.envelopes]
        if unheard := [key for key in tried if key not in window.known]:  # another process settled them first
            flush.learn(unheard, await self._tools.store.receipts(unheard))
        _tell(outcomes, flush)
        return outcomes


def _tell(outcomes: Iterable[ReplayOutcome], flush: Flush) -> None:
    """Fill in the outcomes. A receipt that was written counts for the first letter that carries it."""
    counted = set(flush.counted)
    for outcome in outcomes:
        if outcome.why is not None:
            continue
        left = flush.left.get(outcome.opened.id)
        for envelope in outcome.opened.envelopes:
            key, number = envelope.key, envelope.increments
            state = flush.window.known.get(key, APPLIED)  # without a receipt it was settled long ago
            if state == DROPPED:
                outcome.dropped += number
            elif state == DEAD or (key not in flush.window.known and left is not None):
                outcome.left += number
                outcome.why = outcome.why or left or flush.why.get(key, BEFORE)
            elif key not in counted:
                outcome.already += number
            else:
                keyed = {item.key for item in envelope.keyed} & counted
                outcome.already += len(envelope.keyed) - len(keyed)
                outcome.counted += number - len(envelope.keyed) + len(keyed)
                counted -= {key, *keyed}


# Drops dead letters for good: one commit, and readers no longer count them.


TRIES: Final = 10
"""Attempts. One fails only if a replay or another drop was faster."""


async def drop(store: Commits, overlay: Overlay, envelopes: Sequence[Envelope], ours: Promise) -> Receipts:
    """Drop the envelopes. Those that are applied stay applied.

    Returns the receipts that existed before, of the envelopes and the ids in them, and the time from which on reads
    exclude what was dropped. No reading shows that before the floors of the counters have risen.
    """
    keys = [*dict.fromkeys(key for envelope in envelopes for key in envelope.receipt_keys())]
    counters = tuple(sorted({name for envelope in envelopes for name in envelope.counters()}))
    promises, own = Promises(ours, await store.promises()), key_of_drop(mint())
    if (mine := promises.renew(await store.now())) is not None:
        await store.promise(mine)
    for _ in range(TRIES):
        found = await store.receipts(keys)
        now, time = await store.now(), found.time
        commit = _commit(envelopes, found, now, promises)
        if commit.receipts or commit.revived:
            receipts = (*commit.receipts, Receipt(own, promises.expires(now, of_client=False)))
            bounds = Bounds(StoreMillis(now + MARKED), epoch=await overlay.mark(own, counters))
            try:
                commit = replace(commit, receipts=receipts, changes=counters, bounds=bounds)
                time = max(time, await store.apply(commit))
            except (AlreadyAppliedError, ChangedError):
                continue
            except LateError as error:
                raise TransientError("this process was suspended during the drop: run the drop again") from error
        await overlay.settle([envelope.key for envelope in envelopes], time)
        await overlay.changed(counters, time, own)
        return Receipts(time, found.found)
    raise TransientError("other commands are changing the same receipts: run the drop again")


def _commit(envelopes: Sequence[Envelope], found: Receipts, now: StoreMillis, promises: Promises) -> Commit:
    made = [Receipt(one.key, promises.expires(now, of_client=one.retried), DROPPED) for one in envelopes]
    new = tuple([one for one in made if one.key not in found.found])
    revived = tuple([one for one in made if one.key in found.found and found.found[one.key].state == DEAD])
    return Commit(new, (), revived)


# Goes once through all dead letters: the broker's, then those that only the store has. Commands and requests do.


REPLAYED_AT_ONCE: Final = 500
MOST_BYTES_OF_LETTERS: Final = 1_000_000


class LetterPass:
    """One pass."""

    def __init__(self, letters: DeadLetters, parts: Parts, settings: Settings) -> None:
        self.letters = letters
        self._store = parts.store
        self._overlay = parts.overlay
        self._topic = parts.topic
        self._promise = promise_of(settings)
        self._seen: set[str] = set()
        """Receipt keys of the letters that were handed out."""
        self._letters_over = False
        self._after = ""
        """The key of the last dead receipt that was read from the store."""

    async def pull(self, limit: int = REPLAYED_AT_ONCE) -> list[OpenedLetter]:
        """The broker's letters; then dead receipts whose letters are no longer there, or are held by others."""
        if not self._letters_over:
            opened = [open_letter(one, self._topic) for one in await self.letters.pull(limit, MOST_BYTES_OF_LETTERS)]
            self._seen.update(envelope.key for one in opened for envelope in one.envelopes)
            if opened:
                return opened
            self._letters_over = True
        return await self._kept(limit)

    async def _kept(self, limit: int) -> list[OpenedLetter]:
        while page := await self._store.dead(self._after, limit):
            self._after = page[-1].key
            if opened := [open_receipt(one) for one in page if one.key not in self._seen]:
                return opened
        return []

    async def chosen(self, wanted: LetterFilter, limit: int = REPLAYED_AT_ONCE) -> AsyncIterator[list[OpenedLetter]]:
        """The wanted ones of each pull, until all were seen. There may be none in a pull."""
        while not wanted.seen_all() and (batch := await self.pull(limit)):
            yield wanted.of(batch)

    async def receipts(self, opened: Sequence[OpenedLetter]) -> Mapping[str, Receipt]:
        keys = [*dict.fromkeys(key for one in opened for key in one.receipt_keys())]
        return (await self._store.receipts(keys)).found if keys else {}

    async def drop(self, one: OpenedLetter) -> Mapping[str, Receipt]:
        """The receipts that it had. One commit drops all of it, and readings leave it out when this returns. The letter
        goes last: cut off before that, it can be dropped again.
        """
        receipts = await drop(self._store, self._overlay, one.envelopes, self._promise)
        if one.letter.delivery.token:
            await self.letters.ack([one.letter.delivery.token], receipts.time)
        return receipts.found


def passing(parts: Parts, settings: Settings) -> AbstractAsyncContextManager[LetterPass]:
    letters = parts.letters()
    return until_closed(LetterPass(letters, parts, settings), letters.close)


AT_ONCE: Final = 100
"""Letters in one step at most, after which other requests have their turn."""
STEP_WITHIN: Final = 0.5
"""Seconds. After a faster step, the next one has twice as many letters; after a slower one, half as many."""
MOST_LETTERS_SEEN: Final = 1_000
"""Letters of the broker that one page looks at. Most are left out where the store has them, too."""
LONGEST: Final = 5.0
"""Seconds after which a replay or a drop ends with the step that it is in."""
RETRY_STEP_FOR: Final = 3.0
"""Seconds for which one step is retried while the store is away."""
LONGEST_CALL: Final = 30.0
"""Seconds after which a call fails. Cut off anywhere, it can be repeated."""
MOST_CALLERS_WAITING: Final = 10
MOST_REASONS: Final = 100


class OneAtATime:
    """Implements `LetterDesk`. Only one call works at a time: on Pub/Sub, calls would hide letters from each other, and
    letters must take a bounded part of the memory.
    """

    def __init__(self, parts: Parts, settings: Settings) -> None:
        self._parts = parts
        self._settings = settings
        self._tools = make_tools(parts, settings)
        """It flushes like a flusher of its own."""
        self._turn = asyncio.Lock()
        self._callers = 0

    async def page(self, place: Place, limit: int) -> LetterPage:
        async with self._one_of_few():
            rows: list[DeadLetter] = []
            while place.in_store and len(rows) < limit:
                page = await self._tools.store.dead(place.after, limit - len(rows))
                rows += [_row(open_receipt(one), DEAD) for one in page]
                place = Place(in_store=True, after=page[-1].key) if page else Place(in_store=False)
            if len(rows) == limit:
                return LetterPage(rows, place, complete=False)
            return await self._rest(rows, place, limit)

    async def _rest(self, rows: list[DeadLetter], place: Place, limit: int) -> LetterPage:
        """The page with letters that only the broker has."""
        looked_at = 0
        async with passing(self._parts, self._settings) as letters:
            if rows and not letters.letters.complete:  # no page can follow the letters', so they get a whole one
                return LetterPage(rows, place, complete=False)
            if place.after:
                letters.letters.continue_after(place.after)
            while len(rows) < limit and looked_at < MOST_LETTERS_SEEN:
                some = await letters.letters.pull(min(AT_ONCE, limit - len(rows)), MOST_BYTES_OF_LETTERS)
                if not some:
                    return LetterPage(rows, None, letters.letters.complete)
                looked_at += len(some)
                place = Place(in_store=False, after=some[-1].delivery.token)
                opened = [open_letter(one, self._parts.topic) for one in some]
                found = await letters.receipts(opened)
                rows += [_row(one, one.state(found)) for one in opened if not one.is_in_store(found)]
                await asyncio.sleep(0)
            return LetterPage(rows, place if letters.letters.complete else None, complete=False)

    async def replay(self, ids: Sequence[str] | None, *, too_old: bool) -> LettersReplayed:
        wanted, result = LetterFilter(ids), LettersReplayed(0, 0, 0, 0, 0, 0, [], [], more=False)
        async with self._one_of_few():
            if obstacles := await self._parts.obstacles(True):  # what keeps a flusher from starting
                raise TransientError(obstacles[0])
            async with passing(self._parts, self._settings) as letters:
                replay = Replay(self._tools, letters.letters, too_old=too_old)
                async for batch in self._steps(letters, wanted, result):
                    for outcome in await replay.run(batch, RETRY_STEP_FOR):
                        _add(result, outcome)
        result.not_found = [] if result.more else wanted.missed()
        return result

    async def drop(self, ids: Sequence[str]) -> LettersDropped:
        wanted, result = LetterFilter(ids), LettersDropped([], [], more=False)
        async with self._one_of_few(), passing(self._parts, self._settings) as letters:
            async for batch in self._steps(letters, wanted, result):
                for one in batch:
                    _, number = one.left_to_drop(await letters.drop(one))
                    result.dropped.append(DroppedLetter(one.name, number))
        result.not_found = [] if result.more else wanted.missed()
        return result

    async def _steps(
        self, letters: LetterPass, wanted: LetterFilter, result: LettersReplayed | LettersDropped
    ) -> AsyncIterator[list[OpenedLetter]]:
        """The wanted letters, until the time is over."""
        now = self._tools.clock.monotonic
        ends, size = now() + LONGEST, 1
        async for batch in letters.chosen(wanted, AT_ONCE):
            rest = batch
            while True:
                step, rest, begun = rest[:size], rest[size:], now()
                if step:
                    yield step
                    size = min(2 * size, AT_ONCE) if now() - begun < STEP_WITHIN else max(size // 2, 1)
                if now() >= ends:
                    result.more = bool(rest) or not wanted.seen_all()
                    return
                await asyncio.sleep(0)
                if not rest:
                    break

    @asynccontextmanager
    async def _one_of_few(self) -> AsyncIterator[None]:
        if self._callers > MOST_CALLERS_WAITING:
            raise OverloadedError("too many requests look at dead letters: try again later", LONGEST)
        self._callers += 1
        try:
            async with self._turn, asyncio.timeout(LONGEST_CALL):
                yield
        except TimeoutError:
            raise TransientError(
                "the store or the broker is slow, or does not answer; nothing is lost: try again"
            ) from None
        finally:
            self._callers -= 1


def _row(opened: OpenedLetter, state: LetterState) -> DeadLetter:
    sums = sums_of(opened.envelopes)
    data = opened.letter.delivery.message.data
    there = bool(opened.letter.delivery.token)
    return DeadLetter(
        id=opened.name,
        published=opened.published,
        reason=opened.letter.reason[:MOST_REASON],
        state=state,
        flaw=None if opened.flaw is None else opened.flaw[:MOST_REASON],
        increments=opened.increments,
        counters=dict([*sums.items()][:MOST_SUMS_SHOWN]),
        more_counters=max(len(sums) - MOST_SUMS_SHOWN, 0),
        size=len(data) if there else None,
        start=data[:MOST_START].decode(errors="backslashreplace") if there else None,
    )


def _add(result: LettersReplayed, outcome: ReplayOutcome) -> None:
    result.counted += outcome.counted
    result.already += outcome.already
    result.dropped += outcome.dropped
    result.left += outcome.left
    result.letters += 1
    result.letters_left += outcome.why is not None
    if outcome.why is not None and len(result.reasons) < MOST_REASONS:
        result.reasons.append(Why(outcome.opened.name, outcome.why[:MOST_REASON]))
