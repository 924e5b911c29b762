"""Pulls tasks of jobs, has them done while it extends their leases, and gives the rest back at the end."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final

from flusher.jobs.worker import Worker
from shared.model.errors import NewerError, TransientError
from shared.ports.jobs import Lease, Tasks
from shared.runtime import metrics
from shared.runtime.backoff import Backoff
from shared.runtime.supervise import Stop, forever

_log = logging.getLogger(__name__)

PULL_WAIT: Final = 0.2
GIVE_BACK: Final = 1.0
"""Seconds at the end to give tasks back. If the broker is away, their leases run out."""
TRIES: Final = 10
"""Attempts at a task, with growing pauses. Then it is given back: another process may be able to do it."""
LONGEST_PAUSE: Final = 60.0
"""Seconds between two attempts to pull while pulling fails: the tasks' subscription may not exist yet."""


class Runner:
    """Repeats each task until it is done, extends its lease meanwhile, and gives it back if it keeps failing."""

    def __init__(
        self,
        tasks: Tasks,
        worker: Worker,
        *,
        at_once: int,
        lease: float,
        backoff: Callable[[], Backoff] = Backoff,
    ) -> None:
        """`backoff`: the pauses between attempts at a task."""
        self._tasks = tasks
        self._worker = worker
        self._at_once = at_once
        self._lease = lease
        self._backoff = backoff
        self._working: dict[asyncio.Task[None], Lease] = {}
        self._pulling = False

    async def run(self, stop: Stop, drain_timeout: float) -> None:
        """Work until `stop`. Then finish the tasks in work, for `drain_timeout` seconds, and give the rest back."""
        try:
            async with asyncio.TaskGroup() as group:
                puller = group.create_task(self._pull(stop, group), name="pull tasks")
                extender = group.create_task(forever(self.extend_once, self._lease / 3), name="extend tasks")
                await stop.wait()
                if self._pulling:  # otherwise tasks that it is just being handed could not be given back
                    await asyncio.wait([puller], timeout=GIVE_BACK)
                puller.cancel()
                if self._working:
                    await asyncio.wait([*self._working], timeout=drain_timeout)
                for one in (extender, *self._working):
                    one.cancel()
        finally:
            await self._give_back([*self._working.values()])

    async def extend_once(self) -> None:
        if self._working:
            await self._tasks.extend([lease.token for lease in self._working.values()])

    async def _pull(self, stop: Stop, group: asyncio.TaskGroup) -> None:
        patience = Backoff(most=LONGEST_PAUSE)
        while not stop.is_set():
            if len(self._working) >= self._at_once:
                await asyncio.wait([*self._working], return_when=asyncio.FIRST_COMPLETED)
                continue
            self._pulling = True
            try:
                leases = await self._tasks.pull(self._at_once - len(self._working), PULL_WAIT)
            except TransientError as error:
                _log.warning("pulling tasks of jobs failed and is retried: %s", error)
                self._pulling = False  # a drain need not wait for the next attempt
                await patience.wait()
                continue
            self._pulling = False
            patience.reset()
            for lease in leases:
                one = group.create_task(self._work(lease), name=f"task behind {lease.task.range.after!r}")
                self._working[one] = lease

    async def _work(self, lease: Lease) -> None:
        """Do one task, then acknowledge it or give it back.

        A cancelled task stays in `_working`, so that `run` gives it back. A task that only newer processes know is kept
        until its lease ends: given back, it would return at once and keep this process from other tasks.
        """
        try:
            ends = self._tasks.ack if await self._done(lease) else self._tasks.give_back
        except NewerError as error:
            metrics.NEWER.inc()
            _log.warning("a task of job %s needs a newer process: %s", lease.task.job, error)
        else:
            with contextlib.suppress(
                TransientError
            ):  # then it is delivered again, and its record tells whether it is done
                await ends([lease.token])
        del self._working[asyncio.current_task()]  # type: ignore[arg-type] # it runs in a task

    async def _done(self, lease: Lease) -> bool:
        backoff = self._backoff()
        for left in reversed(range(TRIES)):
            try:
                await self._worker.work(lease.task)
            except TransientError as error:
                _log.warning("a task of job %s failed and is retried: %s", lease.task.job, error)
                if left:
                    await backoff.wait()
            else:
                return True
        return False

    async def _give_back(self, leases: Sequence[Lease]) -> None:
        if leases:
            with contextlib.suppress(TransientError, TimeoutError):  # then the leases run out
                async with asyncio.timeout(GIVE_BACK):
                    await self._tasks.give_back([lease.token for lease in leases])
