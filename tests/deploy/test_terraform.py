"""Terraform's files name only what its provider has, and make what `countersink provision` and Cloud Run need."""

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from google.cloud import run_v2
from google.cloud.monitoring_dashboard_v1 import Dashboard
from google.cloud.monitoring_v3 import AlertPolicy, UptimeCheckConfig
from google.protobuf.json_format import ParseDict, ParseError

from countersink_server.cli.main import parser_of_all
from ingest.access.callers import client_of
from shared.config.settings import Settings
from shared.pubsub.setup import provision
from tests.deploy import google_provider
from tests.deploy.programs import run
from tests.emulators.pubsub_fixtures import Pubsub
from tests.meta.checkout import ROOT
from tests.needs import program

FOLDER: Final = ROOT / "deploy" / "terraform"
CLOUD_RUN: Final = ROOT / "deploy" / "cloudrun"
GKE: Final = ROOT / "deploy" / "gke"
KNOWN: Final = google_provider.known()
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
    " Promise.all(process.argv.slice(1).map(convertFiles)).then((found) => console.log(JSON.stringify(found)),"
    " (error) => { console.error(error); process.exit(1); });"
)


@pytest.fixture(scope="module")
def all_files(node_packages: Path) -> list[Block]:
    """Of the module and of both roots, as its parser reads them."""
    found: list[Block] = json.loads(run(program("node"), "-e", SCRIPT, FOLDER, CLOUD_RUN, GKE, cwd=node_packages))
    return found


@pytest.fixture
def files(all_files: list[Block]) -> Block:
    return deepcopy(all_files[0])


@pytest.fixture
def cloud_run(all_files: list[Block]) -> Block:
    return deepcopy(all_files[1])


@pytest.fixture
def gke(all_files: list[Block]) -> Block:
    return deepcopy(all_files[2])


def resources(files: Block) -> Iterator[tuple[str, str, Block]]:
    for kind, named in files.get("resource", {}).items():
        for name, (block,) in named.items():
            yield kind, name, block


def locals_of(root: Block) -> Block:
    return {name: said for block in root["locals"] for name, said in block.items()}


def static(block: Block) -> Block:
    """The block with one of each of its dynamic blocks, besides those of the same name."""
    dynamic = {name: block.get(name, []) + one["content"] for name, (one,) in block.get("dynamic", {}).items()}
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
    locals_ = {name for block in files.get("locals", []) for name in block}
    found += [f"there is no var.{name}" for name in re.findall(r"\bvar\.(\w+)", text) if name not in variables]
    found += [f"there is no local.{name}" for name in re.findall(r"\blocal\.(\w+)", text) if name not in locals_]
    found += [f"var.{name} is not used" for name in variables if f"var.{name}" not in text]
    return found


def test_the_provider_has_each_argument_and_attribute(files: Block, cloud_run: Block, gke: Block) -> None:
    assert not all_flaws(files)
    assert not all_flaws(cloud_run)
    assert not all_flaws(gke)


def test_the_roots_use_the_module(files: Block, cloud_run: Block, gke: Block) -> None:
    required = {name for name, (said,) in files["variable"].items() if "default" not in said}
    for folder, root in ((CLOUD_RUN, cloud_run), (GKE, gke)):
        (module,) = root["module"]["countersink"]
        assert (folder / module.pop("source")).resolve() == FOLDER
        assert required | {"location", "redis_gb"} <= module.keys() <= files["variable"].keys()
        for name in module.keys() & root["variable"].keys():
            assert module[name] == f"${{var.{name}}}"
    used = set(re.findall(r"module\.countersink\.(\w+)", json.dumps(cloud_run)))
    assert used == {*files["output"]}


def configured(root: Block) -> bool:
    """Whether the resources beside a module have a project, and the provider a version that stays."""
    (wanted,) = root["terraform"][0]["required_providers"]
    (provider,) = root.get("provider", {}).get("google", [{}])
    given = {name: provider.get(name) for name in ("project", "region")}
    return wanted["google"]["version"].startswith("~>") and given == {name: f"${{var.{name}}}" for name in given}


