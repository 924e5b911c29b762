"""What Prometheus is asked: rules that name metrics that there are and alert on what says so, and queries of goals."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from shared.runtime import metrics
from tests.meta.checkout import ROOT
from tests.needs import program

FOLDER: Final = ROOT / "deploy" / "prometheus"
OF_GOOGLE: Final = [ROOT / "deploy" / folder / "alerts.tf" for folder in ("terraform", "cloudrun")]
TEXT: Final = (FOLDER / "rules.yml").read_text()
NAME: Final = re.compile(r"(?<![\w:])countersink_\w+")
REASON: Final = re.compile(r'metrics\.DEAD\.labels\("(.+?)"\)')


@cache
def started() -> list[Metric]:
    """What a process shows that has done nothing yet."""
    script = (
        "from prometheus_client import generate_latest; from shared.runtime.metrics import REGISTRY;"
        " print(generate_latest(REGISTRY).decode())"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    return [*text_string_to_metric_families(done.stdout)]


def shown() -> set[str]:
    """As /metrics calls them."""
    suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}
    return {f"{one.name}{end}" for one in metrics.REGISTRY.collect() for end in suffixes.get(one.type, [""])}


def test_each_metric_in_the_rules_is_there() -> None:
    named = {*NAME.findall(TEXT)}
    assert len(named) > 8
    assert named <= shown()
    assert "countersink_no_such" not in shown()


def test_what_is_to_be_alerted_on_is() -> None:
    alerting = {metric.name for metric in metrics.REGISTRY.collect() if "alert" in metric.documentation.lower()}
    assert alerting
    assert all(f"{name}_total" in TEXT or name in TEXT for name in alerting)
    assert "countersink_drift_increments" in TEXT


def test_what_is_to_be_alerted_on_is_there_before_it_happens() -> None:
    """An increase of a counter that was not there a moment ago is none. In a process of its own, as it starts."""
    alerting = [metric for metric in started() if metric.type == "counter" and "alert" in metric.documentation.lower()]
    assert alerting
    for metric in alerting:
        assert [sample.value for sample in metric.samples if sample.name.endswith("_total")], metric.name


def test_each_reason_of_a_dead_letter_is_there_from_the_start() -> None:
    used = {why for file in (ROOT / "flusher").rglob("*.py") for why in REASON.findall(file.read_text())}
    (dead,) = [metric for metric in started() if metric.name == "countersink_dead_lettered_messages"]
    assert used == {sample.labels["why"] for sample in dead.samples if sample.name.endswith("_total")}


def test_what_the_operations_page_says_is_watched_is() -> None:
    paragraph = (ROOT / "docs" / "operations.md").read_text().partition("## What to watch")[2].partition("\n## ")[0]
    named = {*NAME.findall(paragraph)}
    assert len(named) > 2
    assert named <= {*NAME.findall(TEXT)}


def test_what_is_recorded_is_used_by_its_name() -> None:
    recorded = {*re.findall(r"record: (\S+)", TEXT)}
    used = {*re.findall(r"countersink:\w+:\w+", TEXT)}
    assert recorded == used


def test_each_alert_has_its_runbook_and_says_so() -> None:
    text = (ROOT / "docs" / "runbooks.md").read_text()
    alerts = re.findall(r"alert: (\w+)", TEXT)
    of_google = {
        name
        for file in OF_GOOGLE
        for name in re.findall(
            r'^    (?:display_name = ")?(Countersink\w+)(?:"| = \{)$', file.read_text(), re.MULTILINE
        )
    }
    assert of_google
    assert sorted(re.findall(r"^## (\w+)$", text, re.MULTILINE)) == sorted({*alerts, *of_google})
    assert re.findall(r"runbook: \"docs/runbooks.md#(\w+)\"", TEXT) == [name.lower() for name in alerts]
    assert re.findall(r"summary: ", TEXT) == ["summary: "] * len(alerts)


def promtool(*command: str) -> None:
    done = subprocess.run([program("promtool"), *command], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.check  # Prometheus
def test_each_alert_fires_on_what_it_is_for_and_not_otherwise() -> None:
    """By Prometheus itself, on made-up series."""
    files = sorted(file.name for file in FOLDER.glob("*.test.yml"))
    text = "".join((FOLDER / name).read_text() for name in files)
    tried = re.findall(r"name: (\w+) (fires|does not fire)$", text, re.MULTILINE)
    assert sorted(tried) == sorted(
        (name, what) for name in re.findall(r"alert: (\w+)", TEXT) for what in ("fires", "does not fire")
    )
    promtool("check", "rules", "rules.yml")
    promtool("test", "rules", *files)


@pytest.mark.check  # Prometheus
def test_prometheus_reads_the_queries_of_the_goals(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "sizing.md").read_text()
    queries = re.findall(r"^\| [^|]+ \| `([^`]*countersink_[^`]*)` \|$", page, re.MULTILINE)
    assert len(queries) == 3
    assert {name.removesuffix("_count") for query in queries for name in NAME.findall(query)} <= {
        name.removesuffix("_count") for name in shown()
    }
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "goals", "rules": rules}]}))
    promtool("check", "rules", str(file))
    tests = tmp_path / "tests.yml"
    tests.write_text(yaml.safe_dump({"rule_files": [], "tests": [_healthy(queries), _ill(queries)]}))
    promtool("test", "rules", str(tests))


def _healthy(queries: list[str]) -> dict[str, Any]:
    """No request has ever failed, so there is no series of failures."""
    series = {
        'countersink_request_seconds_count{route="POST /v1/increments",status="202"}': "0+10x120",
        "countersink_oldest_pending_seconds": "1x120",
        "countersink_dead_lettered_increments_total": "0x120",
        "countersink_accepted_increments_total": "0+10x120",
    }
    return _case(series, dict.fromkeys(queries, 1.0))


def _ill(queries: list[str]) -> dict[str, Any]:
    """Half of all requests fail, increments wait for half an hour, and half of them become dead letters."""
    series = {
        'countersink_request_seconds_count{route="POST /v1/increments",status="202"}': "0+10x120",
        'countersink_request_seconds_count{route="POST /v1/increments",status="503"}': "0+10x120",
        "countersink_oldest_pending_seconds": "1800x120",
        "countersink_dead_lettered_increments_total": "0+5x120",
        "countersink_accepted_increments_total": "0+10x120",
    }
    return _case(series, dict(zip(queries, (0.5, 0.0, 0.5), strict=True)))


def _case(series: dict[str, str], expected: dict[str, float]) -> dict[str, Any]:
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": query, "eval_time": "2h", "exp_samples": [{"labels": "{}", "value": value}]}
            for query, value in expected.items()
        ],
    }
