"""Knows which request is being answered, so that the lines that are logged meanwhile can name it."""

import re
import secrets
from collections.abc import Mapping
from contextvars import ContextVar
from functools import cached_property
from typing import Final

from shared.runtime.traces import Trace, trace_of

_ID: Final = re.compile(r"[\w.:/+=-]{1,128}", re.ASCII)
_CLOUD: Final = re.compile(r"(?!0{32})([0-9a-f]{32})(?:/([0-9]{1,20}))?(?:;o=([01]))?")


class RequestContext:
    """What the headers of a request say of it. They are looked at only if a line is logged."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers
        self.span: Trace | None = None
        """Its own span, if it has one."""

    @cached_property
    def id(self) -> str:
        """The id that the client or a proxy chose, or one of our own."""
        told = self._headers.get("X-Request-Id", "")
        return told if _ID.fullmatch(told) else secrets.token_hex(8)

    @cached_property
    def trace(self) -> Trace | None:
        """The span of the client that it belongs to."""
        if (trace := trace_of(self._headers.get("traceparent", ""))) is not None:
            return trace
        if found := _CLOUD.fullmatch(self._headers.get("X-Cloud-Trace-Context", "")):
            return Trace(found[1], f"{int(found[2] or 0) % 2**64:016x}", found[3] == "1")
        return None


REQUEST: Final[ContextVar[RequestContext | None]] = ContextVar("request", default=None)
