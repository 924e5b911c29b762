"""How the processes log: a line each; of many of one kind the first few, then how many were left out."""

import logging
import time
from collections.abc import Callable
from typing import Final

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
MOST: Final = 5
"""Of one kind in `SPELL` seconds: an outage is said by every try of everybody who meets it."""
SPELL: Final = 30.0
KINDS: Final = 1_000
"""Kinds that are remembered."""


def set_up(level: str) -> None:
    handler = logging.StreamHandler()
    handler.addFilter(Calm())
    logging.basicConfig(level=level, format=FORMAT, handlers=[handler])


class Calm(logging.Filter):
    """Of warnings and errors. A kind is what one line of code says, whatever it says it of."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[tuple[str, str], tuple[float, int]] = {}
        """When the spell ends, and how many there were in it."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not logging.WARNING <= record.levelno < logging.CRITICAL:
            return True
        now, kind = self._clock(), (record.name, str(record.msg))
        end, count = self._kinds.get(kind, (0.0, 0))
        if now >= end:
            if count > MOST:
                record.msg, record.args = f"{record.getMessage()} (and {count - MOST} like it before)", ()
            end, count = now + SPELL, 0
            if len(self._kinds) >= KINDS:
                self._kinds.clear()
        self._kinds[kind] = (end, count + 1)
        return count < MOST
