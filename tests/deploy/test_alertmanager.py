"""Alertmanager reads its file, which sends each alert to those whom it concerns."""

from pathlib import Path
from typing import Any, Final

import yaml

from tests.deploy.programs import refuses, run
from tests.meta.checkout import ROOT
from tests.needs import program

FILE: Final = ROOT / "deploy" / "prometheus" / "alertmanager.yml"
RULES: Final = yaml.safe_load((FILE.parent / "rules.yml").read_text())
ALERTS: Final[list[dict[str, Any]]] = [one for group in RULES["groups"] for one in group["rules"] if "alert" in one]
RECEIVERS: Final = {"critical": "on-call", "warning": "tickets"}


def test_amtool_reads_it_and_refuses_a_wrong_one(tmp_path: Path) -> None:
    run(program("amtool"), "check-config", FILE)
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(FILE.read_text().replace("receiver: on-call", "receiver: nobody"))
    assert refuses(program("amtool"), "check-config", wrong)


def test_each_alert_goes_to_whom_it_concerns() -> None:
    assert {one["labels"]["severity"] for one in ALERTS} == RECEIVERS.keys()
    for severity, receiver in RECEIVERS.items():
        names = [one["alert"] for one in ALERTS if one["labels"]["severity"] == severity]
        for name in names:
            labels = [f"alertname={name}", f"severity={severity}"]
            where = ("config", "routes", "test", f"--config.file={FILE}")
            assert run(program("amtool"), *where, *labels).strip() == receiver
