"""Sends a plan in three ways: to the fast path, to aiohttp alone, and to aiohttp with a connection for each request."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from shared.config.settings import Settings
from shared.http.front import LINGER, PATIENCE
from tests.http.both_ways import plain
from tests.http.fuzz.plan import AT_ONCE, Plan
from tests.http.fuzz.side import BODY_TIMEOUT, MAX_BODY, SETTLED, SIGNED, Side, State, Told
from tests.interleavings.simulation.loop import VirtualLoop

LAST: Final = b"GET /version HTTP/1.1\r\nHost: h\r\n\r\n"
"""Sent at the end if the connection is open, as one that is open has to be of use."""


class Outcome(NamedTuple):
    """What came of a plan."""

    told: Told
    state: State
    logged: tuple[str, ...]
    """Errors in the log, which must be none."""
    handled: int
    """Requests that were not taken by the fast path."""


@dataclass(frozen=True)
class Ways:
    """Runs plans, each on a server of its own in virtual time."""

    keys_file: Path

    def short(self, plan: Plan) -> Outcome:
        return self._run(plan, short=True, send=_in_pieces)

    def long(self, plan: Plan) -> Outcome:
        return self._run(plan, short=False, send=_in_pieces)

    def longer(self, plan: Plan) -> Outcome:
        """As `long`, with the time that the fast path waits for a body before it lends the request."""
        with patch("shared.http.server.LINGER", LINGER + PATIENCE):
            return self._run(plan, short=False, send=_in_pieces, body_timeout=BODY_TIMEOUT + PATIENCE)

    def apart(self, plan: Plan) -> Outcome:
        return self._run(plan, short=False, send=_apart)

    def _run(
        self,
        plan: Plan,
        *,
        short: bool,
        send: Callable[[Side, Plan], Coroutine[Any, Any, Told]],
        body_timeout: float = BODY_TIMEOUT,
    ) -> Outcome:
        settings = Settings(
            broker="sqlite:///never.db",
            body_timeout=body_timeout,
            max_body_bytes=MAX_BODY,
            drain_timeout=1.0,
            hosts=("h",),
            keys_file=str(self.keys_file) if plan.keys else "",
        )
        outcomes: list[Outcome] = []

        async def main() -> None:
            side = Side(loop, settings, short=short, delay=plan.delay)
            await side.start()
            told = await send(side, plan)
            handled = side.handled()
            outcomes.append(Outcome(told, await side.state(), (), handled))
            await side.stop()

        loop = VirtualLoop()
        with _Log() as logged:
            loop.run_to_end(main())
        return outcomes[0]._replace(logged=tuple(logged))


async def _in_pieces(side: Side, plan: Plan) -> Told:
    async with side.connected(slow=plan.slow) as line:
        for piece, pause in plan.pieces():
            line.send(piece)
            if pause > AT_ONCE:
                await asyncio.sleep(pause)
            for _ in range(round(-pause)):
                await asyncio.sleep(0)
        if plan.ends:
            line.half_close()
        await asyncio.sleep(SETTLED)
        is_open = not line.is_closing()
        if is_open and not plan.ends:
            line.send(LAST)
            await asyncio.sleep(SETTLED)
        return Told(plain(line.seen, SIGNED), is_open)


async def _apart(side: Side, plan: Plan) -> Told:
    """What each request would be answered if it had come alone, up to the one that closes the connection."""
    seen = b""
    for request in (*plan.requests, None):
        told = await side.told(LAST if request is None else request.data)
        seen += told.seen
        if not told.is_open:
            return Told(seen, is_open=False)
    return Told(seen, is_open=True)


class _Log(logging.Handler):
    """What is logged as an error while it is in use."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._said.append(f"{record.getMessage()} {record.exc_info[1]!r}" if record.exc_info else record.getMessage())

    def __enter__(self) -> list[str]:
        self._said = []
        logging.getLogger().addHandler(self)
        return self._said

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self)
