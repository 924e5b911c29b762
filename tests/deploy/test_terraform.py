"""Terraform's files name only what its provider has, and make what `countersink provision` and Cloud Run need."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from google.cloud import run_v2
from google.cloud.monitoring_dashboard_v1 import Dashboard
from google.cloud.monitoring_v3 import AlertPolicy
from google.protobuf.json_format import ParseDict, ParseError

from countersink_server.cli.main import parser_of_all
from ingest.access.callers import client_of
from shared.config.settings import Settings
from shared.pubsub.setup import provision
from tests.deploy.programs import run
from tests.emulators.pubsub_fixtures import Pubsub
from tests.meta.checkout import ROOT
from tests.needs import program

FOLDER: Final = ROOT / "deploy" / "terraform"
CLOUD_RUN: Final = ROOT / "deploy" / "cloudrun"
KNOWN: Final[dict[str, dict[str, Any]]] = json.loads(Path(__file__).with_name("google_provider.json").read_text())
RULES: Final = [
    rule
    for group in yaml.safe_load((ROOT / "deploy" / "prometheus" / "rules.yml").read_text())["groups"]
    for rule in group["rules"]
]
KILLED_AFTER: Final = 10.0
"""Seconds that Cloud Run leaves a process to end."""
TOP: Final = {"Service", "WorkerPool", "Job"}
OF_ALL: Final = {"count", "depends_on", "for_each", "lifecycle", "provider"}
REFERENCE: Final = re.compile(r"\b(google_\w+)\.(\w+)(?:\[[^]]*\])?(?:\.(\w+))?")
Block = dict[str, Any]
SCRIPT: Final = (
    "const { convertFiles } = require('@cdktn/hcl2json');"
    " convertFiles(process.argv[2]).then((found) => console.log(JSON.stringify(found)),"
    " (error) => { console.error(error); process.exit(1); });"
)


def read(folder: Path, packages: Path) -> Block:
    script = packages / "read.js"
    script.write_text(SCRIPT)
    found: Block = json.loads(run(program("node"), script, folder, cwd=packages))
    return found


@pytest.fixture(scope="module")
def files(node_packages: Path) -> Block:
    return read(FOLDER, node_packages)


@pytest.fixture(scope="module")
def cloud_run(node_packages: Path) -> Block:
    return read(CLOUD_RUN, node_packages)


def resources(files: Block) -> Iterator[tuple[str, str, Block]]:
    for kind, named in files["resource"].items():
        for name, (block,) in named.items():
            yield kind, name, block


def static(block: Block) -> Block:
    """The block with one of each of its dynamic blocks."""
    dynamic = {name: one["content"] for name, (one,) in block.get("dynamic", {}).items()}
    return {name: value for name, value in block.items() if name != "dynamic"} | dynamic


def flaws(block: Block, known: Block, where: str) -> Iterator[str]:
    """What the provider would say of the arguments of a resource, or of a block in it."""
    for argument, value in static(block).items():
        if argument not in known:
            yield f"{where} has no {argument}"
        elif "block" in known[argument]:
            for one in value:
                yield from flaws(one, known[argument]["block"], f"{where}.{argument}")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield f"{where}.{argument} is no block"
    for argument, said in known.items():
        if said["required"] and argument not in static(block):
            yield f"{where} needs {argument}"


def all_flaws(files: Block) -> list[str]:
    found: list[str] = []
    for kind, name, block in resources(files):
        own = {argument: value for argument, value in block.items() if argument not in OF_ALL}
        found += flaws(own, KNOWN[kind]["arguments"], f"{kind}.{name}")
    text = json.dumps(files)
    names = {(kind, name) for kind, name, _ in resources(files)}
    for kind, name, attribute in REFERENCE.findall(text):
        if (kind, name) not in names:
            found.append(f"there is no {kind}.{name}")
        elif attribute and attribute not in KNOWN[kind]["attributes"]:
            found.append(f"{kind} has no attribute {attribute}")
    variables = {*files["variable"]}
    locals_ = {name for block in files["locals"] for name in block}
    found += [f"there is no var.{name}" for name in re.findall(r"\bvar\.(\w+)", text) if name not in variables]
    found += [f"there is no local.{name}" for name in re.findall(r"\blocal\.(\w+)", text) if name not in locals_]
    found += [f"var.{name} is not used" for name in variables if f"var.{name}" not in text]
    return found


def test_the_provider_has_each_argument_and_attribute(files: Block, cloud_run: Block) -> None:
    assert not all_flaws(files)
    assert not all_flaws(cloud_run)


def test_cloud_run_uses_the_other_files(files: Block, cloud_run: Block) -> None:
    (module,) = cloud_run["module"]["countersink"]
    assert (CLOUD_RUN / module.pop("source")).resolve() == FOLDER
    required = {name for name, (said,) in files["variable"].items() if "default" not in said}
    assert required <= module.keys() <= files["variable"].keys()
    used = set(re.findall(r"module\.countersink\.(\w+)", json.dumps(cloud_run)))
    assert used == {*files["output"]}


def filled(value: Any, files: Block, message: Any) -> Any:
    """A block as the message of Google's API that the provider makes of it: there, what is no list has one value."""
    if isinstance(value, str) and (found := re.fullmatch(r"\$\{var\.(\w+)\}", value)):
        return files["variable"][found[1]][0].get("default", "something")
    if message is None or not isinstance(value, dict):
        return value
    fields = message.fields_by_name
    made = {}
    for name, one in static(value).items():
        if name in OF_ALL | {"name", "location"} and message.name in TOP:
            continue
        field = fields[name]
        inner = field.message_type
        entries = inner is not None and inner.GetOptions().map_entry
        many = [filled(each, files, None if entries else inner) for each in (one if isinstance(one, list) else [one])]
        made[name] = many if field.is_repeated and not entries else many[0]
    return made


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("service", run_v2.Service),
        ("worker_pool", run_v2.WorkerPool),
        ("job", run_v2.Job),
    ],
)
def test_cloud_run_takes_each_object(kind: str, message: Any, cloud_run: Block) -> None:
    (block,) = [one for name, _, one in resources(cloud_run) if name == f"google_cloud_run_v2_{kind}"]
    made = filled(block, cloud_run, message.pb().DESCRIPTOR)
    ParseDict(made, message.pb()())
    template = made["template"].get("template", made["template"])
    (container,) = template["containers"]
    parser_of_all().parse_args(container["args"])
    with pytest.raises(ParseError):
        ParseDict(made | {"template": {"conatiners": []}}, message.pb()())


