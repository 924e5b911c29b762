"""The list of packages names those that are pinned, and is what its program writes."""

import json
import re
from typing import Any, Final

from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation import make_schemabased_validator

from deploy.sbom import FILE, LOCKS, made
from tests.meta.checkout import ROOT

FOUND: Final[dict[str, Any]] = json.loads(FILE.read_text())


def test_it_is_what_make_sbom_writes() -> None:
    assert made() == FOUND


def test_it_names_each_package_of_the_image() -> None:
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    assert set(re.findall(r"--requirement (\S+)", dockerfile)) == {*LOCKS}
    pinned = {
        (line.partition("==")[0], line.partition("==")[2].split()[0])
        for lock in LOCKS
        for line in (ROOT / lock).read_text().splitlines()
        if "==" in line and line[0] not in " #"
    }
    assert {(one["name"], one["version"]) for one in FOUND["components"]} == pinned
    assert len(FOUND["components"]) == len(pinned) > 20


def test_it_is_valid() -> None:
    version = SchemaVersion.from_version(FOUND["specVersion"])
    validator = make_schemabased_validator(OutputFormat.JSON, version)
    assert validator.validate_str(FILE.read_text()) is None
    assert validator.validate_str(FILE.read_text().replace('"components"', '"componets"')) is not None
