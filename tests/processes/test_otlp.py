"""Traces and metrics that processes export over OTLP: when there are any, that metrics are those that /metrics shows,
and what happens where they can't be exported.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, ResourceMetrics

from shared.model.errors import SettingsError
from shared.runtime.otlp import session_of
from shared.runtime.traces import Trace
from shared.wiring.process import metrics_pusher_of, traces_of
from tests.http.keys import keys_file
from tests.processes.collector import Collector, Seen
from tests.processes.harness import Processes, count, processes
from tests.world.scraping import Scrape, Series, scrape, until

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
ACCEPTED: Final = "countersink_accepted_increments_total"
CLIENT = Trace("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", sampled=True)
SAMPLED = {"traceparent": CLIENT.traceparent()}
NOWHERE = "http://127.0.0.1:9"
SERVES = """
import sys
from countersink_server.cli.main import main
if sys.argv.pop(1) == "without":
    sys.modules["opentelemetry.exporter"] = None
try:
    main()
finally:
    print([name for name in sys.modules if name.startswith("opentelemetry")], flush=True)
"""
"""A service that prints at its end what it imported of OpenTelemetry. `without`: as if that were not installed."""


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Processes]:
    async with processes(tmp_path, tmp_path / "log", OTEL_BSP_SCHEDULE_DELAY="50") as it:
        yield it


async def post(url: str, **headers: str) -> int:
    async with aiohttp.ClientSession(headers=headers) as session, session.post(f"{url}/v1/counters/a") as response:
        return response.status


def serve(data: Path, how: str, **settings: str) -> tuple[int, str, str, int]:
    """The exit code of a service that answered one traced request, its output, its log, and the answer."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("COUNTERSINK_", "OTEL_"))}
    arguments = [sys.executable, "-c", SERVES, how, "up", "--port", "0", "--data", str(data)]
    pipe = subprocess.PIPE
    with subprocess.Popen(arguments, env=kept | settings, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout
        line = process.stdout.readline()
        status = 0
        if line:  # else it ends by itself
            status = asyncio.run(post(line.split()[4].rstrip(","), **SAMPLED))
            process.send_signal(signal.SIGTERM)
        output, log = process.communicate(timeout=60)
    return process.returncode, output, log, status


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, str]], None]:
    """Sets these variables of OpenTelemetry, and no others."""

    def set_them(settings: Mapping[str, str]) -> None:
        for name in [name for name in os.environ if name.startswith("OTEL_")]:
            monkeypatch.delenv(name)
        for name, value in settings.items():
            monkeypatch.setenv(name, value)

    return set_them


def pusher_of(version: str) -> object:
    return metrics_pusher_of(version, 0.0)


