"""Sends what is in the tally to the broker, through the door and with the limits of any batch."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from ingest.access.caller import Caller
from ingest.http.problems import Problem
from ingest.publishing.batch import Batch
from ingest.publishing.coalescer import MAX_ENTRIES
from ingest.publishing.new_names import NewNames
from ingest.publishing.publishing import Publishing
from ingest.statsd.tally import StatsdTally
from shared.model.errors import CountersinkError, OverloadedError
from shared.runtime import metrics
from shared.runtime.ids import mint

_log = logging.getLogger(__name__)

PAUSE: Final = 0.1
"""Seconds between two looks at the tally."""
LONGEST_PAUSE: Final = 5.0
"""Seconds until a batch that was refused is tried again, at most."""
MOST_LINES: Final = 10_000
"""Lines in one batch, so that a backlog is no larger a batch than what others send."""
NEW_NAME: Final = "new-name"
KEY: Final = "key"
PREFIX: Final = "prefix"


class StatsdSender:
    """Sends one batch after the other. A batch has an id, so that it counts once, however often it has to be sent."""

    def __init__(
        self, tally: StatsdTally, publishing: Publishing, new_names: NewNames | None, enter: Callable[[], Caller]
    ) -> None:
        """`enter` asks the door who sends, and raises what it raises."""
        self._tally = tally
        self._publishing = publishing
        self._new_names = new_names
        self._enter = enter
        self._sending = asyncio.Lock()
        self._under_way = 0
        self._told = ""

    @property
    def lines(self) -> int:
        """How many lines are not accepted yet, and not lost."""
        return self._tally.lines + self._under_way

    async def send_all(self) -> None:
        """Return when everything that was in the tally has been accepted, or was refused for good."""
        async with self._sending:
            while self._tally.lines:
                batch = self._tally.take(MAX_ENTRIES, MOST_LINES)
                self._under_way = batch.increments
                await self._send(batch)
                self._under_way = 0

    async def _send(self, batch: Batch) -> None:
        id_ = mint()
        admitted = False
        while batch.increments:
            try:
                caller = self._enter()
                if not admitted:
                    admitted = await self._admit(batch, caller)
                if batch.increments:
                    await self._publish(batch, caller, id_)
                self._told = ""
                break
            except Problem as problem:
                self._tell(f"StatsD lines are not counted: {problem.detail}")
                self._lose(KEY, batch.increments)
                break
            except CountersinkError as error:
                self._tell(f"increments of StatsD lines can't be published now, and are tried again: {error}")
                pause = error.retry_after if isinstance(error, OverloadedError) else 1.0
                await asyncio.sleep(min(max(pause, PAUSE), LONGEST_PAUSE))

    async def _admit(self, batch: Batch, caller: Caller) -> bool:
        """Take out the counters that are not the key's, and new ones for which there is no room; and count the rest
        against the key's rate.
        """
        foreign = {name for name in batch.sums if not caller.may_use(name)}
        self._lose(PREFIX, sum(batch.drop(plain=foreign).values()))
        if self._new_names is None:
            caller.spend(batch.increments)
            return True
        with self._new_names.trial(caller.new) as trial:
            refused = await self._new_names.admit(batch.changed(), trial)
            self._lose(NEW_NAME, sum(batch.drop(plain=refused).values()))
            caller.spend(batch.increments)
        return True

    async def _publish(self, batch: Batch, caller: Caller, id_: str) -> None:
        drafts = self._publishing.add_whole(batch, caller.batch_id(id_, batch.content), caller.tenant)
        await self._publishing.durable(drafts[0])

    def _lose(self, why: str, lines: int) -> None:
        metrics.STATSD_UNCOUNTED.labels(why).inc(lines)

    def _tell(self, text: str) -> None:
        """Log it, unless it is what was logged last."""
        if text != self._told:
            self._told = text
            _log.warning("%s", text)
