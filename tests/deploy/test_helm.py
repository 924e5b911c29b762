"""The Helm chart makes what kustomize makes for GKE, and says what it needs."""

import re
import subprocess
from typing import Any, Final

import pytest
import yaml

from tests.deploy.programs import run
from tests.deploy.test_kubernetes import OVERLAYS, WITH_SCHEMAS, Object, validate
from tests.meta.checkout import ROOT, releases
from tests.needs import program

CHART: Final = ROOT / "deploy" / "helm"
IMAGE: Final = "REGION-docker.pkg.dev/PROJECT/countersink/countersink:0.1.0"
NEEDED: Final = ("project=PROJECT", "cluster=CLUSTER", f"image={IMAGE}")
MADE_BY_ONE: Final = {"Namespace"}
"""Helm makes it itself, with --create-namespace."""


def rendered(*values: str) -> list[Object]:
    sets = [word for value in values for word in ("--set", value)]
    said = run(program("helm"), "template", "countersink", CHART, "--namespace", "countersink", *sets)
    return [one for one in yaml.safe_load_all(said) if one]


def plain(one: Any) -> Any:
    """Without what each tool adds, so that a change of the settings restarts the processes, or Helm runs a Job."""
    if isinstance(one, dict):
        return {
            name: plain(value)
            for name, value in one.items()
            if name != "namespace" or "kind" in one  # of subjects
            if name not in ("creationTimestamp", "annotations") or "iam.gke.io/gcp-service-account" in value
        }
    if isinstance(one, list):
        return [plain(each) for each in one]
    return re.sub(r"^settings-\w{10}$", "settings", one) if isinstance(one, str) else one


def by_name(objects: list[Object]) -> dict[tuple[str, str], Any]:
    return {(one["kind"], plain(one["metadata"]["name"])): plain(one) for one in objects}


def test_it_makes_what_kustomize_makes() -> None:
    built = yaml.safe_load_all(run(program("kubectl"), "kustomize", OVERLAYS / "gke"))
    wanted = by_name([one for one in built if one["kind"] not in MADE_BY_ONE])
    found = by_name(rendered(*NEEDED))
    assert found.keys() == wanted.keys()
    for name in wanted:
        assert found[name] == wanted[name], name
    assert by_name(rendered(*NEEDED, "ingest.replicas.min=3")) != wanted


def test_kubernetes_knows_each_field() -> None:
    for more in ((), ("metrics.by=operator", "metrics.prometheus=http://prometheus.monitoring:9090")):
        objects = rendered(*NEEDED, *more)
        known = (*WITH_SCHEMAS, "monitoring.coreos.com/v1")
        validate([one for one in objects if one["apiVersion"] not in known])
        kinds = {one["kind"] for one in objects}
        assert ("ServiceMonitor" in kinds) == ("PodMonitoring" not in kinds) == bool(more)
        (scaled,) = [one for one in objects if one["kind"] == "ScaledObject"]
        assert ("authenticationRef" in scaled["spec"]["triggers"][0]) == (not more)


def test_prometheus_finds_the_monitor_by_its_labels_and_calls_the_job_as_the_alerts_do() -> None:
    objects = rendered(
        *NEEDED, "metrics.by=operator", "metrics.prometheus=http://prometheus", "metrics.labels.release=x"
    )
    (monitor,) = [one for one in objects if one["kind"] == "ServiceMonitor"]
    (service,) = [one for one in objects if one["kind"] == "Service" and one["metadata"]["name"] == "metrics"]
    assert monitor["metadata"]["labels"]["release"] == "x"
    job = service["metadata"]["labels"][monitor["spec"]["jobLabel"]]
    (looked_for,) = set(re.findall(r'up\{job=~"(.*?)"', (ROOT / "deploy" / "prometheus" / "rules.yml").read_text()))
    assert re.fullmatch(looked_for, job)


def test_helm_finds_nothing_wrong_and_says_what_is_missing() -> None:
    sets = [word for value in NEEDED for word in ("--set", value)]
    run(program("helm"), "lint", "--strict", CHART, *sets)
    for number, value in enumerate(NEEDED):
        left = [word for other in NEEDED[:number] + NEEDED[number + 1 :] for word in ("--set", other)]
        command = [program("helm"), "template", str(CHART), *left]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        assert said.returncode != 0
        assert f"{value.partition('=')[0]} is needed" in said.stderr


def test_a_change_of_the_settings_restarts_the_processes() -> None:
    def marks(*more: str) -> set[str]:
        deployments = [one for one in rendered(*NEEDED, *more) if one["kind"] == "Deployment"]
        assert len(deployments) == 3
        return {one["spec"]["template"]["metadata"]["annotations"]["checksum/settings"] for one in deployments}

    assert len(marks()) == 1
    assert marks() != marks("settings.COUNTERSINK_LOG_LEVEL=INFO")


@pytest.mark.parametrize("field", ["version", "appVersion"])
def test_its_version_is_the_last_release(field: str) -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())[field] == releases()[0]
