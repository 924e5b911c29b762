"""What the guide and the runbooks say to type can be typed, on each platform, and does what they say. The steps of
docs/deploy.md are as few as it says, and each says what you see.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import yaml

from countersink_server.cli.main import parser_of_all
from ingest.access.keys import find, parse
from tests.deploy.programs import run
from tests.meta.checkout import ROOT
from tests.needs import program

GUIDE: Final = (ROOT / "docs" / "deploy.md").read_text()
DIGEST: Final = f"sha256:{'0' * 64}"
RUNBOOKS: Final = (ROOT / "docs" / "runbooks.md").read_text()
PLATFORMS: Final = re.findall(r"```bash\n(.*?)```", RUNBOOKS, re.DOTALL)
SECTIONS: Final = {one.partition("\n")[0]: one for one in RUNBOOKS.split("\n## ")[1:]}
FUNCTIONS: Final = ("cs", "flushers", "keys", "logs", "restart")
REGION: Final = {"REGION": "europe-west1"}


def shell(script: str, cwd: Path = ROOT, **more: str) -> str:
    known = os.environ | REGION | more
    done = subprocess.run(["bash", "-c", script], cwd=cwd, env=known, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def steps(title: str) -> list[str]:
    section = GUIDE.partition(f"## {title}\n")[2].partition("\n## ")[0]
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
    shell(command, tmp_path, **known)
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
    assert "-var " not in GUIDE + upgrading
    known = {"PROJECT": "my-project", "REGION": "europe-west1", "IMAGE": "image", "DIGEST": DIGEST}

    def written(command: str, file: Path) -> dict[str, str]:
        file.parent.mkdir(parents=True, exist_ok=True)
        shell(f"set -u; {command}", tmp_path, **known)
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


def test_each_platform_has_the_same_functions() -> None:
    assert len(PLATFORMS) == 3
    for block in PLATFORMS:
        named = re.findall(r"^declare -f (\w+)$", shell(f"{block}\ndeclare -F"), re.MULTILINE)
        assert tuple(named) == FUNCTIONS


@pytest.mark.parametrize("name", SECTIONS)
def test_each_alert_says_what_to_type_and_when_it_is_over(name: str) -> None:
    (typed,) = re.findall(r"```console\n(.*?)```", SECTIONS[name], re.DOTALL)
    assert "**Over** when " in SECTIONS[name]
    for line in typed.splitlines():
        program, *words = shlex.split(line)
        if program in ("cs", "keys"):
            parser_of_all().parse_args(words if program == "cs" else ["keys", *words])
        elif program in ("logs", "restart"):
            assert words in (["ingest"], ["flusher"])
        elif program == "flushers":
            assert int(words[0]) > 2
        else:
            assert program in ("df", "gcloud", "journalctl", "kubectl", "sudo", "sysctl", "terraform", "timedatectl")


def test_the_logs_have_what_the_platform_says_and_what_ended_processes_said() -> None:
    stubs = "\n".join(f"{name}() {{ printf '%s\\n' \"$@\"; }}" for name in ("gcloud", "kubectl"))
    cloud_run, gke = (shell(f"{block}\n{stubs}\nlogs flusher 2h") for block in PLATFORMS[:2])
    assert {"textPayload", "jsonPayload.message", "protoPayload.status.message"} < set(re.findall(r"[\w.]+", cloud_run))
    assert re.findall(r"--previous=(\w+)", gke) == ["true", "false"]
    assert gke.count("--since=2h") == 2
    flags = subprocess.run([program("kubectl"), "logs", "--help"], capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"--[a-z-]+", gke)) - {"--namespace"} <= set(re.findall(r"--[a-z-]+", flags))


def test_a_command_reaches_the_program_whole() -> None:
    stubs = "\n".join(f"{name}() {{ printf '%s\\n' \"$@\"; }}" for name in ("gcloud", "kubectl", "sudo"))
    for block in PLATFORMS:
        said = shell(f"{block}\n{stubs}\ncs dlq replay --all 'a,b c'").splitlines()
        assert "--args=^|^dlq|replay|--all|a,b c" in said or said[-4:] == ["dlq", "replay", "--all", "a,b c"]


STUBS: Final = """
gcloud() { case "$*" in
  *"versions access"*) cat store ;;
  *"versions add"*) cp "$(printf '%s\\n' "$@" | sed -n 's/^--data-file=//p')" store; echo added ;;
  *) echo "$*"; [ "$(cat store)" != "$(cat before)" ] && echo "$*" >>restarts ;;
