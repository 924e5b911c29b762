"""The wheels hold what they should and nothing else, and nobody else's package answers to our names."""

import re
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping
from email.message import Message
from email.parser import Parser
from importlib import import_module
from importlib.metadata import distributions
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest
from packaging.version import Version

import countersink
from tests.meta.checkout import PACKAGES, ROOT, product, pyproject, releases

pytestmark = pytest.mark.check  # builds wheels

CLIENT, *SERVER = PACKAGES
IMPORT_ALL: Final = """
import importlib, pkgutil, sys
wheels, names = sys.argv[1].split(":"), sys.argv[2:]
sys.path[:0] = wheels
for name in names:
    package = importlib.import_module(name)
    modules = [m.name for m in pkgutil.walk_packages(package.__path__, name + ".") if not m.name.endswith("__main__")]
    for module in [name, *modules]:
        try:
            assert importlib.import_module(module).__file__.startswith(tuple(wheels)), module
        except ImportError as error:
            assert "the extra pubsub" in str(error)
"""


@pytest.fixture
def client(dist: Path) -> Path:
    return dist / f"countersink-{countersink.__version__}-py3-none-any.whl"


@pytest.fixture
def server(dist: Path) -> Path:
    return dist / f"countersink_server-{countersink.__version__}-py3-none-any.whl"


def differences(held: Iterable[str], wanted: Iterable[str]) -> set[str]:
    return set(held) ^ set(wanted)


def held(wheel: Path) -> list[str]:
    return [name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name]


def modules(*packages: str) -> list[str]:
    """The files of these packages that a wheel is to hold."""
    names = [path.relative_to(ROOT).as_posix() for path in product()]
    kept = [name for name in names if name.endswith((".py", "/py.typed")) or not name.startswith(f"{CLIENT}/")]
    return [name for name in kept if name.partition("/")[0] in packages]


def metadata(wheel: Path) -> Message:
    (name,) = [name for name in ZipFile(wheel).namelist() if name.endswith(".dist-info/METADATA")]
    return Parser().parsestr(ZipFile(wheel).read(name).decode())


def test_each_wheel_holds_its_packages_whole_and_nothing_else(client: Path, server: Path) -> None:
    assert not differences(held(client), modules(CLIENT))
    assert not differences(held(server), modules(*SERVER))
    assert {f"{name}/py.typed" for name in PACKAGES} <= {*held(client), *held(server)}
    wanted = modules(CLIENT)
    assert differences(wanted, [*wanted, "shared/__init__.py"])
    assert differences(wanted, wanted[1:])


def test_the_client_needs_nothing_else(client: Path, tmp_path: Path) -> None:
    assert metadata(client).get_all("Requires-Dist") == ["google-auth[requests]>=2.35; extra == 'pubsub'"]
    command = [sys.executable, "-S", "-c", IMPORT_ALL, str(client), CLIENT]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_wheels_can_be_imported_without_the_checkout(client: Path, server: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", IMPORT_ALL, f"{client}:{server}", *PACKAGES]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_server_brings_the_command_and_both_say_their_licence(client: Path, server: Path) -> None:
    info = f"countersink_server-{countersink.__version__}.dist-info"
    assert "countersink = countersink_server.__main__:main" in ZipFile(server).read(f"{info}/entry_points.txt").decode()
    for wheel in (client, server):
        said = metadata(wheel)
        assert said["License-Expression"] == "Apache-2.0"
        assert said["Requires-Python"] == ">=3.11"
        licence = ZipFile(wheel).read(f"{wheel.name[: -len('-py3-none-any.whl')]}.dist-info/licenses/LICENSE").decode()
        assert licence == (ROOT / "LICENSE").read_text()


def test_there_is_one_version_a_release_or_behind_the_last_one() -> None:
    project, other = pyproject()["project"], pyproject(ROOT / "countersink")["project"]
    assert countersink.__version__ == project["version"] == other["version"]
    assert f"countersink=={countersink.__version__}" in project["dependencies"]
    last, ours = Version(releases()[0]), Version(countersink.__version__)
    assert ours == last or (ours > last and ours.is_devrelease)


def test_manifests_and_documents_name_the_last_release() -> None:
    places = [*(ROOT / "deploy").rglob("*.yaml"), ROOT / "docs" / "deploy.md"]
    pattern = r"(?:newTag: |_TAG=|IMAGE:|appVersion: |^version: )\"?(\d+\.\d+\.\d+)"
    found = {place: re.findall(pattern, place.read_text(), re.MULTILINE) for place in places}
    named = [place for place, versions in found.items() if versions]
    assert len(named) >= 3
    assert {version for place in named for version in found[place]} == {releases()[0]}


def test_the_sources_of_the_client_hold_what_its_wheel_needs(dist: Path) -> None:
    with tarfile.open(dist / f"countersink-{countersink.__version__}.tar.gz") as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    assert {name.partition("/")[2] for name in modules(CLIENT)} | {"pyproject.toml", "LICENSE", "README.md"} <= names


def owners(path: list[str]) -> Mapping[str, set[str]]:
    """Which distributions on the path ship a top-level module or package of one of our names."""
    found: dict[str, set[str]] = {name: set() for name in PACKAGES}
    for distribution in distributions(path=path):
        for file in distribution.files or ():
            top = file.parts[0]
            top = top.removesuffix(".py") if len(file.parts) == 1 else top
            if top in found:
                found[top].add(distribution.metadata["Name"])
    return found


def test_nobody_else_ships_a_package_of_our_names() -> None:
    assert {name: others - {"countersink", "countersink-server"} for name, others in owners(sys.path).items()} == {
        name: set() for name in PACKAGES
    }


def test_a_foreign_package_of_our_name_would_be_seen(tmp_path: Path) -> None:
    for distribution, module in (("foreign", "shared/__init__.py"), ("single", "ingest.py")):
        file = tmp_path / module
        file.parent.mkdir(exist_ok=True)
        file.touch()
        info = tmp_path / f"{distribution}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1\n")
        (info / "RECORD").write_text(f"{module},,\n")
    found = owners([str(tmp_path)])
    assert found["shared"] == {"foreign"}
    assert found["ingest"] == {"single"}
    assert found["flusher"] == set()


@pytest.mark.parametrize("name", PACKAGES)
def test_our_names_import_our_packages(name: str) -> None:
    """From the checkout (an editable install), or from where the client is installed."""
    file = import_module(name).__file__
    assert file is not None
    home = Path(countersink.__file__).resolve().parents[1]
    assert Path(file).resolve() == home / name / "__init__.py"
