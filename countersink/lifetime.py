"""Knows the clients of this process: after a fork they begin anew, and at exit they send what they hold."""

import atexit
import os
import sys
import time
import weakref
from typing import Final, Protocol

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


def know(one: Living) -> None:
    _known.add(one)


def begin(one: Living) -> None:
    """It has something to send, from now on."""
    _running.add(one)
    # Children of multiprocessing, and of Celery's pool, end without calling what atexit has registered.
    if util := sys.modules.get("multiprocessing.util"):
        util.Finalize(None, _at_exit, exitpriority=100)
    if celery := sys.modules.get("celery.signals"):
        celery.worker_process_shutdown.connect(_at_exit, weak=False, dispatch_uid=__name__)


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
    _running.clear()
    for one in list(_known):
        one.forked()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
