"""The dashboard is one that Grafana can read, and Prometheus can read its queries."""

import itertools
import json
import re
from pathlib import Path
from typing import Any, Final

import yaml

from tests.deploy.programs import refuses, run
from tests.meta.checkout import ROOT
from tests.needs import program

FILE: Final = ROOT / "deploy" / "grafana" / "countersink.json"
DASHBOARD: Final[dict[str, Any]] = json.loads(FILE.read_text())
PANELS: Final = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
WIDTH: Final = 24


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
    text = FILE.read_text()
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
