"""The manifests for Kubernetes are valid, keep their promises, and name only what the code has."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from countersink_server.cli.main import parser_of_all
from shared.config.settings import table
from tests.deploy.programs import run
from tests.meta.checkout import ROOT
from tests.meta.test_rules import shown
from tests.needs import program

OVERLAYS: Final = ROOT / "deploy" / "kubernetes" / "overlays"
NAMES: Final = ("gke", "sqlite")
Object = dict[str, Any]
WITH_SCHEMAS: Final = ("keda.sh/v1alpha1", "monitoring.googleapis.com/v1")
"""API versions that are no part of Kubernetes."""


@pytest.fixture(scope="module", params=NAMES)
def overlay(request: pytest.FixtureRequest) -> list[Object]:
    built = run(program("kubectl"), "kustomize", OVERLAYS / request.param)
    return [one for one in yaml.safe_load_all(built) if one]


def of_kind(overlay: list[Object], *kinds: str) -> list[Object]:
    return [one for one in overlay if one["kind"] in kinds]


def templates(overlay: list[Object]) -> Iterator[tuple[str, Object, Object]]:
    """Name, labels and specification of what Pods are made of."""
    for one in of_kind(overlay, "Deployment", "StatefulSet", "Job"):
        template = one["spec"]["template"]
        yield one["metadata"]["name"], template["metadata"]["labels"], template["spec"]


def settings(overlay: list[Object]) -> dict[str, str]:
    (found,) = of_kind(overlay, "ConfigMap")
    return dict(found["data"])


def validate(documents: list[Object]) -> None:
    """Raise an error if Kubernetes does not know a field."""
    for one in documents:
        kubernetes_validate.validate(one, kubernetes_validate.latest_version(), strict=True)


def test_kubernetes_knows_each_field(overlay: list[Object]) -> None:
    own = [one for one in overlay if one["apiVersion"] not in WITH_SCHEMAS]
    validate(own)
    (bad,) = of_kind(own, "Namespace")
    with pytest.raises(kubernetes_validate.ValidationError):
        validate([bad | {"no": 1}])


def test_each_command_is_one_of_ours_and_listens_where_it_is_asked(overlay: list[Object]) -> None:
    for name, _, spec in templates(overlay):
        (container,) = spec["containers"]
        if name == "operator":  # waits until somebody runs a command in it
            assert container["command"] == ["sleep", "infinity"]
            continue
        said = parser_of_all().parse_args(container["args"])
        if name == "provision":
            continue
        ports = [port["containerPort"] for port in container["ports"]]
        assert [said.port] == ports
        assert said.host == "0.0.0.0"


def test_probes_ask_what_they_should(overlay: list[Object]) -> None:
    """An outage of Pub/Sub must take no Pod out of service: only the start asks /readyz."""
    for name, _, spec in templates(overlay):
        (container,) = spec["containers"]
        if name in ("provision", "operator"):
            continue
        probes = {kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")}
        start = "/healthz" if container["args"][0] == "flusher" else "/readyz"
        assert probes == {"startup": start, "readiness": "/healthz", "liveness": "/healthz"}


def test_a_process_has_the_time_to_drain(overlay: list[Object]) -> None:
    drain = float(settings(overlay)["COUNTERSINK_DRAIN_TIMEOUT"])
    for name, _, spec in templates(overlay):
        if name not in ("provision", "operator"):
            before = spec["containers"][0].get("lifecycle", {}).get("preStop", {})
            waits = float(before["exec"]["command"][1]) if before else 0
            assert spec["terminationGracePeriodSeconds"] >= waits + 2 * drain + 5


def test_each_setting_exists_and_is_taken(overlay: list[Object]) -> None:
    """A wrong value or an unknown name ends each command with 2; these are read without touching anything."""
    given = settings(overlay)
    known = {name for name, _, _ in table()}
    assert given.keys() <= known
    script = "import os; from shared.config.settings import Settings; Settings.read(os.environ)"
    base = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=base | given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert subprocess.run(command, env=base | {"COUNTERSINK_NO": "1"}, capture_output=True, check=False).returncode


def test_no_process_has_rights_or_learns_of_services(overlay: list[Object]) -> None:
    for _, _, spec in templates(overlay):
        assert spec["enableServiceLinks"] is False
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsUser"] == 65532
        assert spec["securityContext"]["runAsNonRoot"] is True
        (container,) = spec["containers"]
        rights = container["securityContext"]
        assert rights["readOnlyRootFilesystem"] is True
        assert rights["allowPrivilegeEscalation"] is False
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert {volume["name"] for volume in spec["volumes"]} == {mount["name"] for mount in container["volumeMounts"]}


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    expressions = selector.get("matchExpressions", [])
    return all(labels.get(name) == value for name, value in selector.get("matchLabels", {}).items()) and all(
        labels.get(one["key"]) in one["values"] for one in expressions
    )


def test_each_selector_finds_its_pods(overlay: list[Object]) -> None:
    """The policies of the network select all of them, a budget those of one workload."""
    labels = {name: these for name, these, _ in templates(overlay)}
    for policy in of_kind(overlay, "NetworkPolicy"):
        assert all(selects(policy["spec"]["podSelector"], these) for these in labels.values())
    for one in of_kind(overlay, "PodDisruptionBudget", "PodMonitoring"):
        wanted = [one["metadata"]["name"]] if one["kind"] == "PodDisruptionBudget" else ["ingest", "flusher"]
        found = [name for name, these in labels.items() if selects(one["spec"]["selector"], these)]
        assert sorted(found) == sorted(wanted)
    (service,) = of_kind(overlay, "Service")
    assert [name for name, these in labels.items() if selects({"matchLabels": service["spec"]["selector"]}, these)] == [
        "ingest"
    ]
    assert all(one["spec"]["maxUnavailable"] == 1 for one in of_kind(overlay, "PodDisruptionBudget"))
    assert not selects({"matchLabels": {"a": "b"}}, {})


def test_the_spool_is_off_or_on_a_volume_of_its_own(overlay: list[Object]) -> None:
    """Otherwise accepted increments would be deleted with the container."""
    given = settings(overlay)
    if given["COUNTERSINK_BROKER"].startswith("pubsub:"):
        assert given["COUNTERSINK_SPOOL"] == "off"
    else:
        (claim,) = of_kind(overlay, "PersistentVolumeClaim")
        (up,) = [spec for name, _, spec in templates(overlay) if name == "ingest"]
        claims = [one.get("persistentVolumeClaim", {}).get("claimName") for one in up["volumes"]]
        assert claim["metadata"]["name"] in claims
        assert given["COUNTERSINK_EXISTING"] == "yes"


def test_the_configuration_has_a_hash_in_its_name(overlay: list[Object]) -> None:
    (configuration,) = of_kind(overlay, "ConfigMap")
    name = configuration["metadata"]["name"]
    assert re.fullmatch(r"settings-\w{10}", name)
    for _, _, spec in templates(overlay):
        secret = {"name": "countersink-settings", "optional": True}
        assert spec["containers"][0]["envFrom"] == [{"configMapRef": {"name": name}}, {"secretRef": secret}]


def test_autoscalers_ask_for_metrics_that_there_are(overlay: list[Object]) -> None:
    for scaled in of_kind(overlay, "ScaledObject"):
        (trigger,) = scaled["spec"]["triggers"]
        assert trigger["type"] == "prometheus"
        assert trigger["metadata"]["ignoreNullValues"] == "false"
        assert trigger["metadata"]["threshold"].isdigit(), "KEDA may cut off its decimals for the fallback"
        assert scaled["spec"]["fallback"]["replicas"] >= scaled["spec"]["minReplicaCount"]
        named = set(re.findall(r"countersink_\w+", trigger["metadata"]["query"]))
        assert named
        assert named <= shown()
        targets = [one["metadata"]["name"] for one in of_kind(overlay, "Deployment")]
        assert scaled["spec"]["scaleTargetRef"]["name"] in targets
    for scaled in of_kind(overlay, "Deployment"):  # else each `kubectl apply` would undo what the autoscaler did
        automatic = of_kind(overlay, "HorizontalPodAutoscaler", "ScaledObject")
        names = [one["spec"]["scaleTargetRef"]["name"] for one in automatic]
        assert (scaled["metadata"]["name"] in names) == ("replicas" not in scaled["spec"])


def test_keda_asks_google_for_the_flushers_of_this_cluster(overlay: list[Object]) -> None:
    """There is no Prometheus in the cluster. Other clusters of the project may run flushers, too."""
    for scaled in of_kind(overlay, "ScaledObject"):
        (trigger,) = scaled["spec"]["triggers"]
        said = trigger["metadata"]
        assert said["serverAddress"].startswith("https://monitoring.googleapis.com/v1/projects/PROJECT/")
        assert f'{{cluster="CLUSTER",namespace="{scaled["metadata"]["namespace"]}"}}' in said["query"]
        (known,) = of_kind(overlay, "TriggerAuthentication")
        assert trigger["authenticationRef"] == {"name": known["metadata"]["name"]}
        assert known["spec"] == {"podIdentity": {"provider": "gcp"}}


def test_the_collector_may_read_its_key_and_no_other(overlay: list[Object]) -> None:
    for monitored in of_kind(overlay, "PodMonitoring"):
        keys = {one["authorization"]["credentials"]["secret"]["name"] for one in monitored["spec"]["endpoints"]}
        (role,) = of_kind(overlay, "Role")
        (rule,) = role["rules"]
        assert {*rule["resourceNames"]} == keys
        assert (rule["resources"], "get" in rule["verbs"]) == (["secrets"], True)
        (binding,) = of_kind(overlay, "RoleBinding")
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        assert {one["namespace"] for one in binding["subjects"]} == {"gmp-system", "gke-gmp-system"}
        assert {one["name"] for one in binding["subjects"]} == {"collector"}


def test_a_volume_that_one_machine_can_mount_is_mounted_on_one(overlay: list[Object]) -> None:
    users = [
        (name, labels, spec)
        for name, labels, spec in templates(overlay)
        if any("persistentVolumeClaim" in one for one in spec["volumes"])
    ]
    for name, _, spec in users:
        if name == "ingest":
            continue
        affinity = spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        (term,) = affinity
        assert term["topologyKey"] == "kubernetes.io/hostname"
        assert [one for one, labels, _ in users if selects(term["labelSelector"], labels)] == ["ingest"]


def test_everything_but_ingest_can_be_applied_first(overlay: list[Object]) -> None:
    """With --selector app.kubernetes.io/component!=ingest: a flusher's settings come with it."""
    marked = [one["metadata"]["labels"].get("app.kubernetes.io/component") for one in of_kind(overlay, "Deployment")]
    assert marked.count("ingest") == 1
    others = of_kind(overlay, "ConfigMap", "ServiceAccount", "Job")
    assert not [one for one in others if "app.kubernetes.io/component" in one["metadata"]["labels"]]


def test_keda_takes_its_objects(node_packages: Path) -> None:
    """The schema is that of a package for node; it does not notice fields that are too much."""
    documents = yaml.safe_load_all(run(program("kubectl"), "kustomize", OVERLAYS / "gke"))
    objects = [one for one in documents if one["apiVersion"] == "keda.sh/v1alpha1"]
    check = (
        "const kinds = require('@kubernetes-models/keda/keda.sh/v1alpha1');"
        " const object = JSON.parse(require('fs').readFileSync(0, 'utf8'));"
        " new kinds[object.kind](object).validate();"
    )
    command = (program("node"), "-e", check)
    for one in objects:
        run(*command, cwd=node_packages, told=json.dumps(one))
    (scaled,) = of_kind(objects, "ScaledObject")
    del scaled["spec"]["scaleTargetRef"]
    with pytest.raises(AssertionError, match="scaleTargetRef"):
        run(*command, cwd=node_packages, told=json.dumps(scaled))
