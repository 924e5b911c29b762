"""The list of packages has those of the image, with hashes and licences, and is what its programs write."""

import json
import re
import subprocess
import sys
from typing import Any, Final

from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation import make_schemabased_validator

from deploy.sbom import FILE, LOCKS, made, written
from tests.meta.checkout import ROOT

TEXT: Final = FILE.read_text()
FOUND: Final[dict[str, Any]] = json.loads(TEXT)
PROGRAM: Final = (ROOT / "deploy" / "image_packages.py").read_text()


def flaw(text: str) -> object:
    version = SchemaVersion.from_version(FOUND["specVersion"])
    return make_schemabased_validator(OutputFormat.JSON, version).validate_str(text)


def test_it_is_what_make_sbom_writes() -> None:
    assert written(made()) == TEXT


def test_it_names_each_package_of_the_image_with_its_hashes_and_licences() -> None:
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    assert set(re.findall(r"--requirement (\S+)", dockerfile)) == {*LOCKS}
    locks = "".join((ROOT / lock).read_text() for lock in LOCKS)
    pinned = set(re.findall(r"^([\w.-]+)==([^ ]+)", locks, re.MULTILINE))
    listed = {(one["name"], one["version"]) for one in FOUND["components"]}
    assert len(FOUND["components"]) == len(listed) > 40
    assert {name for name, _ in pinned - listed} == {"async-timeout"}  # only Python 3.11.2 and earlier need it
    hashes = [found["content"] for one in FOUND["components"] for found in one["externalReferences"][0]["hashes"]]
    needless = re.search(r"^async-timeout==.*\n((?: .*\n)+)", locks, re.MULTILINE)
    assert needless is not None
    assert {*hashes} == set(re.findall(r"sha256:(\w{64})", locks)) - set(re.findall(r"sha256:(\w{64})", needless[1]))
    assert all(one["licenses"] for one in FOUND["components"])


def test_it_is_valid() -> None:
    assert flaw(TEXT) is None
    assert flaw(TEXT.replace('"components"', '"componets"')) is not None


def test_the_list_of_an_image_has_its_system_too() -> None:
    """Here, the machine stands for the image. Only some of its many packages are compared with the schema; in
    `test_image`, all of the image are.
    """
    command = [sys.executable, "-c", PROGRAM, "python@sha256:1"]
    done = subprocess.run(command, input=TEXT, capture_output=True, text=True, check=True)
    made = json.loads(done.stdout)
    some = [one for one in made["components"] if one["name"] in {"libc6", "zlib1g", "aiohttp", "python"}]
    assert len(some) >= 4
    assert flaw(json.dumps(made | {"components": some})) is None
    assert made["metadata"]["properties"] == [{"name": "countersink:base", "value": "python@sha256:1"}]
    by_kind: dict[str, dict[str, Any]] = {}
    for one in made["components"]:
        by_kind.setdefault(one["purl"].partition("/")[0], {})[one["name"]] = one
    (libc,) = [one for name, one in by_kind["pkg:deb"].items() if name == "libc6"]
    assert re.fullmatch(r"pkg:deb/debian/libc6@[^:]+\?arch=\w+&distro=debian-\d+", libc["purl"])
    assert {"license": {"name": "LGPL-2.1"}} in libc["licenses"]  # its file of copyright is free text
    assert by_kind["pkg:deb"]["zlib1g"]["licenses"] == [{"license": {"name": "Zlib"}}]
    assert {"countersink-server", "pip"} <= by_kind["pkg:pypi"].keys()
    assert by_kind["pkg:pypi"]["aiohttp"]["externalReferences"][0]["hashes"]
    assert by_kind["pkg:generic"].keys() == {"python"}
