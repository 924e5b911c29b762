"""A client for commands: it says on standard error why an answer takes long."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, ParamSpec, TypeVar

from countersink import AsyncClient, Counter
from countersink.client import CLOSING

SILENCE: Final = 1.0
"""Seconds after which it says why it waits."""
AGAIN: Final = 5.0
"""Seconds until it says so again."""

_LOG: Final = logging.getLogger("countersink.client")

P = ParamSpec("P")
T = TypeVar("T")


class PatientClient(AsyncClient):
    """It sends one request at a time. Use one in a process."""

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        patience: float,
        shown: str,
        say: Callable[[str], None],
    ) -> None:
        """`shown` is how people know the service."""
        super().__init__(url, key, patience=patience)
        self._say = say
        self._waiting = f"waiting for an answer from {shown}"
        self._trying = "trying again" + ("" if patience == float("inf") else f" for up to {patience:g} s")
        self._failure = _LastFailure()

    async def close(self, timeout: float = CLOSING) -> bool:
        self._failure.close()
        return await super().close(timeout)

    async def _run(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._patiently(super()._run(method, *args, **kwargs), self._waiting)

    async def _next(self, signs: Iterator[Counter | None]) -> Counter | None:
        return await self._patiently(super()._run(next, signs), "")  # of a stream, silence is no bad sign

    async def _patiently(self, asking: Coroutine[Any, Any, T], waiting: str) -> T:
        """`waiting`: what to say if nothing failed, and there is no answer yet."""
        self._failure.text = ""
        asked = asyncio.create_task(asking, name="ask the service")
        try:
            pause = SILENCE
            while not (await asyncio.wait([asked], timeout=pause))[0]:
                failure = self._failure.text
                if failure or waiting:
                    self._say(f"countersink: {failure} ({self._trying})" if failure else f"countersink: {waiting}")
                    pause = AGAIN
            if pause == AGAIN and self._failure.text and asked.exception() is None:
                self._say("countersink: it answers again")
            return asked.result()
        finally:
            asked.cancel()


class _LastFailure(logging.Handler):
    """Keeps what the client logs of an attempt that failed."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        _LOG.setLevel(logging.INFO)
        _LOG.addHandler(self)
        _LOG.propagate = False

    def close(self) -> None:
        _LOG.setLevel(logging.NOTSET)
        _LOG.removeHandler(self)
        _LOG.propagate = True
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()
