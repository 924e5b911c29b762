"""Deletes jobs that expired, what deleted counters leave behind, and counters that nobody changed for long. Expired
receipts are swept by `flusher.py`.
"""

import asyncio
import logging
from collections.abc import Sequence
from hashlib import sha256
from typing import Final, NamedTuple, NoReturn

from shared.counters.jobs import JobStarter
from shared.model.buckets import written_at
from shared.model.errors import TransientError, amount
from shared.model.jobs import DONE, EXPIRE, RUNNING, ExpireRule, JobState
from shared.ports.overlay import Overlay
from shared.ports.store import Cleanup, Jobs, StoreClock
from shared.runtime import metrics
from shared.runtime.clock import Clock

INTERVAL: Final = 60.0
ROWS_A_STEP: Final = 500
"""Rows that one step deletes: others write at the same time."""


async def sweep_jobs(jobs: Jobs, store: StoreClock) -> None:
    """Take as many steps as there are rows to delete."""
    while await jobs.sweep(await store.now(), ROWS_A_STEP):
        pass


# Removes leftovers of deleted counters once all increments that were under way have arrived.


PAGE: Final = 500
FIRST: Final = 10.0
"""Seconds until a counter that is not empty yet is looked at again; doubled each time."""
LONGEST: Final = 3_600.0
MOST_WAITS_KEPT: Final = 100_000
"""Counters that are remembered. The others are looked at in every round."""
MOST_IN_VAIN: Final = 1_000
"""Counters in one step that could not be removed; the next step continues behind them."""


class _Wait(NamedTuple):
    until: float
    length: float
    round: int
    """The last round that found it marked."""


class CounterRemover:
    """Visits counters that are marked as deleted. One that was counted again keeps its mark and is visited rarely."""

    def __init__(self, store: Cleanup, overlay: Overlay, clock: Clock, grace: float = 0.0) -> None:
        """`grace`: seconds for which a counter that was deleted stays listed. A delete job that is killed in a page
        visits it again when its lease has ended, and has to find there what it deleted.
        """
        self._store = store
        self._overlay = overlay
        self._clock = clock
        self._grace = grace
        self._waits: dict[str, _Wait] = {}
        self._round = 0
        self._after = ""
        """The next step continues behind this counter, even if it failed."""

    async def remove_once(self) -> int:
        """Continue the round as far as possible. Returns how many were removed."""
        removed = in_vain = 0
        while page := await self._store.deleted(self._after, PAGE):
            pending = await self._overlay.view(page)
            for counter in page:
                self._after = counter
                if not self._due(counter):
                    continue
                # Increments that the delete found pending may sum to 0. Without its mark the counter would exist again.
                if not pending[counter].entries and await self._store.remove(counter):
                    removed += 1
                    continue
                self._put_off(counter)
                in_vain += 1
                if in_vain == MOST_IN_VAIN:
                    return removed
            await asyncio.sleep(0)  # a file answers at once, so give others a turn
        self._waits = {counter: wait for counter, wait in self._waits.items() if wait.round == self._round}
        self._round += 1
        self._after = ""
        return removed

    def _due(self, counter: str) -> bool:
        wait = self._waits.get(counter)
        now = self._clock.monotonic()
        if wait is None and self._grace and len(self._waits) < MOST_WAITS_KEPT:
            wait = _Wait(now + self._grace, FIRST / 2, self._round)
        if wait is None or wait.until <= now:
            return True
        self._waits[counter] = wait._replace(round=self._round)
        return False

    def _put_off(self, counter: str) -> None:
        wait = self._waits.get(counter)
        if wait is None and len(self._waits) >= MOST_WAITS_KEPT:
            return
        length = FIRST if wait is None else min(2 * wait.length, LONGEST)
        self._waits[counter] = _Wait(self._clock.monotonic() + length, length, self._round)


# Starts one job a day for each rule in `COUNTERSINK_EXPIRE`, which deletes the counters that nobody changed for long.
# The id of the job is made of the prefix and the day, so of all flushers that look, one starts it, also after a
# restart.


_log = logging.getLogger(__name__)
_log.setLevel(logging.INFO)  # whatever the log level: these jobs delete, and nobody asks for them

