"""Knows the clients of this process: after a fork they begin anew, and at exit they send what they hold."""

import atexit
import os
import sys
import time
import weakref
from typing import Any, Final, Protocol

from countersink import interrupts

AT_EXIT: Final = 2.0
"""Seconds for all clients together."""


class Living(Protocol):
    """What sends in the background."""

    def forked(self) -> None: ...

    def end_by(self, deadline: float) -> None: ...

    def close(self, timeout: float) -> bool: ...


_known: "weakref.WeakSet[Living]" = weakref.WeakSet()
_running: set[Living] = set()
"""They are not collected while they may hold something."""

_finalized: list[Any] = []
"""The module that knows that it has to call us in children."""


def know(one: Living) -> None:
    _known.add(one)


def begin(one: Living) -> None:
    """It has something to send, from now on."""
    _running.add(one)
    # Children of multiprocessing, and of Celery's pool, end without calling what atexit has registered.
    if util := sys.modules.get("multiprocessing.util"):
        _finalize(util)
        if not _finalized:  # a child forgets what was registered before it begins its work, and then calls this
            util.register_after_fork(_at_exit, lambda _: _finalize(util))
            _finalized.append(util)
    if celery := sys.modules.get("celery.signals"):
        celery.worker_process_shutdown.connect(_at_exit, weak=False, dispatch_uid=__name__)


def _finalize(util: Any) -> None:
    util.Finalize(None, _at_exit, exitpriority=100)


def end(one: Living) -> None:
    _running.discard(one)


def _at_exit(**_: object) -> None:
    until = time.monotonic() + AT_EXIT
    running = list(_running)
    for one in running:
        one.end_by(until)
    for one in running:
        one.close(max(until - time.monotonic(), 0.0))


def _forked() -> None:
    interrupts.forget_threads()
    _running.clear()
    for one in list(_known):
        one.forked()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
