"""Docker Compose reads the file, and what it starts are commands and settings of ours."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from countersink_server.cli.main import parser_of_all
from deploy import emulators
from shared.config.settings import Settings
from tests.deploy.programs import refuses, run
from tests.meta.checkout import ROOT
from tests.needs import program

FILE: Final = ROOT / "deploy" / "compose.yaml"
OURS: Final = ("provision", "ingest", "flusher")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The file as Compose understands it."""
    said = run(program("docker-compose"), "--file", FILE, "config", "--format", "json")
    return dict(json.loads(said))


def test_compose_refuses_a_wrong_file(compose: dict[str, Any], tmp_path: Path) -> None:
    assert set(OURS) < set(compose["services"])
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(FILE.read_text().replace("read_only: true", "read_onyl: true"))
    assert refuses(program("docker-compose"), "--file", wrong, "config", "--quiet")


def test_commands_and_settings_are_ours(compose: dict[str, Any]) -> None:
    for name in OURS:
        service = compose["services"][name]
        said = parser_of_all().parse_args(service["command"])
        if name != "provision":
            assert (said.host, said.port) == ("0.0.0.0", 8080)  # where the health check of the image asks
        given = Settings.read(service["environment"])
        assert given.spool == "off"  # a container's own disk does not outlive it
        assert Path(service["build"]["context"]) == ROOT
        assert (ROOT / service["build"]["dockerfile"]).is_file()


def test_the_emulators_are_those_of_make_up_emulators(compose: dict[str, Any]) -> None:
    ours = compose["services"]["ingest"]["environment"]
    for name, arguments in (("pubsub", emulators.PUBSUB), ("datastore", emulators.FIRESTORE)):
        *command, where = compose["services"][name]["command"]
        assert command == ["gcloud", *arguments]
        assert ours[f"{name.upper()}_EMULATOR_HOST"] == f"{name}:{where.rpartition(':')[2]}"


def test_only_this_machine_can_connect(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert len(ports) == 3
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}


def test_prometheus_asks_our_processes(compose: dict[str, Any]) -> None:
    scraped = yaml.safe_load(compose["configs"]["prometheus"]["content"])
    (job,) = scraped["scrape_configs"]
    (found,) = job["dns_sd_configs"]
    assert found["names"] == ["ingest", "flusher"]
    assert found["port"] == 8080
    assert Path(compose["configs"]["rules"]["file"]) == ROOT / "deploy" / "prometheus" / "rules.yml"
