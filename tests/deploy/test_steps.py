"""The steps of docs/deploy.md are as few as it says, each says what you see, and what they do here is right."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.deploy.programs import run
from tests.meta.checkout import ROOT
from tests.needs import program

TEXT: Final = (ROOT / "docs" / "deploy.md").read_text()
DIGEST: Final = f"sha256:{'0' * 64}"


def steps(title: str) -> list[str]:
    section = TEXT.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return re.split(r"^\d+\. ", section, flags=re.MULTILINE)[1:]


@pytest.mark.parametrize(("title", "number"), [("On Cloud Run", 6), ("On GKE", 10)])
def test_there_are_few_steps_and_each_says_what_you_see(title: str, number: int) -> None:
    found = steps(title)
    assert len(found) == number
    for step in found:
        assert re.search(r"[Yy]ou see|lists|ends with|As step", step), step


def test_the_overlay_has_no_placeholder_left(tmp_path: Path) -> None:
    (command,) = re.findall(r"sed .*?(?=\n\s+kubectl)", steps("On GKE")[7], re.DOTALL)
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    known = {"PROJECT": "my-project", "REGION": "europe-west1", "DIGEST": DIGEST}
    subprocess.run(["bash", "-c", command], cwd=tmp_path, env=os.environ | known, check=True)
    built = run(program("kubectl"), "kustomize", tmp_path / "deploy" / "kubernetes" / "overlays" / "gke")
    assert not re.search(r"PROJECT|CLUSTER|REGION", built)
    image = f"image: europe-west1-docker.pkg.dev/my-project/countersink/countersink@{DIGEST}"
    assert len(re.findall(re.escape(image), built)) == len(re.findall(r"image: ", built)) == 4


def test_what_is_exported_is_whole() -> None:
    """A variable is not known yet on the line that sets it."""
    lines = re.findall(
        r"^ +export (?!COUNTERSINK)[^$(\n]*(?:\$\w+[^$(\n]*)*$", "".join(steps("On Cloud Run")), re.MULTILINE
    )
    script = "\n".join([*lines, 'echo "$IMAGE"'])
    done = subprocess.run(
        ["bash", "-uc", script], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["europe-west1-docker.pkg.dev/my-project/countersink/countersink"]


def test_the_variables_are_those_of_terraform_and_an_upgrade_changes_the_image_alone(tmp_path: Path) -> None:
    upgrading = (ROOT / "docs" / "upgrading.md").read_text()
    assert "-var " not in TEXT + upgrading
    known = {"PROJECT": "my-project", "REGION": "europe-west1", "IMAGE": "image", "DIGEST": DIGEST}

    def written(command: str, file: Path) -> dict[str, str]:
        file.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["bash", "-uc", command], cwd=tmp_path, env=os.environ | known, check=True)
        return dict(re.findall(r'^(\w+) = "(.+)"$', file.read_text(), re.MULTILINE))

    for title, folder in (("On Cloud Run", "cloudrun"), ("On GKE", "gke")):
        (command,) = re.findall(r"printf .*?terraform\.tfvars", "".join(steps(title)), re.DOTALL)
        file = tmp_path / "deploy" / folder / "terraform.tfvars"
        given = written(command, file)
        (change,) = re.findall(r"^sed .*terraform\.tfvars$", upgrading, re.MULTILINE)
        if "image" in given:
            known["DIGEST"] = "sha256:later"
            assert written(change, file) == given | {"image": "image@sha256:later"}
        variables = (ROOT / "deploy" / folder / "variables.tf").read_text()
        blocks = re.findall(r'variable "(\w+)" \{(.*?)\n\}', variables, re.DOTALL)
        assert given.keys() == {name for name, block in blocks if "default" not in block}


def test_cloud_build_tests_before_it_pushes_and_signs() -> None:
    found = yaml.safe_load((ROOT / "deploy" / "cloudbuild.yaml").read_text())
    order = [step["id"] for step in found["steps"]]
    for number, step in enumerate(found["steps"]):
        assert set(step["waitFor"]) - {"-"} <= set(order[:number])
    by_id = {step["id"]: step for step in found["steps"]}
    assert {"test", "packages"} == {*by_id["push"]["waitFor"]}
    assert by_id["packages"]["waitFor"] == ["build"]
    assert "make test\n" in by_id["test"]["args"][1]
    assert found["options"]["requestedVerifyOption"] == "VERIFIED"
    assert found["images"] == ["${_IMAGE}:${_TAG}"]
    said = set(re.findall(r"(_[A-Z]+)=", steps("On Cloud Run")[1]))
    assert said == set(re.findall(r"\$\{(_[A-Z]+)\}", yaml.safe_dump(found)))


DOCKER: Final = """#!/bin/bash
echo "$*" >>calls.txt
case "$1" in
inspect) echo "python@{digest}" ;;
run) shift 6; exec "{python}" "$@" ;;
esac
"""


def test_cloud_build_takes_the_base_by_its_digest_and_lists_the_packages_of_the_image(tmp_path: Path) -> None:
    """The scripts are run; this machine stands for the image."""
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(DOCKER.format(digest=DIGEST, python=sys.executable))
    docker.chmod(0o755)
    steps = {step["id"]: step for step in yaml.safe_load((ROOT / "deploy" / "cloudbuild.yaml").read_text())["steps"]}
    known = {"PATH": f"{docker.parent}:{os.environ['PATH']}", "IMAGE": "image:1"}
    for step in ("build", "packages"):
        assert [one.partition("=")[0] for one in steps[step]["env"]] == ["IMAGE"]
        subprocess.run(["bash", "-c", steps[step]["script"]], cwd=tmp_path, env=known, check=True)
    tag = re.findall(r"^ARG BASE=(.+)$", (ROOT / "deploy" / "Dockerfile").read_text(), re.MULTILINE)
    pull, inspect, build, _ = (tmp_path / "calls.txt").read_text().splitlines()[:4]
    assert [pull.split()[-1], inspect.split()[-1]] == [*tag, *tag]
    assert f"--build-arg BASE=python@{DIGEST} " in build
    assert f"base.name={tag[0]} --label org.opencontainers.image.base.digest={DIGEST} ." in build
    made = json.loads((tmp_path / "image.bom.json").read_text())
    assert made["metadata"]["properties"][0]["value"] == f"python@{DIGEST}"
    assert any(one["purl"].startswith("pkg:deb/") for one in made["components"])
    assert "--source=image.bom.json" in steps["list"]["args"]


@pytest.mark.parametrize(
    "secret",
    [
        "keys.json",
        "deploy/cloudrun/terraform.tfvars",
        "deploy/gke/terraform.tfstate",
        "deploy/gke/terraform.tfstate.backup",
        "deploy/gke/.terraform/terraform.tfstate",
    ],
)
def test_what_the_steps_leave_in_the_checkout_is_neither_committed_nor_uploaded(secret: str, tmp_path: Path) -> None:
    shutil.copy(ROOT / ".gitignore", tmp_path)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    subprocess.run(["git", "check-ignore", "--quiet", secret], cwd=tmp_path, check=True)
    assert "#!include:.gitignore" in (ROOT / ".gcloudignore").read_text().splitlines()
