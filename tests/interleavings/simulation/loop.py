"""An event loop whose time goes on only when nobody has anything left to do, and whose processes can stand still."""

import asyncio
import contextlib
import heapq
import math
import selectors
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from itertools import count
from typing import Any, TypeVar

T = TypeVar("T")
OWNER: ContextVar[str] = ContextVar("owner", default="nobody")
"""The process that a task belongs to; tasks inherit it from those who start them."""
NOBODY: Context = copy_context()
"""What servers run in: it outlives the process that called them, and does not stand still with it."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Tasks are numbered, so that sets of them have the same order each time; and they know their process.

    `grain`: if it is not 0, timers end at multiples of so many seconds, so that idle hours cost little; `coarse`: and
    those of these processes at multiples of so many grains.
    """

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _stopping: bool

    def __init__(self) -> None:
        super().__init__(selectors.SelectSelector())
        self._virtual = 0.0
        self._numbers = count()
        self.set_task_factory(self._task)  # type: ignore[arg-type] # any kind of task will do
        self.tasks: dict[_Task, str] = {}
        self.grain = 0.0
        self.coarse: dict[str, int] = {}
        self._rounded: list[tuple[asyncio.TimerHandle, float]] = []
        self._frozen: dict[str, list[asyncio.Handle]] = {}

    def time(self) -> float:
        return self._virtual

    def call_at(  # type: ignore[override] # arguments of any kind
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if self.grain and when > self._virtual:
            grain = self.grain * self.coarse.get((context or copy_context()).get(OWNER, ""), 1)
            rounded = super().call_at(math.ceil(when / grain) * grain, callback, *args, context=context)
            self._rounded.append((rounded, when))
            return rounded
        return super().call_at(when, callback, *args, context=context)

    def leap(self, seconds: float) -> None:
        """All at once: nobody does anything meanwhile."""
        self._virtual += seconds

    def hurry(self) -> None:
        """Time is fine again: what was to happen earlier happens now."""
        self.grain = 0.0
        for handle, when in self._rounded:
            handle._when = max(when, self._virtual)  # type: ignore[attr-defined]
        self._rounded.clear()
        heapq.heapify(self._scheduled)

    def _run_once(self) -> None:
        """In place of asyncio's: nothing comes from outside, so instead of waiting it turns the clock."""
        ready, scheduled = self._ready, self._scheduled
        while scheduled and scheduled[0].cancelled():
            heapq.heappop(scheduled)
        if not ready and not self._stopping:
            if not scheduled:
                raise AssertionError("everybody waits for something that never comes")
            self._virtual = max(self._virtual, scheduled[0].when())
        while scheduled and scheduled[0].when() <= self._virtual:
            ready.append(heapq.heappop(scheduled))
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle.cancelled():
                continue
            if self._frozen and (owner := handle._context.get(OWNER)) in self._frozen:  # type: ignore[attr-defined]
                self._frozen[owner].append(handle)
            else:
                handle._run()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """They are dropped when their time comes."""

    def freeze(self, owner: str) -> None:
        """Nothing of the process runs until it is thawed: it is stopped by a signal, or its machine sleeps."""
        self._frozen.setdefault(owner, [])

    def thaw(self, owner: str) -> None:
        """It goes on where it was, with all that has become due meanwhile."""
        self._ready.extend(self._frozen.pop(owner, ()))

    def frozen(self) -> list[str]:
        return [*self._frozen]

    def _task(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any) -> "_Task":
        task = _Task(next(self._numbers), coroutine, loop=loop, **options)
        self.tasks[task] = OWNER.get()
        task.add_done_callback(self.tasks.pop, context=NOBODY)
        return task

    def start(self, owner: str, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """A task of this process."""
        token = OWNER.set(owner)
        task = self.create_task(coroutine)
        OWNER.reset(token)
        return task

    def run_to_end(self, main: Coroutine[Any, Any, None]) -> None:
        """Then all who still run are killed."""
        asyncio.set_event_loop(self)
        try:
            self.run_until_complete(main)
        finally:
            self.grain = 0.0
            for owner in {*self.tasks.values()}:
                self.kill(owner)
            with contextlib.suppress(BaseException):
                self.run_until_complete(asyncio.sleep(0))
            self.close()
            asyncio.set_event_loop(None)

    def kill(self, owner: str) -> None:
        """All tasks of a process."""
        self.thaw(owner)
        for task in [task for task, its in self.tasks.items() if its == owner]:
            task.cancel()


class _Task(asyncio.Task[Any]):
    def __init__(self, number: int, coroutine: Coroutine[Any, Any, Any], **options: Any) -> None:
        self._number = number
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other