esac; }
kubectl() { case "$*" in
  *"get secret"*) base64 store ;;
  *create*) command kubectl "$@" ;;
  *) sed -n 's/^  keys.json: //p' | base64 --decode >new && mv new store ;;
esac; }
sudo() { if [ "$1" = systemctl ]; then echo "$*" >>restarts; else
  shift 2; cp store keys.json; COUNTERSINK_KEYS_FILE=keys.json .venv/bin/countersink "$@"; cp keys.json store; fi; }
"""


@pytest.mark.parametrize("platform", range(3))
def test_keys_are_replaced_without_a_moment_in_which_neither_is_valid(platform: int, tmp_path: Path) -> None:
    """With the command itself, and kubectl where it needs no cluster."""
    program("kubectl")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    script = f"{PLATFORMS[platform]}\n{STUBS}"
    file = tmp_path / "store"
    first = shell(".venv/bin/countersink keys new old --scope read", tmp_path, COUNTERSINK_KEYS_FILE="store").strip()
    before = file.read_bytes()
    (tmp_path / "before").write_bytes(before)
    (tmp_path / "tmp").mkdir()
    known = {"TMPDIR": str(tmp_path / "tmp"), "PATH": f"{Path(program('kubectl')).parent}:{os.environ['PATH']}"}
    assert "old" in shell(f"{script}\nkeys list", tmp_path, **known)
    assert file.read_bytes() == before
    assert not (tmp_path / "restarts").exists()
    second = shell(f"{script}\nkeys new new --scope read", tmp_path, **known).strip()
    both = {key.id: key for key in parse(file.read_bytes()).keys}
    assert find(both, first)
    assert find(both, second)
    shell(f"{script}\nkeys revoke old", tmp_path, **known)
    left = parse(file.read_bytes())
    assert [key.id for key in left.keys] == ["new"]
    assert left.secret == parse(before).secret  # else receipts would become unknown
    assert not [*(tmp_path / "tmp").iterdir()]
    restarts = (tmp_path / "restarts").read_text().splitlines() if (tmp_path / "restarts").exists() else []
    assert len(restarts) == (0 if platform == 1 else 2)  # Kubernetes shows processes the change


def test_a_backup_is_restored_on_one_machine(tmp_path: Path) -> None:
    """As the guide says, with another folder in place of /var/lib, and without systemd."""
    (block,) = re.findall(r"```console\n(sudo ls .*?)```", (ROOT / "docs" / "data-file.md").read_text(), re.DOTALL)
    countersink = f"{sys.executable} -m countersink_server"
    data, backup = tmp_path / "countersink", tmp_path / "countersink-backup" / "2026-01-01T033000.db"
    backup.parent.mkdir()
    prelude = f"""
    set -e
    export XDG_STATE_HOME={tmp_path}/state
    sudo() {{ case "$1" in systemctl) echo "$2" ;; *) "$@" ;; esac; }}
    cs() {{ {countersink} "$@" --data {data}; }}
    """
    shell(f"{prelude} COUNTERSINK_EXISTING=yes cs provision; cs incr a --by 3; cs backup {backup}; cs incr a --by 4")
    said = shell(prelude + block.replace("/var/lib", str(tmp_path)) + "cs get a")
    assert [one for one in said.splitlines() if one in ("stop", "start")] == ["stop", "start"]
    assert said.splitlines()[-1].split()[-1] == "3"


def test_the_restored_database_of_gke_is_that_of_the_overlay_and_of_terraform(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "google-cloud-outages.md").read_text()
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    for root in ("gke", "cloudrun"):
        variables = tmp_path / "deploy" / root / "terraform.tfvars"
        variables.write_text('project = "p"\ndatabase = "before"\n')
        lines = re.findall(rf"^ +((?:sed|echo) .*deploy/{root}/.*)$", text, re.MULTILINE)
        assert len(lines) == 2
        shell("\n".join(lines), tmp_path)
        assert variables.read_text() == 'project = "p"\ndatabase = "restored"\n'
    (line,) = re.findall(r"^ +(sed .*kustomization.yaml)$", text, re.MULTILINE)
    shell(line, tmp_path)
    built = run(program("kubectl"), "kustomize", tmp_path / "deploy" / "kubernetes" / "overlays" / "gke")
    assert "COUNTERSINK_STORE: datastore://PROJECT/restored\n" in built
