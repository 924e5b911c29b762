"""The wheel holds what it should and nothing else, and nobody else's package answers to our names."""

import subprocess
import sys
from collections.abc import Iterable, Mapping
from email.parser import Parser
from importlib import import_module
from importlib.metadata import distributions
from pathlib import Path
from zipfile import ZipFile

import pytest

import countersink
from tests.meta.checkout import PACKAGES, ROOT, product, pyproject

IMPORT_ALL = """
import importlib, pkgutil, sys
wheel, *names = sys.argv[1:]
sys.path.insert(0, wheel)
for name in names:
    package = importlib.import_module(name)
    modules = [m.name for m in pkgutil.walk_packages(package.__path__, name + ".") if not m.name.endswith("__main__")]
    for module in [name, *modules]:
        assert importlib.import_module(module).__file__.startswith(wheel), module
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.iterdir()
    return built


def differences(held: Iterable[str], wanted: Iterable[str]) -> set[str]:
    return set(held) ^ set(wanted)


def test_the_wheel_holds_our_packages_whole_and_nothing_else(wheel: Path) -> None:
    info = f"countersink-{countersink.__version__}.dist-info"
    names = ZipFile(wheel).namelist()
    wanted = [path.relative_to(ROOT).as_posix() for path in product()]
    assert not differences([name for name in names if not name.startswith(info)], wanted)
    assert {name.partition("/")[0] for name in names} == {*PACKAGES, info}
    assert {f"{name}/py.typed" for name in PACKAGES} <= set(names)
    assert differences(wanted, [*wanted, "tests/__init__.py"])
    assert differences(wanted, wanted[1:])


def test_the_wheel_can_be_imported_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", IMPORT_ALL, str(wheel), *PACKAGES]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_wheel_brings_the_command_and_says_its_licence(wheel: Path) -> None:
    info = f"countersink-{countersink.__version__}.dist-info"
    with ZipFile(wheel) as files:
        assert "countersink = countersink.cli:main" in files.read(f"{info}/entry_points.txt").decode().splitlines()
        metadata = Parser().parsestr(files.read(f"{info}/METADATA").decode())
        licence = files.read(f"{info}/licenses/LICENSE").decode()
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert "TERMS AND CONDITIONS FOR USE" in licence
    assert "END OF TERMS AND CONDITIONS" in licence


def test_there_is_one_version() -> None:
    assert countersink.__version__ == pyproject()["project"]["version"]


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
    assert {name: others - {"countersink"} for name, others in owners(sys.path).items()} == {
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
    """From the checkout (an editable install), or from where countersink itself is installed."""
    file = import_module(name).__file__
    assert file is not None
    home = Path(countersink.__file__).resolve().parents[1]
    assert Path(file).resolve() == home / name / "__init__.py"