def test_without_an_endpoint_nothing_of_opentelemetry_is_imported(tmp_path: Path) -> None:
    code, output, log, status = serve(tmp_path, "with")
    assert (code, status, log) == (0, 202, "")
    assert output.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "settings",
    [
        {ENDPOINT: ""},
        {ENDPOINT: NOWHERE, "OTEL_SDK_DISABLED": "true"},
        {ENDPOINT: NOWHERE, "OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"},
    ],
)
def test_nor_is_it_where_nothing_is_to_be_exported(
    settings: dict[str, str],
    variables: Callable[[Mapping[str, str]], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    variables(settings)
    monkeypatch.setitem(sys.modules, "shared.runtime.otlp", None)  # an import would fail, and the log would say so
    assert (traces_of("1"), pusher_of("1"), caplog.messages) == (None, None, [])


def test_with_an_endpoint_it_is_imported(tmp_path: Path) -> None:
    code, output, _, status = serve(tmp_path, "with", **{ENDPOINT: NOWHERE})
    assert (code, status) == (0, 202)
    assert "opentelemetry.sdk.trace" in output.splitlines()[-1]


def test_it_counts_where_the_extra_is_missing(tmp_path: Path) -> None:
    code, output, log, status = serve(tmp_path, "without", **{ENDPOINT: NOWHERE})
    assert (code, status) == (0, 202)
    assert "opentelemetry.sdk" not in output.splitlines()[-1]
    spans, metrics = log.splitlines()
    assert ("no spans are exported" in spans, "no metrics are exported" in metrics) == (True, True)
    for said in (spans, metrics):
        assert "install Countersink with its extra 'otel' (in a checkout: make install EXTRAS=otel)" in said


def test_nothing_is_exported_by_a_protocol_that_is_unknown(
    variables: Callable[[Mapping[str, str]], None], caplog: pytest.LogCaptureFixture
) -> None:
    variables({ENDPOINT: NOWHERE, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert (traces_of("1"), pusher_of("1")) == (None, None)
    spans, metrics = caplog.messages
    assert ("no spans are exported" in spans, "no metrics are exported" in metrics) == (True, True)
    assert all("OTEL_EXPORTER_OTLP_PROTOCOL is grpc" in said for said in (spans, metrics))


def test_a_wrong_variable_ends_the_start(tmp_path: Path) -> None:
    code, _, log, _ = serve(tmp_path, "with", **{ENDPOINT: "127.0.0.1:4318"})
    assert code == 1
    (line,) = log.splitlines()
    assert ENDPOINT in line


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (traces_of, {"OTEL_BSP_MAX_QUEUE_SIZE": "0"}),
        (pusher_of, {"OTEL_METRIC_EXPORT_INTERVAL": "0"}),
        (pusher_of, {"OTEL_METRIC_EXPORT_INTERVAL": "1 min"}),
    ],
)
def test_so_does_a_wrong_number(
    make: Callable[[str], object], settings: dict[str, str], variables: Callable[[Mapping[str, str]], None]
) -> None:
    variables({ENDPOINT: NOWHERE, **settings})
    with pytest.raises(SettingsError, match="OTEL_"):
        make("1")


async def test_a_collector_that_is_away_holds_nothing_up(started: Processes, tmp_path: Path) -> None:
    running = await started.start("up", "--port", "0", **{ENDPOINT: NOWHERE})
    assert await post(running.url, **SAMPLED) == 202
    await until(lambda: "exporting spans" in (tmp_path / "log").read_text())
    begun = asyncio.get_running_loop().time()
    assert await running.end(signal.SIGTERM) == 0
    assert asyncio.get_running_loop().time() - begun < 10


async def test_what_the_door_refuses_has_no_span(started: Processes, collector: Collector, tmp_path: Path) -> None:
    _, keys = keys_file(tmp_path, all={})
    settings = collector.settings | {"COUNTERSINK_KEYS_FILE": str(tmp_path / "keys.json")}
    running = await started.start("up", "--port", "0", **settings)
    assert await post(running.url, **SAMPLED) == 401
    assert await post(running.url, **SAMPLED, Authorization=f"Bearer {keys['all']}") == 202
    assert await running.end(signal.SIGTERM) == 0
    assert [one.attributes["http.response.status_code"] for one in collector.named("POST /v1/counters/{name}")] == [202]


async def test_what_could_not_be_published_says_so(started: Processes, collector: Collector) -> None:
    """Nothing is applied, and there is little room."""
    settings = collector.settings | {"COUNTERSINK_MAX_PENDING_BYTES": "1024"}
    running = await started.start("ingest", "--port", "0", **settings)
    async with asyncio.timeout(60):
        while await post(running.url, **SAMPLED) == 202:
            pass
    assert await running.end(signal.SIGTERM) == 0
    assert [one.failed for one in collector.spans if one.failed] == [True, True]
    request, envelope = _requests(collector)[-1], collector.named("publish envelope")[-1]
    assert (request.attributes["http.response.status_code"], request.attributes["error.type"]) == (503, "503")
    assert envelope.attributes["error.type"] == "OverloadedError"


async def test_each_worker_exports(started: Processes, collector: Collector) -> None:
    running = await started.start("ingest", "--workers", "2", "--port", "0", **collector.settings)
    workers: set[str] = set()
    async with asyncio.timeout(60):
        while workers != {"0", "1"}:  # each connection goes to either of them
            async with aiohttp.ClientSession(headers=SAMPLED) as session:
                async with session.post(f"{running.url}/v1/counters/a") as response:
                    assert response.status == 202
                async with session.get(f"{running.url}/metrics", headers={"traceparent": ""}) as response:
                    shown = Scrape(await response.text()).all(ACCEPTED)
            workers = {labels["worker"] for labels, value in shown if value}
    assert await running.end(signal.SIGTERM) == 0
    accepted = len(_requests(collector))
    assert sum(len(one.links) for one in collector.named("publish envelope")) == accepted >= 2


async def test_the_sampler_of_the_process_decides(started: Processes, collector: Collector) -> None:
    running = await started.start("up", "--port", "0", **collector.settings, OTEL_TRACES_SAMPLER="always_off")
    assert await post(running.url, **SAMPLED) == 202
    assert await running.end(signal.SIGTERM) == 0
    assert collector.spans == []


async def test_every_way_to_count_links_its_request(started: Processes, collector: Collector) -> None:
    """A request whose increments go into several envelopes is linked from each of them."""
    settings = collector.settings | {"COUNTERSINK_PIXELS": "mail:"}
    running = await started.start("up", "--port", "0", **settings)
    many = json.dumps({"counters": {f"n{number}": 1 for number in range(2_500)}})
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"counter": "a"}}
    ways = [
        ("POST", "/v1/counters/a", json.dumps({"id": "1"}), 1),
        ("POST", "/v1/counters/a?ack=none", "", 1),
        ("POST", "/v1/increments", many, 3),
        ("POST", "/v1/events", json.dumps(event), 1),
        ("GET", "/v1/counters/mail:a/pixel.gif", "", 1),
        ("GET", "/v1/counters/a", "", 0),
    ]
    types = {"/v1/events": {"Content-Type": "application/cloudevents+json"}}
    async with aiohttp.ClientSession(headers=SAMPLED) as session:
        for method, target, body, _ in ways:
            async with session.request(
                method, running.url + target, data=body or None, headers=types.get(target)
            ) as response:
                assert response.status in {200, 202}, await response.text()
    assert await running.end(signal.SIGTERM) == 0
    for request, (_, target, _, envelopes) in zip(_requests(collector), ways, strict=True):
        linked = [one for one in collector.named("publish envelope") if request.own in one.links]
        assert len(linked) == envelopes, target


def _requests(collector: Collector) -> list[Seen]:
    return [one for one in collector.spans if one.kind == "SERVER"]


async def test_log_lines_of_a_request_name_its_span(started: Processes, collector: Collector, tmp_path: Path) -> None:
    settings = {"COUNTERSINK_LOG_FORMAT": "json", "COUNTERSINK_LOG_REQUESTS": "10"}
    running = await started.start("up", "--port", "0", **collector.settings, **settings)
    assert await post(running.url, **SAMPLED) == 202
    assert await running.end(signal.SIGTERM) == 0
    (line,) = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    (request,) = _requests(collector)
    assert line["logging.googleapis.com/trace"] == CLIENT.trace
    assert line["logging.googleapis.com/spanId"] == request.own.span


HOUR: Final = {"OTEL_METRIC_EXPORT_INTERVAL": "3600000"}
CUMULATIVE: Final = AggregationTemporality.Value("AGGREGATION_TEMPORALITY_CUMULATIVE")
INGEST: Final = ("ingest", "--port", "0")


def pushed(one: ResourceMetrics) -> dict[Series, float]:
    """What was pushed, as Prometheus names it."""
    found: dict[Series, float] = {}
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
    there = (await scrape(running.url)).values
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
