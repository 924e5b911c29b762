"""How processes log: one line per record; repeated lines are cut short and counted."""

import logging
import time
from collections.abc import Callable
from typing import Final

from countersink_server.process.log_lines import JsonLines, TextLines
from shared.config.settings import Settings

PUBSUB: Final = "pubsub://"
MOST: Final = 5
"""Lines of one kind in `SPELL` seconds. In an outage every attempt logs the same."""
SPELL: Final = 30.0
KINDS: Final = 1_000
"""Kinds that are remembered at most."""


def set_up(settings: Settings) -> None:
    """Log to standard error, as the settings say."""
    handler = logging.StreamHandler()
    handler.addFilter(RepeatLimit())
    project = settings.broker.removeprefix(PUBSUB).partition("/")[0] if settings.broker.startswith(PUBSUB) else ""
    handler.setFormatter(JsonLines(project) if settings.log_format == "json" else TextLines())
    logging.basicConfig(level=settings.log_level, handlers=[handler])


class RepeatLimit(logging.Filter):
    """Limits repeated warnings and errors. Records with the same logger and the same format string are of one kind."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[tuple[str, str], tuple[float, int]] = {}
        """When the spell of each kind of record ends, and how many records it had."""

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