def test_cloud_run_has_time_to_drain_and_no_spool(cloud_run: Block) -> None:
    local = {name: said for block in cloud_run["locals"] for name, said in block.items()}
    settings = Settings.read(local["own"])
    assert settings.drain_timeout + 3 < KILLED_AFTER
    assert settings.spool == "off"
    assert client_of("169.254.1.1", ["1.2.3.4, 203.0.113.9"], settings.trusted_proxies) == "203.0.113.9"


def test_crema_scales_the_flushers_and_never_to_none(files: Block, cloud_run: Block) -> None:
    scaled = yaml.safe_load((CLOUD_RUN / "crema.yaml").read_text())["spec"]["scaledObjects"][0]["spec"]
    pool = cloud_run["resource"]["google_cloud_run_v2_worker_pool"]["flusher"][0]
    assert scaled["scaleTargetRef"]["name"].endswith(f"/workerpools/{pool['name']}")
    assert scaled["minReplicaCount"] >= 1
    counts = files["resource"]["google_pubsub_subscription"]["counts"][0]
    (trigger,) = scaled["triggers"]
    assert trigger["metadata"]["subscriptionName"].endswith("/" + resolved(files, counts["name"]))


@pytest.mark.parametrize(
    ("before", "after", "flaw"),
    [
        ("deletion_policy  ", "delete_policy  ", "has no delete_policy"),
        ("ttl = ", "tll = ", "needs ttl"),
        ("topic.counts.id", "topic.count.id", "there is no google_pubsub_topic.count"),
        ("topic.counts.id", "topic.counts.idd", "has no attribute idd"),
        ("var.topic", "var.topik", "there is no var.topik"),
        ("local.kept", "local.keep", "there is no local.keep"),
    ],
)
def test_a_mistake_is_noticed(before: str, after: str, flaw: str, node_packages: Path, tmp_path: Path) -> None:
    for file in FOLDER.glob("*.tf"):
        (tmp_path / file.name).write_text(file.read_text())
    changed = tmp_path / "pubsub.tf"
    text = changed.read_text()
    assert before in text
    changed.write_text(text.replace(before, after))
    assert any(flaw in one for one in all_flaws(read(tmp_path, node_packages)))