def test_the_provider_is_configured_in_the_roots_alone(files: Block, cloud_run: Block, gke: Block) -> None:
    """A module's own provider is not that of the resources beside it, which would be in no project."""
    assert "provider" not in files
    assert configured(cloud_run)
    assert configured(gke)
    assert not configured({name: one for name, one in cloud_run.items() if name != "provider"})


def lonely(files: Block) -> list[str]:
    """Resources that neither wait until the APIs are on nor name one that does."""
    blocks = {f"{kind}.{name}": json.dumps(block) for kind, name, block in resources(files)}
    waits = {name for name, text in blocks.items() if "google_project_service." in text}
    while more := {
        name
        for name in blocks.keys() - waits
        if any(f"{one}." in blocks[name] or f"{one}[" in blocks[name] or f"{one}}}" in blocks[name] for one in waits)
    }:
        waits |= more
    return sorted(name for name in blocks.keys() - waits if not name.startswith("google_project_"))


def test_nothing_is_made_before_its_api_is_on(files: Block) -> None:
    needed = files["resource"]["google_project_service"]["needed"][0]["for_each"]
    assert {"iam", "cloudresourcemanager", "secretmanager", "monitoring", "pubsub", "redis"} <= set(
        re.findall(r"[a-z]+", needed)
    )
    assert not lonely(files)
    without = json.loads(json.dumps(files))
    for block in without["resource"]["google_service_account"]["of"]:
        del block["depends_on"]
    assert "google_service_account.of" in lonely(without)


def filled(value: Any, files: Block, message: Any) -> Any:
    """A block as the message of Google's API that the provider makes of it: there, what is no list has one value."""
    if isinstance(value, str) and (found := re.fullmatch(r"\$\{var\.(\w+)\}", value)):
        return files["variable"][found[1]][0].get("default", "something")
    if message is None or not isinstance(value, dict):
        return value
    fields = message.fields_by_name
    made = {}
    for name, one in static(value).items():
        if name in OF_ALL | {"name", "location", "deletion_protection"} and message.name in TOP:
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
    commands = block.get("for_each")
    made = filled(block, cloud_run, message.pb().DESCRIPTOR)
    assert block["deletion_protection"] is False  # else one that failed to start could not be made again
    ParseDict(made, message.pb()())
    template = made["template"].get("template", made["template"])
    (container,) = template["containers"]
    for command in [container["args"]] if commands is None else commands.values():
        parser_of_all().parse_args(command)
    environment = {one["name"]: one for one in container["env"]}
    assert "valueSource" in environment["COUNTERSINK_OVERLAY"] or "value_source" in environment["COUNTERSINK_OVERLAY"]
    with pytest.raises(ParseError):
        ParseDict(made | {"template": {"conatiners": []}}, message.pb()())


def test_cloud_run_has_time_to_drain_and_no_spool(cloud_run: Block) -> None:
    local = locals_of(cloud_run)
    settings = Settings.read(local["own"])
    (listed,) = re.findall(r"concat\((\[.*?\])", local["behind"]["COUNTERSINK_TRUSTED_PROXIES"])
    proxies = Settings.read({"COUNTERSINK_TRUSTED_PROXIES": ",".join(json.loads(listed))}).trusted_proxies
    assert settings.drain_timeout + 5 < KILLED_AFTER  # docs/google-cloud.md says what takes five more
    assert settings.spool == "off"
    for peer in ("203.0.113.9", "203.0.113.9, 35.191.3.4"):
        assert client_of("169.254.1.1", [f"1.2.3.4, {peer}"], proxies) == "203.0.113.9"


@pytest.mark.parametrize(
    ("kind", "name", "start"),
    [("service", "ingest", "/readyz"), ("worker_pool", "flusher", "/healthz")],
)
def test_a_process_that_hangs_is_started_again(kind: str, name: str, start: str, cloud_run: Block) -> None:
    """A probe finds it without a key, and the process needs keys for another port than that of loopback."""
    (template,) = cloud_run["resource"][f"google_cloud_run_v2_{kind}"][name][0]["template"]
    (container,) = template["containers"]
    port = parser_of_all().parse_args(container["args"]).port
    for probe, path in (("startup_probe", start), ("liveness_probe", "/healthz")):
        assert container[probe][0]["http_get"] == [{"path": path, "port": port}]
    assert "local.keys" in container["dynamic"]["env"][0]["for_each"]
    (volume,), (mount,) = template["volumes"], container["volume_mounts"]
    assert mount["name"] == volume["name"]
    assert volume["secret"][0]["default_mode"] & 0o004  # the file belongs to root, and there is no `fsGroup`
    assert name in cloud_run["resource"]["google_secret_manager_secret_iam_member"]["reads_keys"][0]["for_each"]


