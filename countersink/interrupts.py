"""Threads and waiting that a signal handler may interrupt between any two bytecodes.

The handler may raise an exception there, or call the same code again. So what a caller of `incr` or `flush` runs
follows three rules:

- It changes what threads share in single steps of the interpreter, such as an `append` to a list.
- It holds no lock that anybody waits for, as `threading.Event` does.
- It notes that something is done only afterwards. If it was interrupted, the next caller does it again, without harm.
"""

import _thread
import contextlib
import logging
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

_log: Final = logging.getLogger("countersink")
LONGEST: Final = 1e8
"""Seconds, about three years: more may be too much for the system."""

_ours: Final[set[int]] = set()
"""The threads that run now."""


def start(task: Callable[..., object], *arguments: object) -> bool:
    """Run it in a thread, without waiting until that runs, as `threading.Thread` does. Returns False if none can start:
    there are too many, or the interpreter is ending.
    """
    try:
        _thread.start_new_thread(_run, (task, arguments))
    except RuntimeError as error:
        if "new thread" not in str(error):
            raise  # it is a signal handler's
        return False
    return True


def _run(task: Callable[..., object], arguments: tuple[object, ...]) -> None:
    me = _thread.get_ident()
    _ours.add(me)
    try:
        task(*arguments)
    finally:
        _ours.discard(me)


def is_ours() -> bool:
    """Whether this thread was started here. It must not wait for another one: the collector may call finalizers of the
    program in it, anywhere.
    """
    return _thread.get_ident() in _ours


def forget_threads() -> None:
    """They stay in the parent of a fork."""
    _ours.clear()


def say(level: int, text: str, error: Exception | None = None) -> None:
    """Log it in another thread. Logging waits for locks, which an interrupted frame of the main thread may hold, while
    the signal handler waits in `flush` for the thread that calls this.
    """
    if not start(log, level, text, error):
        log(level, text, error)


def log(level: int, text: str, error: Exception | None = None) -> None:
    with contextlib.suppress(Exception):  # of a handler of the program
        _log.log(level, "%s", text, exc_info=error)


class Bell:
    """Rings once for everybody who rang it since it was last heard."""

    def __init__(self) -> None:
        self._rings: SimpleQueue[None] = SimpleQueue()  # its `put` may interrupt itself

    def ring(self) -> None:
        if self._rings.empty():
            self._rings.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        try:
            self._rings.get(timeout=None if timeout is None else min(max(timeout, 0.0), LONGEST))
        except Empty:
            return False
        return True


class Moment:
    """Something that happens once, and that others wait for."""

    def __init__(self) -> None:
        self._happened = False
        self._waiting: set[Bell] = set()

    def is_set(self) -> bool:
        return self._happened

    def set(self) -> None:
        self._happened = True
        for bell in list(self._waiting):
            bell.ring()

    def wait(self, timeout: float | None = None) -> bool:
        bell = Bell()
        self._waiting.add(bell)
        try:
            if not self._happened:
                bell.wait(timeout)
        finally:
            self._waiting.discard(bell)
        return self._happened