def resolved(files: Block, value: str) -> str:
    """The value with the defaults of variables."""
    local = {name: said for block in files["locals"] for name, said in block.items()}
    while found := re.search(r"\$\{(var|local)\.(\w+)\}", value):
        one = files["variable"][found[2]][0]["default"] if found[1] == "var" else local[found[2]]
        value = value.replace(found[0], str(one))
    return value


async def test_it_makes_what_provision_makes(files: Block, empty_pubsub: Pubsub) -> None:
    """On the emulator, where the test has names of its own."""
    place, client = empty_pubsub.place, empty_pubsub.client()
    defaults = Settings()
    await provision(client, place, lease=defaults.lease, retention=defaults.retention)
    topics = {
        "counts": await client.get_topic(place.topic),
        "dead_letters": await client.get_topic(place.dead_topic),
        "tasks": await client.get_topic(place.tasks.topic),
    }
    found = {name: block for kind, name, block in resources(files) if kind == "google_pubsub_topic"}
    assert found.keys() == topics.keys()
    for name, topic in topics.items():
        its_name = resolved(files, found[name]["name"]).replace("counts", place.topic_id, 1)
        assert topic.name.endswith(f"/{its_name}")
        kept = found[name].get("message_retention_duration", "0s")
        assert resolved(files, kept) == f"{topic.message_retention_duration.seconds}s"
    subscriptions = {
        "counts": await client.get_subscription(place.subscription),
        "dead_letters": await client.get_subscription(place.dead_subscription),
        "tasks": await client.get_subscription(place.tasks.subscription),
    }
    found = {name: block for kind, name, block in resources(files) if kind == "google_pubsub_subscription"}
    assert found.keys() == subscriptions.keys()
    for name, subscription in subscriptions.items():
        its_name = resolved(files, found[name]["name"]).replace("counts-flushers", place.subscription_id, 1)
        assert subscription.name.endswith(f"/{its_name}")
        assert found[name]["topic"] == f"${{google_pubsub_topic.{name}.id}}"
        assert found[name]["ack_deadline_seconds"] == subscription.ack_deadline_seconds
        kept = resolved(files, found[name]["message_retention_duration"])
        assert kept == f"{subscription.message_retention_duration.seconds}s"
        assert found[name]["expiration_policy"] == [{"ttl": ""}]
        assert found[name]["deletion_policy"] == "PREVENT"


def test_accounts_have_the_roles_of_the_docs_and_no_others(files: Block) -> None:
    local = {name: said for block in files["locals"] for name, said in block.items()}
    given = {(one["account"], f"roles/pubsub.{one['role']}") for one in local["topics"].values()}
    given |= {(one["account"], f"roles/pubsub.{one['role']}") for one in local["subscriptions"].values()}
    given |= {(one["account"], f"roles/{one['role']}") for one in local["project"].values()}
    assert given == {
        ("ingest", "roles/pubsub.publisher"),
        ("ingest", "roles/pubsub.viewer"),
        ("ingest", "roles/datastore.user"),
        ("flusher", "roles/pubsub.publisher"),
        ("flusher", "roles/pubsub.subscriber"),
        ("flusher", "roles/pubsub.viewer"),
        ("flusher", "roles/datastore.user"),
        ("provision", "roles/pubsub.editor"),
        ("provision", "roles/datastore.indexAdmin"),
    }
    docs = (ROOT / "docs" / "google-cloud.md").read_text()
    assert {role for _, role in given} <= set(re.findall(r"`(roles/[\w.]+)`", docs))


