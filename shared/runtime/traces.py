"""Traces: how a request names its place in one, the interface that makes spans, and which request is being
answered.
"""

import re
import secrets
from collections.abc import Mapping
from contextvars import ContextVar
from functools import cached_property
from typing import Final, NamedTuple, Protocol

MOST_LINKS: Final = 128
"""The most links of one span. OpenTelemetry has the same limit by default."""
_TRACEPARENT: Final = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")


class Trace(NamedTuple):
    """A span in a trace, as W3C and Google write it."""

    trace: str
    span: str
    sampled: bool

    def traceparent(self) -> str:
        return f"00-{self.trace}-{self.span}-{self.sampled:02x}"


def trace_of(traceparent: str) -> Trace | None:
    """What a `traceparent` says; None if it is malformed."""
    found = _TRACEPARENT.fullmatch(traceparent)
    return None if found is None else Trace(found[1], found[2], bool(int(found[3], 16) & 1))


def sampled_in(traceparent: str) -> Trace | None:
    """As `trace_of`, but only if somebody records the trace."""
    trace = trace_of(traceparent) if traceparent else None
    return trace if trace is not None and trace.sampled else None


class SpanLinks:
    """The spans that an envelope or a commit was made from: the first ones, and how many more there were."""

    __slots__ = ("left_out", "spans")

    def __init__(self) -> None:
        self.spans: dict[Trace, None] = {}
        self.left_out = 0

    def add(self, span: Trace) -> None:
        if span in self.spans:
            return
        if len(self.spans) < MOST_LINKS:
            self.spans[span] = None
        else:
            self.left_out += 1


class BegunSpan(Protocol):
    trace: Trace
    """Where it is. It is not sampled if the sampler of this process decided so."""

    def end(self, error: BaseException | None = None, status: int = 0) -> None:
        """`status`: the status code that a request is answered with."""
        ...


class Traces(Protocol):
    """Begins spans. Those that have ended are exported in the background; if too many wait, some are dropped."""

    def request(self, parent: Trace, method: str, route: str) -> BegunSpan: ...

    def envelope(self, links: SpanLinks, increments: int) -> BegunSpan:
        """The publish of an envelope. `links`: the spans of requests in it, at least one."""
        ...

    def commit(self, links: SpanLinks, envelopes: int) -> BegunSpan:
        """A commit of a flusher. `links`: the spans of envelopes in it, at least one."""
        ...

    def close(self) -> None:
        """Export what has ended, for a short time at most."""
        ...


# Knows which request is being answered, so that the lines that are logged meanwhile can name it.


_ID: Final = re.compile(r"[\w.:/+=-]{1,128}", re.ASCII)
_CLOUD: Final = re.compile(r"(?!0{32})([0-9a-f]{32})(?:/([0-9]{1,20}))?(?:;o=([01]))?")


class RequestContext:
    """What the headers of a request say of it. They are looked at only if a line is logged."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers
        self.span: Trace | None = None

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