def test_the_keys_are_read_seldom_where_each_reading_is_billed(cloud_run: Block) -> None:
    assert Settings.read(locals_of(cloud_run)["keys"]).keys_interval >= 60


def test_the_state_is_in_a_bucket_of_which_each_root_has_a_part(cloud_run: Block, gke: Block) -> None:
    """On one machine, it would be lost with it, and nobody else could apply."""
    prefixes = {root["terraform"][0]["backend"]["gcs"][0]["prefix"] for root in (cloud_run, gke)}
    assert prefixes == {"countersink/cloudrun", "countersink/gke"}
    inits = re.findall(r"terraform -chdir=deploy/\w+ init.*", (ROOT / "docs" / "deploy.md").read_text())
    assert len(inits) == 2
    assert all("-backend-config=bucket=" in one for one in inits)


def test_connections_outlive_those_of_googles_balancers() -> None:
    """They keep idle ones for 600 seconds, and answer 502 if a request meets one that is just closed."""
    assert Settings().idle_timeout > 600


def test_no_password_is_a_plain_setting(files: Block, cloud_run: Block) -> None:
    (secret,) = [name for kind, name, one in resources(files) if "auth_string" in json.dumps(one)]
    assert (secret, "auth_string" in json.dumps(files["output"])) == ("overlay", False)
    (version,) = files["resource"]["google_secret_manager_secret_version"]["overlay"]
    assert version["secret_data"].startswith("rediss://")
    assert version["lifecycle"] == [{"create_before_destroy": True}]  # else no process could start meanwhile
    assert Settings.read({"COUNTERSINK_OVERLAY": re.sub(r"\$\{[^}]*\}", "1", version["secret_data"])})
    readers = files["resource"]["google_secret_manager_secret_iam_member"]["reads_overlay"][0]["for_each"]
    assert readers == "${google_service_account.of}"
    assert "auth_string" not in json.dumps(cloud_run)


def test_a_restored_database_is_the_one_in_use_everywhere(files: Block) -> None:
    assert "${var.database" in files["output"]["settings"][0]["value"]["COUNTERSINK_STORE"]
    schedule = files["resource"]["google_firestore_backup_schedule"]["daily"][0]
    assert schedule["database"] == "${var.database}"


def test_flushers_are_replaced_first_and_their_number_is_left_alone(cloud_run: Block) -> None:
    service = cloud_run["resource"]["google_cloud_run_v2_service"]["ingest"][0]
    pool = cloud_run["resource"]["google_cloud_run_v2_worker_pool"]["flusher"][0]
    assert "${google_cloud_run_v2_worker_pool.flusher}" in service["depends_on"]
    (rules,) = pool["lifecycle"]
    assert rules["ignore_changes"] == ["${scaling[0].manual_instance_count}"]


def test_crema_scales_the_flushers_and_never_to_none(files: Block, cloud_run: Block) -> None:
    scaled = yaml.safe_load((CLOUD_RUN / "crema.yaml").read_text())["spec"]["scaledObjects"][0]["spec"]
    pool = cloud_run["resource"]["google_cloud_run_v2_worker_pool"]["flusher"][0]
    assert scaled["scaleTargetRef"]["name"].endswith(f"/workerpools/{pool['name']}")
    assert scaled["minReplicaCount"] >= 1
    counts = files["resource"]["google_pubsub_subscription"]["counts"][0]
    (trigger,) = scaled["triggers"]
    assert trigger["metadata"]["subscriptionName"].endswith("/" + resolved(files, counts["name"]))


