"""Writes `sbom.json`, the Python packages of the image with hashes and licences, as CycloneDX: `make sbom`.

In the image, `image_packages.py` adds those of the system.
"""

import json
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import metadata
from pathlib import Path
from typing import Any, Final, NamedTuple

from packaging.markers import Marker

ROOT: Final = Path(__file__).parents[1]
FILE: Final = Path(__file__).with_name("sbom.json")
LOCKS: Final = [f"requirements/{name}.txt" for name in ("server", "google", "redis", "otel")]
_LINE: Final = re.compile(
    r"^([\w.-]+)==([\w.+!-]+)(?: ; (.*?))? \\\n((?: {4}--hash=sha256:\w+(?: \\)?\n)+)", re.MULTILINE
)
_IDS: Final = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
"""What packages call a licence, and its SPDX identifier."""
Component = dict[str, Any]


class Pinned(NamedTuple):
    name: str
    version: str
    hashes: list[str]
    """SHA-256 of each file of which pip installs one."""


def pinned() -> list[Pinned]:
    """The packages that the image needs with the Python of its base."""
    (python,) = re.findall(r"^ARG BASE=python:([\d.]+)", (ROOT / "deploy" / "Dockerfile").read_text(), re.MULTILINE)
    base = {"python_version": python, "python_full_version": f"{python}.0", "platform_python_implementation": "CPython"}
    lines = {line for lock in LOCKS for line in _LINE.findall((ROOT / lock).read_text())}
    return [
        Pinned(name, version, re.findall(r"sha256:(\w+)", hashes))
        for name, version, marker, hashes in sorted(lines)
        if not marker or Marker(marker).evaluate(base)
    ]


def _component(package: Pinned) -> Component:
    purl = f"pkg:pypi/{package.name}@{package.version}"
    hashes = [{"alg": "SHA-256", "content": one} for one in package.hashes]
    return {
        "type": "library",
        "bom-ref": purl,
        "name": package.name,
        "version": package.version,
        "licenses": [*_licences(package)],
        "purl": purl,
        "externalReferences": [{"type": "distribution", "url": purl, "comment": "one of these", "hashes": hashes}],
    }


def _licences(package: Pinned) -> Iterator[Component]:
    """What the metadata of the installed package says."""
    said = metadata(package.name)
    assert said["Version"] == package.version, f"{package.name} {said['Version']} is installed: make dev"
    if expression := said["License-Expression"]:
        yield {"expression": expression}
        return
    classifiers = [one.rpartition(" :: ")[2] for one in said.get_all("Classifier", []) if one.startswith("License :: ")]
    for one in [said["License"]] if said["License"] else classifiers:
        known = _IDS.get(one, one)
        yield {"license": {"id" if known in _IDS.values() or "-" in known else "name": known}}


def made() -> Component:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ours = {
        "type": "application",
        "bom-ref": "root-component",
        "name": project["name"],
        "version": project["version"],
        "description": project["description"],
        "licenses": [{"license": {"id": project["license"]}}],
    }
    components = [_component(one) for one in pinned()]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": ours},
        "components": components,
        "dependencies": [{"ref": ours["bom-ref"], "dependsOn": [one["bom-ref"] for one in components]}],
    }


def written(found: Component) -> str:
    """As JSON with a line for each package."""
    components = ",\n".join(json.dumps(one) for one in found["components"])
    rest = json.dumps(found | {"components": []})
    return rest.replace('"components": []', f'"components": [\n{components}\n]') + "\n"


if __name__ == "__main__":
    FILE.write_text(written(made()))
