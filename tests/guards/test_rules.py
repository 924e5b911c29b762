"""The rules for Prometheus name metrics that there are, and alert on those that say so."""

import re
from typing import Final

from shared import metrics
from tests.guards.checkout import ROOT

TEXT: Final = (ROOT / "deploy" / "prometheus-rules.yml").read_text()
NAME: Final = re.compile(r"(?<![\w:])countersink_\w+")
WATCHED: Final = ("countersink_pending_increments", "countersink_drift_increments")


def shown() -> set[str]:
    """As /metrics calls them."""
    return {*WATCHED, *(sample.name for metric in metrics.REGISTRY.collect() for sample in metric.samples)} | {
        f"{metric.name}_total" for metric in metrics.REGISTRY.collect() if metric.type == "counter"
    }


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


def test_what_is_recorded_is_used_by_its_name() -> None:
    recorded = {*re.findall(r"record: (\S+)", TEXT)}
    used = {*re.findall(r"countersink:\w+:\w+", TEXT)}
    assert recorded == used