def test_mistakes_are_noticed(files: Block) -> None:
    text = json.dumps(files)
    for before, after, flaw in (
        ('"deletion_policy"', '"delete_policy"', "has no delete_policy"),
        ('"ttl"', '"tll"', "needs ttl"),
        ("topic.counts.id", "topic.count.id", "there is no google_pubsub_topic.count"),
        ("topic.counts.id", "topic.counts.idd", "has no attribute idd"),
        ("var.topic", "var.topik", "there is no var.topik"),
        ("local.kept", "local.keep", "there is no local.keep"),
    ):
        assert before in text
        assert any(flaw in one for one in all_flaws(json.loads(text.replace(before, after))))


def resolved(files: Block, value: str) -> str:
    """The value with the defaults of variables."""
    local = locals_of(files)
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
    local = locals_of(files)
    given: dict[str, set[str]] = {}
    for kind, prefix in (("on_topics", "pubsub."), ("on_subscriptions", "pubsub."), ("on_project", "")):
        for account, roles in local[kind].items():
            given.setdefault(account, set()).update(f"roles/{prefix}{role}" for role in roles)
    store, sends, looks = "roles/datastore.user", "roles/pubsub.publisher", "roles/pubsub.viewer"
    assert given == {
        "ingest": {store, sends, looks},
        "flusher": {store, sends, looks, "roles/pubsub.subscriber"},
        "operator": {store, sends, looks, "roles/pubsub.subscriber"},
        "provision": {store, "roles/datastore.indexAdmin", "roles/pubsub.editor"},
    }
    takes = local["on_subscriptions"]["operator"]["subscriber"]
    assert {*local["on_subscriptions"]["flusher"]["subscriber"], "dead_letters"} == {*takes}  # else nobody could replay
    docs = (ROOT / "docs" / "google-cloud.md").read_text()
    assert set().union(*given.values()) <= set(re.findall(r"`(roles/[\w.]+)`", docs))


def expanded(expr: str, records: dict[str, str]) -> str:
    """As `alerts.tf` does it: Terraform itself is not here."""
    tokens = re.findall(r"countersink:[a-z0-9_:]+|[^c]+|c", expr)
    return "".join(records.get(token, token) for token in tokens)


def native(*those: Block) -> Block:
    """The alerts on metrics of Google, with what names them."""
    found: Block = {}
    for one in those:
        local = locals_of(one)
        texts = {name: said for name, said in local.items() if isinstance(said, str)}
        for name, alert in (local.get("from_google") or local["alerts"]).items():
            while unknown := re.findall(r"\$\{local\.(\w+)\}", alert["query"]):
                for local_name in unknown:
                    alert["query"] = alert["query"].replace(f"${{local.{local_name}}}", texts[local_name])
            found[name] = alert
    return found


def test_alerts_need_no_recording_rules(files: Block, cloud_run: Block, tmp_path: Path) -> None:
    local = locals_of(files)
    assert local["tokens"] == "countersink:[a-z0-9_:]+|[^c]+|c"
    records = {rule["record"]: f"({rule['expr'].strip()})" for rule in RULES if "record" in rule}
    once = {name: expanded(expr, records) for name, expr in records.items()}
    rules = [{"record": rule["alert"], "expr": expanded(rule["expr"], once)} for rule in RULES if "alert" in rule]
    assert len(rules) > 20
    assert not [rule for rule in rules if "countersink:" in rule["expr"]]
    rules += [
        {"record": name, "expr": re.sub(r"\$\{[^}]*\}", "1", said["query"]).replace('\\"', '"')}
        for name, said in native(files, cloud_run).items()
    ]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "alerts", "rules": rules}]}))
    run(program("promtool"), "check", "rules", file)


