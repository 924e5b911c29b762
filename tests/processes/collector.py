"""A collector of OpenTelemetry: keeps the spans and the metrics that processes export to it over HTTP."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import ResourceMetrics
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from shared.runtime.traces import Trace
from tests.world.serving import serving

WITHIN: Final = 120.0


@dataclass(frozen=True)
class Seen:
    """A span as it was exported. All that are exported are sampled."""

    name: str
    kind: str
    own: Trace
    parent: str
    """The id of the span that it belongs to."""
    links: Sequence[Trace]
    attributes: dict[str, str | int]
    failed: bool
    service: str


@dataclass
class Collector:
    url: str = ""
    spans: list[Seen] = field(default_factory=list)
    pushes: list[ResourceMetrics] = field(default_factory=list)
    """Of metrics, each of one process."""

    @property
    def settings(self) -> dict[str, str]:
        """The environment of a process that exports to it, and does so at once."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}

    def named(self, name: str) -> list[Seen]:
        return [span for span in self.spans if span.name == name]

    async def until(self, done: Callable[[], object]) -> None:
        async with asyncio.timeout(WITHIN):
            while not done():
                await asyncio.sleep(0.02)

    async def take(self, request: web.Request) -> web.Response:
        said = ExportTraceServiceRequest.FromString(await request.read())
        for process in said.resource_spans:
            (service,) = [one.value.string_value for one in process.resource.attributes if one.key == "service.name"]
            self.spans += [_seen(span, service) for scope in process.scope_spans for span in scope.spans]
        body = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=body, content_type="application/x-protobuf")

    async def take_metrics(self, request: web.Request) -> web.Response:
        self.pushes += ExportMetricsServiceRequest.FromString(await request.read()).resource_metrics
        body = ExportMetricsServiceResponse().SerializeToString()
        return web.Response(body=body, content_type="application/x-protobuf")


def _seen(span: Span, service: str) -> Seen:
    return Seen(
        span.name,
        Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        Trace(span.trace_id.hex(), span.span_id.hex(), sampled=True),
        span.parent_span_id.hex(),
        [Trace(link.trace_id.hex(), link.span_id.hex(), sampled=True) for link in span.links],
        {one.key: one.value.string_value or one.value.int_value for one in span.attributes},
        span.status.code == Status.STATUS_CODE_ERROR,
        service,
    )


@contextlib.asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    """A collector on a port of its own."""
    collector = Collector()
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/traces", collector.take)
    app.router.add_post("/v1/metrics", collector.take_metrics)
    async with serving(web.AppRunner(app)) as port:
        collector.url = f"http://127.0.0.1:{port}"
        yield collector
