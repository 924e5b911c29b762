"""Makes of `sbom.json` the list of all packages of an image: those of the system, too, and Python itself.

    docker run --rm --interactive --entrypoint python3 IMAGE -c "$(cat deploy/image_packages.py)" BASE <deploy/sbom.json

It runs in the image and needs nothing but its Python. BASE is the name of the base image, with its digest.
"""

import json
import platform
import re
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

LONGEST = 100
"""Characters of what is the name of a licence, and not its text."""
Component = dict[str, Any]


def component(kind: str, name: str, version: str, licences: list[str], query: str = "") -> Component:
    purl = f"pkg:{kind}/{quote(name)}@{quote(version, safe='')}{query}"
    said = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    return said | ({"licenses": [{"license": {"name": one}} for one in licences]} if licences else {})


def of_the_system(root: Path) -> Iterator[Component]:
    """What dpkg has installed, with the licences that its files of copyright name."""
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)', (root / "etc/os-release").read_text(), re.MULTILINE))
    for entry in (root / "var/lib/dpkg/status").read_text().split("\n\n"):
        said = dict(re.findall(r"^(\w+): (.*)$", entry, re.MULTILINE))
        if said.get("Status") != "install ok installed":
            continue
        copyright_ = root / "usr/share/doc" / said["Package"] / "copyright"
        text = copyright_.read_text(errors="replace") if copyright_.exists() else ""
        names = re.findall(r"^License: *(\S.*?) *$", text, re.MULTILINE)
        licences = sorted({*(names or re.findall(r"/usr/share/common-licenses/([\w.-]+\w)", text))})
        query = f"?arch={said['Architecture']}&distro={release['ID']}-{release['VERSION_ID']}"
        yield component(f"deb/{release['ID']}", said["Package"], said["Version"], licences, query)


def of_python(listed: dict[tuple[str, str], Component]) -> Iterator[Component]:
    """Python, and what is installed for it or for this environment, as it is `listed` or by its own metadata."""
    yield component("generic", "python", platform.python_version(), ["PSF-2.0"])
    base = sysconfig.get_path("purelib", vars={"base": sys.base_prefix})
    for one in distributions(path=[*dict.fromkeys([*sys.path, base])]):
        name, licence = one.metadata["Name"], one.metadata["License-Expression"] or one.metadata["License"] or ""
        its = component("pypi", name, one.version, [licence] if 0 < len(licence) < LONGEST else [])
        yield listed.get((plain(name), one.version), its)


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> None:
    found = json.load(sys.stdin)
    listed = {(plain(one["name"]), one["version"]): one for one in found["components"]}
    there = [*of_the_system(Path("/")), *of_python(listed)]
    found["components"] = [*{one["bom-ref"]: one for one in there}.values()]
    found["metadata"]["properties"] = [{"name": "countersink:base", "value": sys.argv[1]}]
    del found["dependencies"]  # it names packages that only the build needs
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
