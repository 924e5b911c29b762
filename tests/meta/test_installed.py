"""Client and server as they are installed: beside a program's own packages, and without the checkout."""

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.once import once

pytestmark = pytest.mark.check  # builds and installs wheels

FOREIGN: Final = ("shared", "ingest", "flusher")
PROGRAM: Final = """
import sys
if sys.argv[2] == "client first":
    from countersink import Client
import shared, ingest, flusher
from shared.config import NAME
from countersink import Client
assert (shared.MINE, ingest.MINE, flusher.MINE) == ("shared", "ingest", "flusher")
with Client(sys.argv[1]) as counters:
    counters.incr(NAME)
    assert counters.flush(30)
    print(counters.get(NAME, max_age=0).value)
"""
IMPORTS: Final = """
import sys
before = set(sys.modules)
from time import process_time
began = process_time()
import countersink
first = process_time() - began
from countersink import Client
print(first, process_time() - began)
from countersink import AsyncClient
foreign = {"countersink_server", "ingest", "flusher", "shared", "aiohttp", "orjson", "yarl"}
assert not foreign & {name.partition(".")[0] for name in sys.modules}
"""


def run(*command: str, cwd: Path, path: Path) -> str:
    environment = os.environ | {"PYTHONPATH": str(path), "XDG_STATE_HOME": str(cwd / "state")}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def install(what: str, dist: Path, folder: Path) -> None:
    """Have pip put this wheel into the folder, without an index and without what it requires."""
    (built,) = dist.glob(f"{what}-*.whl")
    options = ("--quiet", "--no-index", "--no-deps", "--no-compile", "--target", str(folder))
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(built)], check=True, capture_output=True)


@pytest.fixture
def client(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return once(tmp_path_factory, "client-python", partial(install, "countersink", dist))


@pytest.fixture
def server(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return once(tmp_path_factory, "server", partial(install, "countersink_server", dist))


def test_the_command_says_that_it_is_elsewhere_if_only_the_client_is_installed(client: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(client)}
    command = [sys.executable, "-S", "-m", "countersink", "--version"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "countersink-server" in done.stderr


def test_the_client_runs_beside_packages_of_our_names(client: Path, server: Path, tmp_path: Path) -> None:
    """The service, as it is installed, is asked by a program whose packages are called like ours."""
    both = tmp_path / "both"
    both.mkdir()
    for folder in (client, server):
        for entry in folder.iterdir():
            if not (both / entry.name).exists():
                (both / entry.name).symlink_to(entry)
    for name in FOREIGN:
        (tmp_path / "program" / name).mkdir(parents=True)
        (tmp_path / "program" / name / "__init__.py").write_text(f"MINE = {name!r}\n")
    (tmp_path / "program" / "shared" / "config.py").write_text("NAME = 'visits'\n")
    (tmp_path / "program" / "main.py").write_text(PROGRAM)
    environment = os.environ | {"PYTHONPATH": str(both), "XDG_STATE_HOME": str(tmp_path / "state")}
    command = [sys.executable, "-m", "countersink", "up", "--port", "0", "--data", str(tmp_path / "data")]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as service:
        try:
            assert service.stdout
            found = re.search(r"http://127\.0\.0\.1:\d+", service.stdout.readline())
            assert found
            for value, order in enumerate(("client first", "own first"), 1):
                command = [sys.executable, "-S", str(tmp_path / "program" / "main.py"), found[0], order]
                assert run(*command, cwd=tmp_path, path=client) == f"{value}\n"
        finally:
            service.terminate()
    assert service.returncode == 0


def test_the_client_is_imported_quickly_and_alone(client: Path, tmp_path: Path) -> None:
    """At most 60 ms of processor time, and 200 ms with `Client`. The best of five, since this machine may be busy."""
    times = [
        [*map(float, run(sys.executable, "-S", "-c", IMPORTS, cwd=tmp_path, path=client).split())] for _ in range(5)
    ]
    assert min(first for first, _ in times) < 0.06
    assert min(both for _, both in times) < 0.2
