"""How processes log: one line a record, for people or as JSON for Cloud Logging; repeated lines are cut short and
counted.
"""

import json
import logging
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from shared.config.settings import Settings
from shared.runtime.traces import REQUEST

# Writes log records as lines, for people or as JSON with the field names of Cloud Logging. No line has a key in it.


FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_SECRET: Final = re.compile(r"(c[sp]k_[A-Za-z0-9._-]{1,100}_)[0-9a-f]{8,}|(?<=://)[^/@\s]*@")
"""The secret of a key, and the user and password in a URL."""
_CLOUD: Final = "logging.googleapis.com"


def without_secrets(text: str) -> str:
    return _SECRET.sub(lambda found: f"{found[1] or ''}…" + ("" if found[1] else "@"), text)


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))


class JsonLines(logging.Formatter):
    def __init__(self, project: str) -> None:
        """`project`: the Google Cloud project whose traces are meant, or empty."""
        super().__init__()
        self._project = project

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "severity": record.levelname,
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "message": without_secrets(record.getMessage()),
            "logger": record.name,
            "pid": record.process,
        }
        if (request := REQUEST.get()) is not None:
            fields["request_id"] = without_secrets(request.id)
            if (trace := request.span or request.trace) is not None:
                place = f"projects/{self._project}/traces/" if self._project else ""
                fields[f"{_CLOUD}/trace"] = place + trace.trace
                fields[f"{_CLOUD}/spanId"] = trace.span
                fields[f"{_CLOUD}/trace_sampled"] = trace.sampled
        if (http := getattr(record, "http", None)) is not None:
            fields["httpRequest"] = {
                name: without_secrets(value) if isinstance(value, str) else value for name, value in http.items()
            }
        if record.exc_info:
            fields["stack_trace"] = without_secrets(self.formatException(record.exc_info))
        return json.dumps(fields)


PUBSUB: Final = "pubsub://"
MOST: Final = 5
"""Lines of one kind in `SPELL` seconds. In an outage every attempt logs the same."""
SPELL: Final = 30.0
KINDS: Final = 1_000
"""Kinds that are remembered at most."""


def set_up(settings: Settings) -> None:
    handler = logging.StreamHandler()
    handler.addFilter(RepeatLimit())
    project = settings.broker.removeprefix(PUBSUB).partition("/")[0] if settings.broker.startswith(PUBSUB) else ""
    handler.setFormatter(JsonLines(project) if settings.log_format == "json" else TextLines(FORMAT))
    logging.basicConfig(level=settings.log_level, handlers=[handler])


class RepeatLimit(logging.Filter):
    """Limits repeated warnings and errors. Records with the same logger and the same format string are of one kind."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[tuple[str, str], tuple[float, int]] = {}
        """When the spell of each kind of record ends, and how many records it had. Threads may log at once."""

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