def expanded(expr: str, records: dict[str, str]) -> str:
    """As `alerts.tf` does it: Terraform itself is not here."""
    tokens = re.findall(r"countersink:[a-z0-9_:]+|[^c]+|c", expr)
    return "".join(records.get(token, token) for token in tokens)


def test_alerts_need_no_recording_rules(files: Block, tmp_path: Path) -> None:
    local = {name: said for block in files["locals"] for name, said in block.items()}
    assert local["tokens"] == "countersink:[a-z0-9_:]+|[^c]+|c"
    records = {rule["record"]: f"({rule['expr'].strip()})" for rule in RULES if "record" in rule}
    once = {name: expanded(expr, records) for name, expr in records.items()}
    rules = [{"record": rule["alert"], "expr": expanded(rule["expr"], once)} for rule in RULES if "alert" in rule]
    assert len(rules) > 20
    assert not [rule for rule in rules if "countersink:" in rule["expr"]]
    rules += [
        {"record": name, "expr": re.sub(r"\$\{[^}]*\}", "1", said["query"]).replace('\\"', '"')}
        for name, said in local["from_google"].items()
    ]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "alerts", "rules": rules}]}))
    run(program("promtool"), "check", "rules", file)


def test_each_alert_names_its_runbook(files: Block) -> None:
    local = {name: said for block in files["locals"] for name, said in block.items()}
    for name, alert in local["from_google"].items():
        assert f"docs/runbooks.md#{name.lower()}" in alert["says"]
    for rule in RULES:  # Terraform fails on an annotation that is missing
        assert "record" in rule or rule["annotations"].keys() == {"summary", "description", "runbook"}, rule


def test_cloud_monitoring_takes_alerts_and_the_dashboard(files: Block) -> None:
    (policy,) = [block for kind, _, block in resources(files) if kind == "google_monitoring_alert_policy"]
    (condition,) = policy["conditions"]
    (query,) = condition["condition_prometheus_query_language"]
    local = {name: said for block in files["locals"] for name, said in block.items()}
    for alert in local["from_google"].values():
        said = {key: alert[key] for key in ("query", "duration")} | {
            "evaluation_interval": query["evaluation_interval"]
        }
        whole = {
            "combiner": policy["combiner"],
            "severity": alert["severity"],
            "conditions": [{"display_name": "one", "condition_prometheus_query_language": said}],
            "documentation": {"content": alert["says"], "mime_type": policy["documentation"][0]["mime_type"]},
        }
        ParseDict(whole, AlertPolicy.pb()())
        with pytest.raises(ParseError):
            ParseDict(whole | {"severity": "URGENT"}, AlertPolicy.pb()())
    dashboard = json.loads((FOLDER / "dashboard.json").read_text())
    ParseDict(dashboard, Dashboard.pb()())
    grafana = json.loads((ROOT / "deploy" / "grafana" / "countersink.json").read_text())
    wanted = {
        panel["title"]: [one["expr"] for one in panel["targets"]] for panel in grafana["panels"] if "targets" in panel
    }
    shown = {
        tile["widget"]["title"]: [
            one["timeSeriesQuery"]["prometheusQuery"].replace("${__interval}", "$__rate_interval")
            for one in tile["widget"]["xyChart"]["dataSets"]
        ]
        for tile in dashboard["mosaicLayout"]["tiles"]
    }
    assert shown == wanted
