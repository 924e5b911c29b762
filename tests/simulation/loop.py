"""An event loop whose time goes on only when nobody has anything left to do."""

import asyncio
import contextlib
import selectors
from collections.abc import Coroutine
from contextvars import ContextVar
from itertools import count
from typing import Any

OWNER: ContextVar[str] = ContextVar("owner", default="nobody")
"""The process that a task belongs to; tasks inherit it from those who start them."""


class _Selector(selectors.SelectSelector):
    """Nothing comes from outside: instead of waiting it turns the clock."""

    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("everybody waits for something that never comes")
        if timeout > 0:
            self.loop.turn(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Tasks are numbered, so that sets of them have the same order each time; and they know their process."""

    def __init__(self) -> None:
        selector = _Selector()
        super().__init__(selector)
        selector.loop = self
        self._virtual = 0.0
        self._numbers = count()
        self.set_task_factory(self._task)  # type: ignore[arg-type] # any kind of task will do
        self.tasks: dict[_Task, str] = {}

    def time(self) -> float:
        return self._virtual

    def turn(self, seconds: float) -> None:
        self._virtual += seconds

    def _task(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any) -> "_Task":
        task = _Task(next(self._numbers), coroutine, loop=loop, **options)
        self.tasks[task] = OWNER.get()
        task.add_done_callback(self.tasks.pop)
        return task

    def run_to_end(self, main: Coroutine[Any, Any, None]) -> None:
        """Then all who still run are killed."""
        asyncio.set_event_loop(self)
        try:
            self.run_until_complete(main)
        finally:
            for owner in {*self.tasks.values()}:
                self.kill(owner)
            with contextlib.suppress(BaseException):
                self.run_until_complete(asyncio.sleep(0))
            self.close()
            asyncio.set_event_loop(None)

    def kill(self, owner: str) -> None:
        """All tasks of a process."""
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
