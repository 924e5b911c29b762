"""The lock: every package pinned with hashes, up to date with pyproject.toml, and silent about where it was made."""

import re
from collections.abc import Mapping
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from deploy.sbom import LOCKS
from tests.meta.checkout import ROOT, pyproject, tracked

FILES: Final = (*LOCKS, "requirements/firestore.txt", "requirements/dev.txt")
LINE: Final = re.compile(r"^([a-zA-Z0-9._-]+)==([^\s;]+)(?: ; [^\\]+)? \\$")
HASH: Final = re.compile(r"^    --hash=sha256:[0-9a-f]{64}(?: \\)?$")
COMMENT: Final = re.compile(r"^ *# (?:  -c requirements/(?:server|dev)\.txt|[^/]*)$")


def flaws(text: str) -> list[str]:
    """Lines that are no pin, no hash and no plain comment; and pins without a hash."""
    found = []
    lines = text.splitlines()
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if LINE.match(line):
            if not HASH.match(after):
                found.append(f"without a hash: {line}")
        elif not HASH.match(line) and not COMMENT.match(line):
            found.append(f"unexpected: {line}")
    return found


def pins(text: str) -> dict[str, Version]:
    matches = map(LINE.match, text.splitlines())
    return {canonicalize_name(match[1]): Version(match[2]) for match in matches if match}


def unmet(pinned: Mapping[str, Version], wanted: list[str]) -> list[str]:
    """What pyproject.toml asks for and the lock does not give: run `make lock`."""
    found = []
    for line in wanted:
        requirement = Requirement(line)
        version = pinned.get(canonicalize_name(requirement.name))
        if version is None or version not in requirement.specifier:
            found.append(line)
    return found


@pytest.mark.parametrize("name", FILES)
def test_every_line_is_a_pin_with_hashes(name: str) -> None:
    assert not flaws((ROOT / name).read_text())
    assert "make lock" in (ROOT / name).read_text().splitlines()[0]
    for line in ("--index-url https://example.com/simple", "foo @ https://example.com/foo.whl \\", "foo==1.0 \\"):
        assert flaws(f"# A comment.\n{line}\n")


def test_the_lock_gives_what_pyproject_asks_for() -> None:
    project = pyproject()
    groups = project["dependency-groups"]
    needed = [line for line in project["project"]["dependencies"] if not line.startswith("countersink==")]  # ours
    wanted = [*needed, *project["build-system"]["requires"], *groups["build"]]
    runtime, google, redis, otel, firestore, both = [pins((ROOT / name).read_text()) for name in FILES]
    extras = project["project"]["optional-dependencies"]
    assert not unmet(runtime, wanted)
    assert not unmet(google, [*needed, *extras["google"]])
    assert not unmet(redis, [*needed, *extras["redis"]])
    assert not unmet(otel, [*needed, *extras["otel"]])
    assert not unmet(firestore, [*needed, *extras["firestore"]])
    assert not unmet(both, [*wanted, *groups["dev"]])
    for shipped in (runtime, google, redis, otel, firestore):
        assert shipped.items() <= both.items(), "tests must run on the versions that are shipped"
    assert unmet(runtime, ["aiohttp<1"])
    assert unmet(runtime, ["surely-not-there"])


def test_there_is_one_kind_of_lock() -> None:
    assert not {path.name for path in tracked()} & {"uv.lock", "poetry.lock", "Pipfile.lock", "pdm.lock"}
