"""Reports what is owed to the receiver: commit, send, settle. docs/adr/0037-feed.md says why nothing is missed.

The commit of a change also stores the report that is owed. The report is deleted after the receiver has taken it. If a
process is killed between the two, another process sends the report again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Hashable, Sequence
from typing import Any, Final, NamedTuple

from shared.model.buckets import Millis, rule_of
from shared.model.errors import SettingsError, TransientError, amount
from shared.model.feed import Change, Event, Reach, Told, changed, reached
from shared.model.words import Lately
from shared.ports.feed import FeedBook, Owed, Receiver
from shared.runtime import metrics
from shared.runtime.retry import Stop

_log = logging.getLogger(__name__)

AT_ONCE: Final = 500
"""Counters, and commits that reached thresholds, in one round."""
PROBES: Final = 4
"""The same after a round in which nothing was taken: the receiver seems to be away."""
LEVELS_AT_ONCE: Final = 100
"""Thresholds of one commit in one round."""
IDLE: Final = 1.0
"""Seconds between two looks, if nothing is committed by this process."""
FIRST: Final = 1_000
LONGEST: Final = 60_000
"""Milliseconds for which an event that was not taken is put off: the first, doubled each time, and the most."""
MOST_FAILURES: Final = 10_000
"""Events whose failures are remembered. An event that is forgotten is put off for `FIRST` again."""
SAID_EVERY: Final = 60
"""Failed rounds after the first until the log says so again."""
LAST: Final = 1.0
"""Seconds for what is due at the end, and to let another process report. The rest stays in the store."""


class _Event(NamedTuple):
    owed: Change | Reach
    level: int
    event: Event


class Announcer:
    """One at a time reports from a store. The others wait until it has ended."""

    def __init__(self, book: FeedBook, receiver: Receiver, where: str, told: Told) -> None:
        """`where`: the receiver, as the log calls it."""
        self._book = book
        self._receiver = receiver
        self._told = told
        self._where = where
        self._failures: Lately[Hashable, int] = Lately(MOST_FAILURES)
        self._failed_rounds = 0
        """Rounds in a row in which something was not taken."""
        self._away = False
        """Whether nothing was taken in the last round."""

    async def run(self, stop: Stop) -> None:
        """Report until `stop`, and for `LAST` seconds what is due then. What is not due, or not taken by then, stays in
        the store: also what the receiver has not answered yet, so it may come twice.
        """
        async with asyncio.TaskGroup() as tasks:
            rounds = tasks.create_task(self._rounds(stop), name="rounds of the feed")
            await stop.wait()
            await asyncio.wait([rounds], timeout=LAST)
            rounds.cancel()
        await self._receiver.close()
        with contextlib.suppress(TimeoutError):  # a store that is away: others wait until the lease ends
            async with asyncio.timeout(LAST):
                await self._book.close()

    async def _rounds(self, stop: Stop) -> None:
        ours, failure = False, ""
        while not stop.is_set():
            try:
                told, ours = ours, await self._book.open(self._told)
                if ours and not told:
                    _log.info("this process reports changes and thresholds to %s", self._where)
                if ours and await self.round():
                    continue
                failure = ""
            except (SettingsError, TransientError) as error:
                if failure != (failure := str(error)):
                    _log.warning("the feed reports nothing now, and tries again: %s", error)
            await self._pause(stop)
        with contextlib.suppress(TransientError):
            while ours and not self._away and await self.round():
                pass

    async def _pause(self, stop: Stop) -> None:
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(stop.wait())]
        if not self._away:
            waits.append(asyncio.ensure_future(self._book.wait(IDLE)))
        try:
            await asyncio.wait(waits, timeout=IDLE, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    async def round(self) -> bool:
        """Report what is due. Returns whether more may be due now."""
        owed = await self._book.owed(PROBES if self._away else AT_ONCE)
        if owed.changes or owed.reaches:
            events = [_Event(one, 0, changed(one)) for one in owed.changes]
            for reach in owed.reaches:
                events += [_Event(reach, level, event) for level, event in reached(reach, LEVELS_AT_ONCE)]
            whys = await self._receiver.tell([one.event for one in events])
            self._away = all(whys)
            await self._settle(owed, events, whys)
            if self._away:
                return False
        swept = len(owed.changes) < AT_ONCE and await self._book.sweep()
        return swept or bool(owed.changes or owed.reaches)

    async def _settle(self, owed: Owed, events: Sequence[_Event], whys: Sequence[str]) -> None:
        refused: dict[Change | Reach, str] = {}
        levels: dict[Reach, int] = {}
        for (one, level, event), why in zip(events, whys, strict=True):
            if why:
                refused.setdefault(one, why)
            elif isinstance(one, Reach) and one not in refused:
                levels[one] = level  # in order, up to the first that was not taken
            (metrics.FEED_FAILED if why else metrics.FEED_TOLD).labels(event.type).inc()
        taken = [(one, self._interval(one)) for one in owed.changes if one not in refused]
        for change, _ in taken:
            self._failures.pop(change.counter, None)
        for reach in levels:
            self._failures.pop(reach.row, None)
        await self._book.settle(taken, [*levels.items()])
        if refused:
            changes = [(one, self._put_off(one.counter)) for one in owed.changes if one in refused]
            reaches = [(one, self._put_off(one.row)) for one in owed.reaches if one in refused]
            await self._book.put_off(changes, reaches)
        self._say(len(refused), next(iter(refused.values()), ""))

    def _interval(self, change: Change) -> Millis:
        rule = rule_of(self._told.feed, change.counter)
        return rule.interval if rule is not None else Millis(0)

    def _put_off(self, key: Hashable) -> Millis:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        return Millis(min(FIRST << min(failures, 16), LONGEST))

    def _say(self, refused: int, why: str) -> None:
        if refused and self._failed_rounds % SAID_EVERY == 0:
            _log.warning(
                "%s did not take %s of the feed, which will be sent again: %s. %s",
                self._where,
                amount(refused, "event"),
                why,
                "COUNTERSINK_FEED_TO must name a file that this process can write"
                if self._where.startswith("/")
                else "Check that COUNTERSINK_FEED_TO names the receiver, and that it can take events",
            )
        elif not refused and self._failed_rounds:
            _log.warning("%s takes the events of the feed again", self._where)
        self._failed_rounds = self._failed_rounds + 1 if refused else 0