AGE: Final = 'pubsub_googleapis_com:subscription_oldest_unacked_message_age{subscription_id="1"}'
RUN: Final = 'run_googleapis_com:%s{monitored_resource="cloud_run_revision",service_name="countersink-ingest"%s}'
POOL: Final = 'run_googleapis_com:%s{monitored_resource="cloud_run_worker_pool",worker_pool_name="countersink-flusher"}'
ERRORS: Final = RUN % ("request_count", ',response_code_class="5xx"')
WELL: Final = RUN % ("request_count", ',response_code_class="2xx"')
INSTANCES: Final = RUN % ("container_instance_count", "")
BILLED: Final = POOL % "container_billable_instance_time"
QUICK: Final = RUN % ("request_latencies_bucket", ',le="100"')
ALL: Final = RUN % ("request_latencies_bucket", ',le="+Inf"')
SLOW: Final = RUN % ("request_latencies_bucket", ',le="5000"')
STARTS: Final = POOL % "container_startup_latencies_count"
INGESTS: Final = RUN % ("container_startup_latencies_count", "")
DEAD: Final = 'pubsub_googleapis_com:subscription_num_undelivered_messages{subscription_id="1"}'
FULL: Final = 'redis_googleapis_com:stats_memory_usage_ratio{instance_id="1"}'
PUSHED: Final = "countersink_start_time_seconds"
SERIES: Final = {
    "CountersinkDeadLettersWait": ({DEAD: "3x70"}, {DEAD: "0x70"}),
    "CountersinkDeadLettersExpire": ({AGE: "500000x70"}, {AGE: "400000x70"}),
    "CountersinkNothingApplied": ({AGE: "700x70"}, {AGE: "60x70"}),
    "CountersinkMessagesExpire": ({AGE: "310000x70"}, {AGE: "1000x70"}),
    "CountersinkRedisFull": ({FULL: "0.9x70"}, {FULL: "0.5x70"}),
    "CountersinkErrors": ({ERRORS: "0+2x70", WELL: "0+98x70"}, {ERRORS: "0x60 1x10", WELL: "0x60 0+5x10"}),
    "CountersinkSlow": (
        {QUICK: "0+1x70", SLOW: "0+9x70", ALL: "0+9x70"},
        {QUICK: "0+9x70", SLOW: "0+10x70", ALL: "0+10x70"},
    ),
    "CountersinkMostInstances": ({INSTANCES: "20x70"}, {INSTANCES: "15x60 20x5"}),
    "CountersinkAbsent": (
        {INSTANCES: "1x70", PUSHED: "1x70"},
        {INSTANCES: "1x70", BILLED: "0+60x70", PUSHED: "1x70"},
    ),
    "CountersinkRestarts": ({STARTS: "0+2x70"}, {STARTS: "0x40 2x30", INGESTS: "0x40 20x30"}),
}
"""What makes each alert on Google's metrics fire, and what does not. In queries, 1 stands for what Terraform knows."""
ALSO: Final[list[tuple[str, tuple[dict[str, str], dict[str, str]]]]] = [
    ("CountersinkRestarts", ({INGESTS: "0+2x70"}, {})),
    (
        "CountersinkAbsent",
        ({INSTANCES: "1x70", BILLED: "0+60x70"}, {INSTANCES: "1x70", BILLED: "0+60x70", PUSHED: "1x70"}),
    ),
]


def test_each_alert_on_googles_metrics_fires_on_what_it_is_for_and_not_otherwise(
    files: Block, cloud_run: Block, tmp_path: Path
) -> None:
    alerts = native(files, cloud_run)
    assert alerts.keys() == SERIES.keys()
    numbers = {"var.retention - 172800": 604_800 - 172_800, "var.retention / 2": 604_800 // 2, "var.most_ingests": 20}

    def query(text: str) -> str:
        return re.sub(r"\$\{([^}]*)\}", lambda found: str(numbers.get(found[1], 1)), text).replace('\\"', '"')

    rules = [{"alert": name, "expr": query(said["query"]), "for": said["duration"]} for name, said in alerts.items()]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "alerts", "rules": rules}]}))
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": one, "values": values} for one, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)',
                    "eval_time": "65m",
                    "exp_samples": [{"labels": "{}", "value": int(fires)}],
                }
            ],
        }
        for name, both in [*SERIES.items(), *ALSO]
        for fires, series in zip((True, False), both, strict=True)
    ]
    (tmp_path / "tests.yml").write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "tests": tests}))
    run(program("promtool"), "test", "rules", "tests.yml", cwd=tmp_path)


