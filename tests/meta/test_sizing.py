"""The page on sizing has queries that Prometheus reads, and limits that the code has."""

import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from ingest.accept.drafts import MAX_ENTRIES
from ingest.parsing.parse import MOST_IN_BATCH
from shared.config.settings import Settings
from shared.model.words import MAX_DELTA, MAX_ID_BYTES, MAX_NAME_BYTES
from shared.wire.codec import MAX_ITEMS
from tests.meta.checkout import ROOT
from tests.meta.test_rules import NAME, shown
from tests.needs import program

PAGE: Final = (ROOT / "docs" / "sizing.md").read_text()
LIMITS: Final = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \| [^|]*\|$", PAGE.partition("## Limits")[2], re.MULTILINE))


def test_limits_are_those_of_the_code() -> None:
    defaults = Settings()
    assert {
        "name of a counter": f"{MAX_NAME_BYTES} bytes",
        "id of an increment, `Idempotency-Key`": f"{MAX_ID_BYTES:,} bytes",
        "increments in one request or message": f"{MAX_ITEMS:,}",
        "counters in a batch under an `Idempotency-Key`": f"{MAX_ENTRIES:,}",
        "body of a request": f"{defaults.max_body_bytes >> 20} MiB",
        "increments that wait in one ingest": f"{defaults.max_waiting:,}",
        "pending increments of a SQLite file": f"{defaults.max_pending_bytes >> 20} MiB",
        "connections of one ingest": f"{defaults.max_connections:,}",
    }.items() <= LIMITS.items()
    assert MAX_DELTA == 2**53 - 1
    assert MOST_IN_BATCH == MAX_ITEMS  # else the page needs a row for each


@pytest.mark.check  # Prometheus
def test_prometheus_reads_the_queries_of_the_goals(tmp_path: Path) -> None:
    queries = re.findall(r"^\| [^|]+ \| `([^`]*countersink_[^`]*)` \|$", PAGE, re.MULTILINE)
    assert len(queries) == 3
    assert {name.removesuffix("_count") for query in queries for name in NAME.findall(query)} <= {
        name.removesuffix("_count") for name in shown()
    }
    promtool = program("promtool")
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "goals", "rules": rules}]}))
    done = subprocess.run([promtool, "check", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    tests = tmp_path / "tests.yml"
    tests.write_text(yaml.safe_dump({"rule_files": [], "tests": [_healthy(queries), _ill(queries)]}))
    done = subprocess.run([promtool, "test", "rules", str(tests)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


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
