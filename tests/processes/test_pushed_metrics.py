"""Metrics that processes push over OTLP: the same as /metrics shows."""

import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, ResourceMetrics
from prometheus_client.parser import text_string_to_metric_families

from shared.runtime.otlp import session_of
from tests.processes.collector import Collector
from tests.processes.harness import Processes, count, processes

HOUR: Final = {"OTEL_METRIC_EXPORT_INTERVAL": "3600000"}
CUMULATIVE: Final = AggregationTemporality.Value("AGGREGATION_TEMPORALITY_CUMULATIVE")
INGEST: Final = ("ingest", "--port", "0")
ACCEPTED: Final = "countersink_accepted_increments_total"
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Processes]:
    async with processes(tmp_path, tmp_path / "log") as it:
        yield it


def pushed(one: ResourceMetrics) -> Series:
    """What was pushed, as Prometheus names it."""
    found: Series = {}
    (scope,) = one.scope_metrics
    for metric in scope.metrics:
        kind = metric.WhichOneof("data")
        assert kind in {"gauge", "sum", "histogram"}
        assert kind == "gauge" or getattr(metric, kind).aggregation_temporality == CUMULATIVE
        for point in getattr(metric, kind).data_points:
            assert (0 < point.start_time_unix_nano <= point.time_unix_nano) is (kind != "gauge")
            labels = frozenset((at.key, at.value.string_value) for at in point.attributes)
            if kind != "histogram":
                assert kind == "gauge" or metric.sum.is_monotonic
                found[metric.name, labels] = point.as_double
                continue
            assert (point.HasField("min"), sum(point.bucket_counts)) == (False, point.count)
            found |= {(f"{metric.name}_count", labels): point.count, (f"{metric.name}_sum", labels): point.sum}
            below = 0
            for bound, more in zip([*map(str, point.explicit_bounds), "+Inf"], point.bucket_counts, strict=True):
                below += more
                found[f"{metric.name}_bucket", labels | {("le", bound)}] = below
    return found


def shown(text: str) -> Series:
    """What /metrics shows."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def metrics_of(url: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as response:
        return await response.text()


def varies(name: str) -> bool:
    """Whether it changes from one look to the next, or with the request for /metrics."""
    return name.startswith(("process_", "countersink_request", "countersink_disk", "countersink_flush")) or any(
        part in name for part in ("busy", "pending", "held", "pulled", "waiting", "applied", "acknowledge")
    )


async def test_it_pushes_what_metrics_shows(started: Processes, collector: Collector) -> None:
    settings = {**collector.settings, "OTEL_METRIC_EXPORT_INTERVAL": "50", "OTEL_RESOURCE_ATTRIBUTES": "location=here"}
    running = await started.start("up", "--port", "0", **settings)
    await count(running.url, 3)
    wanted = (ACCEPTED, frozenset[tuple[str, str]]())
    await collector.until(lambda: collector.pushes and pushed(collector.pushes[-1])[wanted] == 3)
    there = shown(await metrics_of(running.url))
    pushes = len(collector.pushes)
    await collector.until(lambda: len(collector.pushes) > pushes + 1)
    last = pushed(collector.pushes[-1])
    assert last.keys() == there.keys() | {key for key in last if varies(key[0])}
    assert {key: value for key, value in last.items() if not varies(key[0])} == {
        key: value for key, value in there.items() if not varies(key[0])
    }
    about = {one.key: one.value.string_value for one in collector.pushes[-1].resource.attributes}
    assert (about["service.name"], about["location"]) == ("countersink", "here")
    assert len({one.resource.SerializeToString() for one in collector.pushes}) == 1
    assert about["service.instance.id"]


@pytest.mark.parametrize("command", [INGEST, (*INGEST, "--workers", "2"), ("flusher",)])
async def test_the_last_push_is_that_of_the_end(
    started: Processes, collector: Collector, command: tuple[str, ...]
) -> None:
    """Of several workers, the first one pushes what all of them counted."""
    running = await started.start(*command, **collector.settings, **HOUR)
    if command[0] == "ingest":
        await count(running.url, 3)
    assert await running.end(signal.SIGTERM) == 0
    (last,) = map(pushed, collector.pushes)
    workers = {dict(labels).get("worker") for name, labels in last if name == ACCEPTED}
    assert workers == ({"0", "1"} if "--workers" in command else {None})
    if command[0] == "ingest" and "--workers" not in command:
        assert last[ACCEPTED, frozenset()] == 3


def test_a_service_of_google_gets_its_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    account: dict[str, Any] = {
        "type": "service_account",
        "client_email": "ingest@my-project.iam.gserviceaccount.com",
        "token_uri": "https://oauth2.googleapis.com/token",
        "private_key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
    }
    file = tmp_path / "account.json"
    file.write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    session = session_of("https://telemetry.googleapis.com/v1/metrics")
    assert session.credentials.service_account_email == account["client_email"]
    for other in ("http://127.0.0.1:4318", "https://telemetry.googleapis.com.example", "https://example"):
        assert session_of(other) is None
    file.unlink()
    with pytest.raises(ValueError, match=r"no credentials for https://telemetry"):
        session_of("https://telemetry.googleapis.com")
