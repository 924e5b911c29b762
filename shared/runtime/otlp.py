"""Exports spans and metrics with OpenTelemetry over OTLP. Import it only where that is configured."""

import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from math import isnan
from threading import Thread
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
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
from prometheus_client import Metric as Shown

from shared.runtime.instruments import BUCKETS
from shared.runtime.metrics import BOARD
from shared.runtime.traces import SpanLinks, Trace

LAST_EXPORT: Final = 2.0
"""Seconds at the end of the process for what has not been exported."""
_GOOGLE: Final = ".googleapis.com"
_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"


def resource_of(version: str) -> Resource:
    """Who this process is, as the environment variables of OpenTelemetry describe it."""
    about = {"service.version": version}
    if not os.environ.get("OTEL_SERVICE_NAME") and "service.name" not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        about["service.name"] = "countersink"
    resource = Resource.create(about)
    if "service.instance.id" not in resource.attributes:  # older versions of OpenTelemetry make none
        resource = resource.merge(Resource({"service.instance.id": str(uuid4())}))
    return resource


def session_of(endpoint: str) -> Any:
    """A session of `requests` with Google's credentials, if the endpoint is a Google service; else None. Raises
    `ValueError` if there are no credentials, `ImportError` if the extra is missing.
    """
    if not (urlsplit(endpoint).hostname or "").endswith(_GOOGLE):
        return None
    from google.auth import default, exceptions  # noqa: PLC0415 (only then)
    from google.auth.transport.requests import AuthorizedSession  # noqa: PLC0415

    try:
        credentials, _ = default(scopes=[_SCOPE])
    except exceptions.GoogleAuthError as error:
        raise ValueError(f"there are no credentials for {endpoint}: {error}") from None
    return AuthorizedSession(credentials)


# Spans.


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
        """Its parent is the first of the links, so that a trace of one request continues to its commit."""
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


# Metrics, for where nobody scrapes them.


_log = logging.getLogger(__name__)

INTERVAL: Final = "OTEL_METRIC_EXPORT_INTERVAL"
"""The variable of OpenTelemetry for the milliseconds between two pushes."""
_BUCKETS: Final = len(BUCKETS) + 1
_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE


class OtlpMetrics:
    """Pushes all metrics to a collector. Names and labels are those of /metrics, so that the same queries work."""

    def __init__(self, version: str, endpoint: str, since: float) -> None:
        """`since`: when counting began, in seconds since 1970. Raises `ValueError` if a variable is wrong."""
        self.interval = int(os.environ.get(INTERVAL) or 60_000) / 1_000
        if self.interval <= 0:
            raise ValueError(f"{INTERVAL} must be a number of milliseconds above 0")
        self._exporter = OTLPMetricExporter(session=session_of(endpoint))
        self._resource = resource_of(version)
        self._scope = InstrumentationScope("countersink", version)
        self._since = int((time.time() if isnan(since) else since) * 1e9)
        self._export: Thread | None = None

    async def push(self) -> None:
        """Begin to push what they are now, unless the last push still runs."""
        if self._export is not None and self._export.is_alive():  # the collector is slow or away
            return
        try:
            metrics = [*self._metrics(BOARD.collect(), time.time_ns())]
            data = MetricsData([ResourceMetrics(self._resource, [ScopeMetrics(self._scope, metrics, "")], "")])
        except Exception:  # counting goes on without metrics
            _log.exception("metrics can't be pushed because of a bug in Countersink")
            return
        self._export = Thread(target=self._exporter.export, args=(data,), name="push metrics", daemon=True)
        self._export.start()

    def close(self) -> None:
        if self._export is not None:
            self._export.join(LAST_EXPORT)

    def _metrics(self, shown: Iterable[Shown], now: int) -> Iterator[Metric]:
        for one in shown:
            if one.samples and one.type == "histogram":
                yield Metric(one.name, one.documentation, "", Histogram([*self._histograms(one, now)], _CUMULATIVE))
            elif one.samples:
                points = [NumberDataPoint(at.labels, self._since, now, at.value) for at in one.samples]
                data = Sum(points, _CUMULATIVE, is_monotonic=True) if one.type == "counter" else Gauge(points)
                yield Metric(one.samples[0].name, one.documentation, "", data)

    def _histograms(self, shown: Shown, now: int) -> Iterator[HistogramDataPoint]:
        """Each series has its buckets, which include those below, then the count and the sum."""
        for begin in range(0, len(shown.samples), _BUCKETS + 2):
            *buckets, count, total = shown.samples[begin : begin + _BUCKETS + 2]
            counts = [int(upper - lower) for lower, upper in pairwise([0.0, *(one.value for one in buckets)])]
            yield HistogramDataPoint(
                count.labels,
                self._since,
                now,
                count=int(count.value),
                sum=total.value,
                bucket_counts=counts,
                explicit_bounds=BUCKETS,
                min=None,  # type: ignore[arg-type] # OTLP may lack it, and OpenTelemetry leaves out what is None
                max=None,  # type: ignore[arg-type]
            )
