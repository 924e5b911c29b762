"""Alertmanager reads its file, which sends each alert to those whom it concerns; Grafana can read the dashboard, and
Prometheus its queries.
"""

import itertools
import json
import re
from pathlib import Path
from typing import Any, Final

import yaml

from tests.deploy.programs import refuses, run
from tests.meta.checkout import ROOT
from tests.needs import program

ALERTMANAGER: Final = ROOT / "deploy" / "prometheus" / "alertmanager.yml"
RULES: Final = yaml.safe_load((ALERTMANAGER.parent / "rules.yml").read_text())
ALERTS: Final[list[dict[str, Any]]] = [one for group in RULES["groups"] for one in group["rules"] if "alert" in one]
RECEIVERS: Final = {"critical": "on-call", "warning": "tickets"}
GRAFANA: Final = ROOT / "deploy" / "grafana" / "countersink.json"
DASHBOARD: Final[dict[str, Any]] = json.loads(GRAFANA.read_text())
PANELS: Final = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
WIDTH: Final = 24


def test_amtool_reads_it_and_refuses_a_wrong_one(tmp_path: Path) -> None:
    run(program("amtool"), "check-config", ALERTMANAGER)
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(ALERTMANAGER.read_text().replace("receiver: on-call", "receiver: nobody"))
    assert refuses(program("amtool"), "check-config", wrong)


def test_each_alert_goes_to_whom_it_concerns() -> None:
    assert {one["labels"]["severity"] for one in ALERTS} == RECEIVERS.keys()
    for severity, receiver in RECEIVERS.items():
        for name in [one["alert"] for one in ALERTS if one["labels"]["severity"] == severity]:
            labels = [f"alertname={name}", f"severity={severity}"]
            where = ("config", "routes", "test", f"--config.file={ALERTMANAGER}")
            assert run(program("amtool"), *where, *labels).strip() == receiver


def test_prometheus_reads_each_query(tmp_path: Path) -> None:
    queries = [target["expr"] for panel in PANELS for target in panel["targets"]]
    assert len(queries) > 20
    rules = [
        {"record": f"query:{number}", "expr": query.replace("$__rate_interval", "1m")}
        for number, query in enumerate(queries)
    ]
    file = tmp_path / "rules.yml"
    promtool = (program("promtool"), "check", "rules", file)
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    run(*promtool)
    file.write_text(file.read_text().replace("sum(", "sum((", 1))
    assert refuses(*promtool)
    text = GRAFANA.read_text()
    assert not re.search(r"\$(?!__rate_interval|\{source\})", text), "an unknown variable"


def test_panels_have_titles_and_places_of_their_own() -> None:
    titles = [panel["title"] for panel in DASHBOARD["panels"]]
    assert len({*titles}) == len(titles)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(titles)
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    assert all(one["x"] + one["w"] <= WIDTH for one in places)
    for one, other in itertools.combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above
    for panel in PANELS:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${source}"}
        assert panel["targets"]
