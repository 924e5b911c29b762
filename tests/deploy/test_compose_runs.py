"""What compose.yaml starts works together: its commands with its settings, as plain processes on free ports."""

import contextlib
import json
import os
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from deploy.emulators import DRAIN, END, Kept, gcloud_environment
from deploy.processes import free_port
from tests.deploy.test_compose import compose
from tests.meta.checkout import ROOT
from tests.needs import program

__all__ = ["compose"]

LONGEST: Final = 120.0
LOOK: Final = 0.2
OURS: Final = (sys.executable, "-m", "countersink")
HOSTS: Final = {"pubsub": 8085, "datastore": 8081, "redis": 6379}
FLUSHERS: Final = 2


def ask(url: str, method: str = "GET") -> dict[str, Any]:
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=10) as answer:
        text = answer.read()
        return dict(json.loads(text)) if answer.headers["Content-Type"].startswith("application/json") else {}


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + LONGEST
    while True:
        with contextlib.suppress(OSError):  # nothing listens yet, or it answers with an error
            if true():
                return
        assert time.monotonic() < end
        time.sleep(LOOK)


class Composed:
    """Its services as processes."""

    def __init__(self, services: dict[str, Any], folder: Path, all_: contextlib.ExitStack) -> None:
        self._services = services
        self._folder = folder
        self._all = all_
        self._ports = {name: free_port() for name in HOSTS}

    def _here(self, text: str) -> str:
        for name, port in HOSTS.items():
            text = text.replace(f"{name}:{port}", f"127.0.0.1:{self._ports[name]}")
        return text

    def settings(self, name: str) -> dict[str, str]:
        given = self._services[name]["environment"]
        return {setting: self._here(str(value)) for setting, value in given.items()}

    def start(self, name: str, number: int = 0) -> str:
        """Start a service. Returns the address of one of ours."""
        command = list(self._services[name]["command"])
        environment = {key: value for key, value in os.environ.items() if not key.startswith("COUNTERSINK_")}
        port, patience = self._ports.get(name) or free_port(), END
        if command[0] == "gcloud":
            environment = gcloud_environment(self._folder / name)
            command[-1] = command[-1].replace(f"0.0.0.0:{HOSTS[name]}", f"127.0.0.1:{port}")
        elif name == "redis":
            command = [program(command[0]), *command[1:], "--port", str(port), "--dir", str(self._folder)]
        else:
            places = {"0.0.0.0": "127.0.0.1", "8080": str(port)}
            command = [*OURS, *(places.get(word, word) for word in command)]
            environment |= self.settings(name)
            patience = DRAIN
        log = self._folder / f"{name}{number}.log"
        kept = Kept(name, patience, ["sh", "-c", f'exec "$@" >{log} 2>&1', "sh", *command], environment)
        self._all.callback(kept.end)
        return f"http://127.0.0.1:{port}"

    def provision(self) -> None:
        """Until it succeeds, as Compose does."""
        command = [*OURS, *self._services["provision"]["command"]]

        def done() -> bool:
            kept = Kept("provision", DRAIN, command, os.environ | self.settings("provision"))
            try:
                return kept.process.wait(LONGEST) == 0
            finally:
                kept.end()

        until(done)


@pytest.fixture
def composed(compose: dict[str, Any], tmp_path: Path) -> Iterator[Composed]:
    program("gcloud")
    with contextlib.ExitStack() as all_:
        yield Composed(compose["services"], tmp_path, all_)


def test_it_counts_and_prometheus_sees_it(composed: Composed, compose: dict[str, Any], tmp_path: Path) -> None:
    for name in HOSTS:
        composed.start(name)
    composed.provision()
    ingest = composed.start("ingest")
    flushers = [composed.start("flusher", number) for number in range(FLUSHERS)]
    assert compose["services"]["flusher"]["deploy"]["replicas"] == FLUSHERS
    until(lambda: ask(f"{ingest}/readyz") is not None)
    for _ in range(20):
        ask(f"{ingest}/v1/counters/visits", "POST")
    read = ask(f"{ingest}/v1/counters/visits?max_age=0")
    assert (read["value"], read["exact"]) == (20, True)
    until(lambda: ask(f"{ingest}/v1/counters/visits?max_age=0")["pending"] == 0)

    said = yaml.safe_load(compose["configs"]["prometheus"]["content"])
    (job,) = said["scrape_configs"]
    del job["dns_sd_configs"]  # of Docker's network
    job["static_configs"] = [{"targets": [url.removeprefix("http://") for url in (ingest, *flushers)]}]
    (tmp_path / "rules.yml").write_text((ROOT / "deploy" / "prometheus" / "rules.yml").read_text())
    file = tmp_path / "prometheus.yml"
    file.write_text(yaml.safe_dump(said))
    port = free_port()
    options = [
        f"--config.file={file}",
        f"--storage.tsdb.path={tmp_path}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    prometheus = Kept("prometheus", END, [program("prometheus"), *options], os.environ)
    try:
        query = f"http://127.0.0.1:{port}/api/v1/query?query=sum(countersink_applied_increments_total)"
        until(lambda: [one["value"][1] for one in ask(query)["data"]["result"]] == ["20"])
        rules = ask(f"http://127.0.0.1:{port}/api/v1/rules")["data"]["groups"]
        assert sum(len(group["rules"]) for group in rules) == len(
            re.findall(r"^      - (?:alert|record): ", (tmp_path / "rules.yml").read_text(), re.MULTILINE)
        )
    finally:
        prometheus.end()
