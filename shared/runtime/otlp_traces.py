"""Makes spans with OpenTelemetry, and exports them over OTLP. Import it only where traces are configured."""

from collections.abc import Mapping
from threading import Thread
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from shared.runtime.otlp import LAST_EXPORT, resource_of, session_of
from shared.runtime.traces import SpanLinks, Trace

FIRST_ERROR: Final = 500
"""The first status code that is our fault."""
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"})
"""Other methods are answered 405. They may be long."""


class OtlpSpan:
    """See `BegunSpan`."""

    def __init__(self, span: Span) -> None:
        self._span = span
        context = span.get_span_context()
        self.trace = Trace(f"{context.trace_id:032x}", f"{context.span_id:016x}", context.trace_flags.sampled)

    def end(self, error: BaseException | None = None, status: int = 0) -> None:
        """Only the class of an error is recorded: its text may name counters."""
        if status:
            self._span.set_attribute("http.response.status_code", status)
        if error is not None or status >= FIRST_ERROR:
            self._span.set_attribute("error.type", type(error).__name__ if error is not None else str(status))
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


class OtlpTraces:
    """See `Traces`. The environment variables of OpenTelemetry configure it."""

    def __init__(self, version: str, endpoint: str) -> None:
        """Raises `ValueError` if a variable is wrong."""
        self._provider = TracerProvider(resource=resource_of(version), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(session=session_of(endpoint))))
        self._tracer = self._provider.get_tracer("countersink", version)

    def request(self, parent: Trace, method: str, route: str) -> OtlpSpan:
        known = method if method in METHODS else "_OTHER"
        attributes = {"http.request.method": known, "http.route": route.rpartition(" ")[2]}
        return self._begin(route, SpanKind.SERVER, parent, SpanLinks(), attributes)

    def envelope(self, links: SpanLinks, increments: int) -> OtlpSpan:
        return self._begin_linked("publish envelope", SpanKind.PRODUCER, links, {"countersink.increments": increments})

    def commit(self, links: SpanLinks, envelopes: int) -> OtlpSpan:
        return self._begin_linked("commit", SpanKind.CONSUMER, links, {"countersink.envelopes": envelopes})

    def close(self) -> None:
        closing = Thread(target=self._provider.shutdown, name="export the last spans", daemon=True)
        closing.start()
        closing.join(LAST_EXPORT)

    def _begin_linked(self, name: str, kind: SpanKind, links: SpanLinks, attributes: Mapping[str, int]) -> OtlpSpan:
        """Its parent is the first of the links, so that a trace of one request goes on to its commit."""
        counted = {**attributes, "countersink.links_left_out": links.left_out}
        return self._begin(name, kind, next(iter(links.spans)), links, counted)

    def _begin(
        self, name: str, kind: SpanKind, parent: Trace, links: SpanLinks, attributes: Mapping[str, str | int]
    ) -> OtlpSpan:
        return OtlpSpan(
            self._tracer.start_span(
                name,
                set_span_in_context(NonRecordingSpan(_context_of(parent, kind))),
                kind,
                attributes,
                [Link(_context_of(span, kind)) for span in links.spans],
            )
        )


def _context_of(span: Trace, kind: SpanKind) -> SpanContext:
    """`kind`: of the span that refers to it. An envelope refers to requests of its own process."""
    flags, remote = TraceFlags(span.sampled), kind is not SpanKind.PRODUCER
    return SpanContext(int(span.trace, 16), int(span.span, 16), is_remote=remote, trace_flags=flags)
