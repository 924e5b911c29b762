"""The image is built from the Dockerfile, and counts as a user without rights on a read-only root."""

import json
import logging
import os
import re
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from countersink_server.cli.main import parser_of_all
from countersink_server.serve.logs import JsonLines
from deploy.processes import free_port
from deploy.sbom import FILE
from shared.config.settings import Settings
from tests.deploy.programs import MOST_SECONDS, downloaded, refuses, run
from tests.deploy.test_sbom import flaw
from tests.meta.checkout import ROOT
from tests.needs import missing, program

DOCKERFILE: Final = ROOT / "deploy" / "Dockerfile"
USER: Final = "65532"
DATA: Final = "/var/lib/countersink"
CACHE: Final = "/var/cache/countersink"
BASE_PYTHON: Final = "3.11"
"""The Python of Debian 12, of which the base is made."""
PACKAGES: Final = (
    *("base-files", "base-passwd", "coreutils", "dash", "debconf", "diffutils", "dpkg", "findutils", "grep"),
    *("libc-bin", "mawk", "perl-base", "sed", "python3", "python3-venv"),
)
"""Those of the base: Python, a shell, and what it takes to install them."""
START_UP: Final = 60.0


class Image(NamedTuple):
    root: Path
    config: dict[str, Any]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not one of pytest's: the user of the image has to get there, and each other run of pytest forbids that anew."""
    with tempfile.TemporaryDirectory(prefix="countersink-image-") as name:
        yield Path(name)


