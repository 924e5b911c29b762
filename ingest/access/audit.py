"""Logs what is done with the scope admin: who, what, from where."""

import logging
from typing import Final

from ingest.access.caller import Caller

AUDIT: Final = "countersink.audit"
"""The logger. Its lines are always written, whatever the log level, and never cut short."""
_log = logging.getLogger(AUDIT)
_log.setLevel(logging.INFO)


def note(caller: Caller, what: str) -> None:
    """Write a line before it is done. Without keys nobody is named, so there is none."""
    if caller.key is not None:
        _log.info("key %s from %s: %s", caller.key.id, caller.client or "a Unix socket", what)