LOOK: Final = 60.0
"""Seconds between two looks. Nothing is read once the job of the day has ended."""
REPAIR: Final = 3_600.0
"""Seconds after which a job that still runs is started again: its process may have been killed before its first task
was published. That changes nothing twice.
"""
LONGEST_WORD: Final = 40


def id_of(prefix: str, day: str) -> str:
    """The id of the job, such as `expire-page-2f7c1c3b-2026-11-27`. The digits tell apart what has the same letters."""
    word = "".join(sign if sign.isascii() and sign.isalnum() else "-" for sign in prefix).strip("-")
    return "-".join(filter(None, ("expire", word[:LONGEST_WORD], sha256(prefix.encode()).hexdigest()[:8], day)))


class DailyExpiry:
    """Looks after the jobs of one day, by the date in UTC. All flushers of a fleet may do so."""

    def __init__(self, rules: Sequence[ExpireRule], jobs: Jobs, starter: JobStarter, clock: Clock) -> None:
        self._rules = rules
        self._jobs = jobs
        self._starter = starter
        self._clock = clock
        self._ended: dict[str, str] = {}
        """The last day whose job has ended, by prefix."""
        self._started: dict[str, float] = {}
        """When this process started the job that is under way."""
        self._said: dict[str, str] = {}

    async def run(self) -> NoReturn:
        while True:
            await self.look()
            await asyncio.sleep(LOOK)

    async def look(self) -> None:
        """Start the jobs of this day that are missing. One that can't be started does not hold up the others."""
        day = written_at(self._clock.now())[:10]
        for rule in self._rules:
            if self._ended.get(rule.prefix) == day:
                continue
            metrics.EXPIRE_DUE.labels(rule.prefix).set(1)
            try:
                standing = await self._job(rule, id_of(rule.prefix, day))
            except TransientError as error:
                self._complain(rule, f"can't be started, and is tried again each minute: {error}", logging.WARNING)
                continue
            if standing.state != RUNNING:
                self._ended[rule.prefix] = day
                self._tell(rule, standing)

    async def _job(self, rule: ExpireRule, id_: str) -> JobState:
        standing = await self._jobs.get(id_)
        now = self._clock.now()
        if standing is not None:
            since = max(standing.job.created / 1_000, self._started.get(rule.prefix, 0.0))
            if standing.state != RUNNING or now - since < REPAIR or not _asked(standing, rule):
                return standing
        self._started[rule.prefix] = now
        standing, new = await self._starter.start(EXPIRE, rule.prefix, rule.days, id_=id_)
        if new:
            _log.info("job %s begins: it deletes the counters under %r that were not changed for %dd", id_, *rule)
        return standing

    def _tell(self, rule: ExpireRule, standing: JobState) -> None:
        job, progress = standing.job, standing.progress
        if standing.state != DONE or progress.failed:
            failed = amount(progress.failed, "counter")
            why = standing.why or f"{failed} could not be changed, such as {progress.examples}"
            command = f"countersink map --prefix '{rule.prefix}' --delete --unused-for {rule.days}d"
            self._complain(rule, f"has failed: {why}. The next one begins at midnight in UTC; until then: {command}")
            return
        metrics.EXPIRE_DUE.labels(rule.prefix).set(0)
        if not _asked(standing, rule):
            self._complain(
                rule,
                f"was not started: {job.taken()}. If the rule was changed today, the new one begins at midnight in UTC."
                " Otherwise, give all flushers the same COUNTERSINK_EXPIRE",
            )
        elif self._started.pop(rule.prefix, None) is not None:
            deleted = amount(progress.changed, "counter")
            _log.info("job %s is done: it has deleted %s under %r", job.id, deleted, rule.prefix)

    def _complain(self, rule: ExpireRule, why: str, level: int = logging.ERROR) -> None:
        """Once, as long as the reason is the same."""
        if self._said.get(rule.prefix) != why:
            self._said[rule.prefix] = why
            _log.log(level, "the daily job that deletes old counters under %r %s", rule.prefix, why)


def _asked(standing: JobState, rule: ExpireRule) -> bool:
    return standing.job.asks(EXPIRE, rule.prefix, rule.days)