@pytest.fixture
def image(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """Built by buildah on a base of Debian's packages. No registry of images is needed."""
    if os.geteuid() != 0:
        missing("only root can mount an image")
    tools = {name: program(name) for name in ("buildah", "mmdebstrap", "bwrap", "setpriv")}
    files = ("--root", folder / "store", "--runroot", folder / "run")

    def buildah(*words: str | Path) -> str:
        return run(tools["buildah"], *files, *words, more={"BUILDAH_ISOLATION": "chroot"}).strip()

    def mounted(container: str) -> Path:
        return Path(buildah("mount", container))

    try:
        base = buildah("from", "scratch")
        included = f"--include={','.join(PACKAGES)}"
        run(tools["mmdebstrap"], "--quiet", "--variant=custom", included, "bookworm", mounted(base))
        buildah("commit", "--quiet", "--rm", base, "localhost/base")
        wheels, configuration = downloaded(tmp_path_factory, BASE_PYTHON), folder / "pip.conf"
        configuration.write_text("[global]\nno-index = true\nfind-links = /wheels\n")
        volumes = ("--volume", f"{configuration}:/etc/pip.conf:ro", "--volume", f"{wheels}:/wheels:ro")
        arguments = ("--format", "docker", "--layers=false", "--pull-never", "--build-arg", "BASE=localhost/base")
        buildah("build", *arguments, *volumes, "--file", DOCKERFILE, "--tag", "localhost/countersink", ROOT)
        said = json.loads(buildah("inspect", "--type", "image", "localhost/countersink"))
        root = mounted(buildah("from", "--pull-never", "localhost/countersink"))
        for above in root.parents:  # the user of the image has to get there
            if above == Path("/"):
                break
            above.chmod(above.stat().st_mode | 0o111)
        yield Image(root, said["Docker"]["config"])
    finally:
        buildah("umount", "--all")


def within(image: Image, folders: Path, *, owner: int = int(USER), mode: int = 0o700) -> list[str]:
    """The command that runs another one in the image, as a container with a read-only root would. `owner` and `mode`
    are those of the volumes; their group is that of the image.
    """
    for folder in (folders / "data", folders / "cache"):
        folder.mkdir()
        os.chown(folder, owner, int(USER))
        folder.chmod(mode)
    for above in (folders, *folders.parents[:-1]):
        above.chmod(above.stat().st_mode | 0o111)
    command = [program("setpriv"), "--reuid", USER, "--regid", USER, "--clear-groups"]
    command += [program("bwrap"), "--unshare-all", "--share-net", "--die-with-parent", "--clearenv"]
    command += ["--ro-bind", str(image.root), "/", "--proc", "/proc", "--dev", "/dev"]
    command += ["--bind", str(folders / "data"), DATA, "--bind", str(folders / "cache"), CACHE]
    command += ["--chdir", image.config["WorkingDir"]]
    for variable in image.config["Env"]:
        command += ["--setenv", *variable.split("=", 1)]
    return command


def ask(url: str | urllib.request.Request, data: bytes | None = None) -> dict[str, Any]:
    """The answer, as soon as there is one."""
    end = time.monotonic() + START_UP
    while True:
        try:
            with urllib.request.urlopen(url, data, timeout=5) as answer:
                return dict(json.load(answer))
        except (urllib.error.URLError, ConnectionError) as error:
            if time.monotonic() > end:
                raise TimeoutError(str(url)) from error
            time.sleep(0.05)  # between two polls


def test_hadolint_finds_nothing(tmp_path: Path) -> None:
    hadolint = program("hadolint")
    run(hadolint, DOCKERFILE)
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM debian\nRUN cd /x && sudo ls\n")
    assert refuses(hadolint, bad)


def test_the_image_logs_for_programs() -> None:
    """Cloud Logging takes text on standard error for an error."""
    given = dict(re.findall(r"(COUNTERSINK_\w+)=(\S+)", DOCKERFILE.read_text()))
    assert Settings.read(given).log_format == "json"
    assert JsonLines("p").format(logging.LogRecord("n", logging.INFO, "", 0, "a", None, None)).count('"INFO"') == 1


def the_image_says_how_it_runs(config: dict[str, Any]) -> None:
    assert config["User"] == f"{USER}:{USER}"
    assert config["Entrypoint"] == ["countersink"]
    assert parser_of_all().parse_args(config["Cmd"]).data == DATA
    assert "8080/tcp" in config["ExposedPorts"]
    assert config["Healthcheck"]["Test"][:2] == ["CMD", "python3"]


def it_counts_without_rights_on_a_read_only_root(image: Image, tmp_path: Path) -> None:
    port = free_port()
    base = within(image, tmp_path)
    up = [*image.config["Entrypoint"], "up", "--host", "0.0.0.0", "--data", DATA, "--port", str(port)]
    refused = subprocess.run([*base, *up], capture_output=True, text=True, timeout=START_UP, check=False)
    assert refused.returncode == 1
    assert "insecure" in refused.stderr  # nobody is to run it for everybody by accident
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen([*base, *up, "--insecure"], stdout=out, stderr=out)
    try:
        url = f"http://127.0.0.1:{port}"
        assert ask(f"{url}/readyz") == {"status": "ready"}
        assert ask(f"{url}/v1/counters/a?by=3", b"")["accepted"] == 1
        assert ask(f"{url}/v1/counters/a")["value"] == 3
        health = [word.replace("8080", str(port)) for word in image.config["Healthcheck"]["Test"][1:]]
        run(*base, *health)
        written = subprocess.run([*base, "touch", "/opt/x"], capture_output=True, text=True, check=False)
        assert "Read-only file system" in written.stderr
        user = run(*base, "id", "--user").strip()
        assert user == USER
        assert (tmp_path / "data" / "countersink.db").stat().st_uid == int(USER)
    finally:
        process.terminate()
        code = process.wait(START_UP)
    assert code in (0, -15, 143), log.read_text()
    assert refuses(*base, *health)  # the health check can fail


def it_runs_by_the_manifests_with_sqlite(image: Image, tmp_path: Path) -> None:
    """The commands and settings are those of the overlay; the volume belongs to root, and its group is `fsGroup`."""
    built = run(program("kubectl"), "kustomize", ROOT / "deploy" / "kubernetes" / "overlays" / "sqlite")
    objects = [one for one in yaml.safe_load_all(built) if one]
    (settings,) = [one["data"] for one in objects if one["kind"] == "ConfigMap"]
    workloads = {
        one["metadata"]["name"]: one["spec"]["template"] for one in objects if "template" in one.get("spec", {})
    }
    arguments = {name: one["spec"]["containers"][0]["args"] for name, one in workloads.items()}
    base = within(image, tmp_path, owner=0, mode=0o2775)
    for name, value in settings.items():
        base += ["--setenv", name, value]
    (tmp_path / "keys").mkdir()
    with_keys = [*base, "--tmpfs", "/etc", "--bind", str(tmp_path / "keys"), "/etc/countersink"]
    os.chown(tmp_path / "keys", int(USER), int(USER))
    key = run(*with_keys, "countersink", "keys", "new", "test", "--scope", "write,read").strip()
    port = str(free_port())
    up = [port if word == "8080" else word for word in arguments["ingest"]]
    too_early = [*with_keys, "countersink", *up]
    refused = subprocess.run(too_early, capture_output=True, text=True, timeout=START_UP, check=False)
    assert refused.returncode == 1
    assert "`countersink provision` makes a new one" in refused.stderr
    run(*base, "countersink", *arguments["provision"])  # the Job has no keys
    process = subprocess.Popen([*with_keys, "countersink", *up])
    try:
        url = f"http://127.0.0.1:{port}"
        assert ask(f"{url}/readyz") == {"status": "ready"}
        counted = urllib.request.Request(f"{url}/v1/counters/a", b"", {"Authorization": f"Bearer {key}"})
        assert ask(counted)["accepted"] == 1
    finally:
        process.terminate()
        process.wait(START_UP)


def neither_pip_nor_what_builds_is_in_the_image(image: Image) -> None:
    (packages,) = (image.root / "opt" / "countersink" / "lib").glob("python3*/site-packages")
    names = {path.name.partition("-")[0] for path in packages.glob("*.dist-info")}
    assert {"countersink", "countersink_server", "aiohttp", "google_cloud_pubsub", "redis"} <= names
    assert not names & {"pip", "hatchling", "editables", "pytest"}


def its_packages_can_be_listed(image: Image, tmp_path: Path) -> None:
    program = (ROOT / "deploy" / "image_packages.py").read_text()
    said = run(*within(image, tmp_path), "python3", "-c", program, "base", told=FILE.read_text())
    assert flaw(said) is None
    found = {one["name"]: one for one in json.loads(said)["components"]}
    assert {"libc6", "python", "countersink-server", "aiohttp"} <= found.keys()
    assert found["aiohttp"]["externalReferences"][0]["hashes"]
    assert not found.keys() & {"hatchling", "editables"}


@pytest.mark.timeout(MOST_SECONDS * 2)
def test_the_image_is_built_and_runs(image: Image, folder: Path) -> None:
    """One test, since each worker that has one of them would build an image."""
    the_image_says_how_it_runs(image.config)
    neither_pip_nor_what_builds_is_in_the_image(image)
    checks = (
        it_counts_without_rights_on_a_read_only_root,
        it_runs_by_the_manifests_with_sqlite,
        its_packages_can_be_listed,
    )
    for number, check in enumerate(checks):
        own = folder / str(number)
        own.mkdir()
        check(image, own)
