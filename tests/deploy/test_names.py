"""Settings and metrics that the files of `deploy`, and its page, name exist in the code."""

import json
import re
from collections.abc import Iterator
from typing import Final

from ingest.api import openapi
from shared.config.settings import table
from tests.deploy.programs import run
from tests.meta.checkout import ROOT, tracked
from tests.meta.test_rules import shown
from tests.needs import program

SETTING: Final = re.compile(r"\bCOUNTERSINK_[A-Z_]+\b")
METRIC: Final = re.compile(r"(?<![\w:./-])countersink_[a-z_]+\b(?!\.)")
PATH: Final = re.compile(r"(?<!googleapis\.com)/(?:v1/[\w/{}-]+|healthz|readyz|metrics)\b")
PACKAGES: Final = {"countersink_server"}
NOT_OURS: Final = {"COUNTERSINK_URL", "COUNTERSINK_KEY"}
"""The commands read these, not the services."""


def texts() -> Iterator[tuple[str, str]]:
    for path in tracked():
        name = path.relative_to(ROOT).as_posix()
        if name == "docs/deploy.md" or (name.startswith("deploy/") and path.suffix != ".py"):
            yield name, path.read_text()


def unknown(text: str) -> set[str]:
    settings = {name for name, _, _ in table()} | NOT_OURS
    of_counters = set(re.findall(r"# TYPE (\w+)", (ROOT / "ingest" / "api" / "counters.py").read_text()))
    metrics = shown() | PACKAGES | of_counters
    return (set(SETTING.findall(text)) - settings) | (set(METRIC.findall(text)) - metrics)


def test_each_name_exists() -> None:
    found = dict(texts())
    assert {"deploy/Dockerfile", "docs/deploy.md", "deploy/countersink.service"} <= found.keys()
    assert {name: unknown(text) for name, text in found.items()} == {name: set() for name in found}
    assert unknown("COUNTERSINK_NO=1 countersink_no_total") == {"COUNTERSINK_NO", "countersink_no_total"}


def test_each_path_exists() -> None:
    paths = [re.sub(r"\{\w+\}", "[^/]+", path) for path in json.loads(openapi.document(""))["paths"]]
    named = {path for _, text in texts() for path in PATH.findall(text)}
    assert {"/v1/increments", "/readyz", "/metrics"} <= named
    assert not [path for path in named if not any(re.fullmatch(known, path) for known in paths)]


def test_no_manifest_is_forgotten() -> None:
    """Each file of the manifests is part of an overlay: none is there that nothing checks."""
    folder = ROOT / "deploy" / "kubernetes"
    for overlay in (folder / "overlays").iterdir():
        assert run(program("kubectl"), "kustomize", overlay)
    for kustomization in folder.rglob("kustomization.yaml"):
        text = kustomization.read_text()
        beside = {path.name for path in kustomization.parent.glob("*.yaml")} - {kustomization.name}
        assert beside == set(re.findall(r"^  - ([\w.-]+\.yaml)$", text, re.MULTILINE))
