"""An event loop whose time stands still while the process does not run, so that no limit of a test or of the product
passes because the machine was busy or paused; and one that leaves no connection open.
"""

import asyncio
import selectors
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

SLICE: Final = 0.01
"""Seconds of one wait. Of a wait that takes longer, since the machine was away, no more than twice as much counts."""

Events = list[tuple[selectors.SelectorKey, int]]


class TidyLoop(asyncio.SelectorEventLoop):
    """Closes the accepted connections that are still open at its end. A server that closes may accept one more, which
    nobody else closes, and a later test would get the warning.
    """

    def close(self) -> None:
        accepted = [one for one in list(self._transports.values()) if one._server is not None]  # type: ignore[attr-defined] # asyncio's
        for transport in accepted:
            transport.abort()
        if accepted:
            self.run_until_complete(asyncio.sleep(0))
        super().close()


class PatientLoop(TidyLoop):
    """Its time is the processor time of its thread, and the time for which it waited."""

    def __init__(self) -> None:
        self._passed = time.monotonic()
        self._worked = time.thread_time()
        self._who = threading.get_ident()
        super().__init__(_Waits(self))

    def time(self) -> float:
        if self._who == (me := threading.get_ident()):
            self._passed += (worked := time.thread_time()) - self._worked
            self._worked = worked
        elif self._thread_id in (me, None):  # type: ignore[attr-defined] # asyncio's, of the thread that runs it
            self._who, self._worked = me, time.thread_time()
        return self._passed

    def waited(self, seconds: float) -> None:
        self._passed += seconds


class _Waits(selectors.BaseSelector):
    """Waits in slices, and tells the loop how long."""

    def __init__(self, loop: PatientLoop) -> None:
        self._selector = selectors.DefaultSelector()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Events:
        while True:
            slice_ = SLICE if timeout is None else max(0.0, min(SLICE, timeout))
            begun = time.monotonic()
            events = self._selector.select(slice_)
            waited = min(time.monotonic() - begun, 2 * slice_)
            self._loop.waited(waited)
            if timeout is not None:
                timeout -= waited
            if events or (timeout is not None and timeout <= 0):
                return events

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._selector.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._selector.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._selector.modify(fileobj, events, data)

    def close(self) -> None:
        self._selector.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._selector.get_map()
