"""Pushes all metrics over OTLP, for where nobody scrapes them. Import it only where that is configured."""

import logging
import os
import time
from collections.abc import Iterable, Iterator
from itertools import pairwise
from math import isnan
from threading import Thread
from typing import Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
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
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import Metric as Shown

from shared.runtime.instruments import BUCKETS
from shared.runtime.metrics import BOARD
from shared.runtime.otlp import LAST_EXPORT, resource_of, session_of

_log = logging.getLogger(__name__)

INTERVAL: Final = "OTEL_METRIC_EXPORT_INTERVAL"
"""The variable of OpenTelemetry for the milliseconds between two pushes."""
_BUCKETS: Final = len(BUCKETS) + 1
_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE


class OtlpMetrics:
    """See `MetricsPusher`. Names and labels are those of /metrics, so that the same queries work."""

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
