"""Owns which tasks of jobs one process is doing: pulls so many at once, extends their leases, gives back at the end."""

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
"""Seconds, at the end, to give back what is held. If the broker is away, the leases run out."""
TRIES: Final = 10
"""Of a task, with growing pauses, before others have a go: it may wait for something that only they have."""
LONGEST_PAUSE: Final = 60.0
"""Seconds between two tries to pull. There may be no such subscription yet, and most processes have nothing to do."""


class Runner:
    """Each task is tried again and again, its lease is extended meanwhile; then it is given back."""

    def __init__(
        self,
        tasks: Tasks,
        worker: Worker,
        *,
        at_once: int,
        lease: float,
        backoff: Callable[[], Backoff] = Backoff,
        patience: Callable[[], Backoff] = lambda: Backoff(most=LONGEST_PAUSE),
    ) -> None:
        """`backoff` of a task, `patience` of the pulling."""
        self._tasks = tasks
        self._worker = worker
        self._at_once = at_once
        self._lease = lease
        self._backoff = backoff
        self._patience = patience
        self._working: dict[asyncio.Task[None], Lease] = {}
        self._pulling = False

    async def run(self, stop: Stop, drain_timeout: float) -> None:
        """Until `stop`; then finish the tasks that are begun, for `drain_timeout` seconds, and give the rest back."""
        try:
            async with asyncio.TaskGroup() as group:
                puller = group.create_task(self._pull(stop, group), name="pull tasks")
                extender = group.create_task(forever(self.extend_once, self._lease / 3), name="extend tasks")
                await stop.wait()
                if self._pulling:  # what it has been handed out would not be known
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
        patience = self._patience()
        while not stop.is_set():
            if len(self._working) >= self._at_once:
                await asyncio.wait([*self._working], return_when=asyncio.FIRST_COMPLETED)
                continue
            self._pulling = True
            try:
                leases = await self._tasks.pull(self._at_once - len(self._working), PULL_WAIT)
            except TransientError as error:
                _log.warning("no tasks of jobs, it is tried again: %s", error)
                self._pulling = False  # a drain need not wait for the next try
                await patience.wait()
                continue
            self._pulling = False
            patience.reset()
            for lease in leases:
                one = group.create_task(self._work(lease), name=f"task behind {lease.task.range.after!r}")
                self._working[one] = lease

    async def _work(self, lease: Lease) -> None:
        """Cancelled, it stays among those that are given back. What only newer processes know is left until its lease
        ends: given back, it would come back at once, and take a place from tasks that can be done.
        """
        try:
            ends = self._tasks.ack if await self._done(lease) else self._tasks.give_back
        except NewerError as error:
            metrics.NEWER.inc()
            _log.warning("a task of job %s is left to newer processes: %s", lease.task.job, error)
        else:
            with contextlib.suppress(TransientError):  # then it comes again, and finds whether it is done
                await ends([lease.token])
        del self._working[asyncio.current_task()]  # type: ignore[arg-type] # it is one

    async def _done(self, lease: Lease) -> bool:
        backoff = self._backoff()
        for left in reversed(range(TRIES)):
            try:
                await self._worker.work(lease.task)
            except TransientError as error:
                _log.warning("a task of job %s failed and is tried again: %s", lease.task.job, error)
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