def test_each_alert_brings_its_runbook(files: Block, cloud_run: Block) -> None:
    """Cloud Monitoring takes 8 KiB of text; Terraform fails on an annotation or a section that is missing."""
    (policy,) = files["resource"]["google_monitoring_alert_policy"]["of"]
    assert "local.runbooks[each.key]" in policy["documentation"][0]["content"]
    sections = {one.partition("\n")[0]: one for one in (ROOT / "docs" / "runbooks.md").read_text().split("\n## ")}
    named = {rule["alert"] for rule in RULES if "alert" in rule} | native(files, cloud_run).keys()
    assert named <= sections.keys()
    assert max(map(len, sections.values())) < 7_500
    for rule in RULES:
        assert "record" in rule or rule["annotations"].keys() == {"summary", "description", "runbook"}, rule


def test_metrics_of_the_processes_are_there_where_alerts_need_them(files: Block, cloud_run: Block, gke: Block) -> None:
    """Without them, `absent(countersink_…)` would fire for ever."""
    local = locals_of(files)
    assert "can(rule.alert) && var.scraped && " in local["from_prometheus"]
    assert gke["module"]["countersink"][0]["scraped"] is True
    assert cloud_run["module"]["countersink"][0]["scraped"] is True
    own = locals_of(cloud_run)["own"]
    assert own["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"] == "https://telemetry.googleapis.com/v1/metrics"
    assert {"gcp.project_id", "location"} == {one.split("=")[0] for one in own["OTEL_RESOURCE_ATTRIBUTES"].split(",")}
    (writer,) = cloud_run["resource"]["google_project_iam_member"]["pushes_metrics"]
    assert (writer["role"], "ingest" in writer["for_each"]) == ("roles/monitoring.metricWriter", True)
    alerts = native(files, cloud_run)
    assert [name for name, alert in alerts.items() if "countersink_" in alert["query"]] == ["CountersinkAbsent"]
    assert {"CountersinkErrors", "CountersinkSlow", "CountersinkAbsent", "CountersinkRestarts"} <= alerts.keys()
    assert {"CountersinkDeadLettersWait", "CountersinkNothingApplied"} <= alerts.keys()
    (policy,) = files["resource"]["google_monitoring_alert_policy"]["of"]
    assert "${google_redis_instance.overlay}" in policy["depends_on"]  # without it, nothing can run yet
    replaced = local["from_google"].keys() & {rule.get("alert") for rule in RULES}
    assert replaced == {"CountersinkNothingApplied"}  # which tells the same


def test_the_service_is_asked_from_outside(cloud_run: Block) -> None:
    check = cloud_run["resource"]["google_monitoring_uptime_check_config"]["outside"][0]
    policy = cloud_run["resource"]["google_monitoring_alert_policy"]["outside"][0]
    for block, message in ((check, UptimeCheckConfig), (policy, AlertPolicy)):
        ParseDict(filled(block, cloud_run, message.pb().DESCRIPTOR), message.pb()())
    assert check["http_check"][0]["path"] == "/version"  # which needs no key
    assert (policy["severity"], policy["notification_channels"]) == ("CRITICAL", "${module.countersink.on_call}")
    assert "outside.uptime_check_id" in policy["conditions"][0]["condition_threshold"][0]["filter"]


def test_criticals_and_warnings_go_to_different_people(files: Block) -> None:
    channels = files["resource"]["google_monitoring_notification_channel"]["mail"][0]["for_each"]
    assert channels == {"CRITICAL": "${var.on_call}", "WARNING": "${var.tickets}"}
    assert "default" not in files["variable"]["on_call"][0]
    assert "default" not in files["variable"]["tickets"][0]


def test_cloud_monitoring_takes_alerts_and_the_dashboard(files: Block, cloud_run: Block) -> None:
    (policy,) = [block for kind, _, block in resources(files) if kind == "google_monitoring_alert_policy"]
    (condition,) = policy["conditions"]
    (query,) = condition["condition_prometheus_query_language"]
    assert query["disable_metric_validation"] is True  # else the first apply in a new project fails with 404
    always = {key: query[key] for key in ("evaluation_interval", "disable_metric_validation")}
    for alert in native(files, cloud_run).values():
        said = {key: alert[key] for key in ("query", "duration")} | always
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
