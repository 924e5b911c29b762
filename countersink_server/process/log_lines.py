"""Writes log records as lines, for people or as JSON with the field names of Cloud Logging. No line has a key in it."""

import json
import logging
import re
from datetime import UTC, datetime
from typing import Any, Final

from shared.runtime.request_context import REQUEST

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_SECRET: Final = re.compile(r"(c[sp]k_[A-Za-z0-9._-]{1,100}_)[0-9a-f]{8,}|(?<=://)[^/@\s]*@")
"""The secret of a key, and the user and password in a URL."""
_CLOUD: Final = "logging.googleapis.com"


def without_secrets(text: str) -> str:
    return _SECRET.sub(lambda found: f"{found[1] or ''}…" + ("" if found[1] else "@"), text)


class TextLines(logging.Formatter):
    """A line for people."""

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))


class JsonLines(logging.Formatter):
    """A line for programs: one JSON object."""

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
