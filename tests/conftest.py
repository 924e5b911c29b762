"""What holds for all tests, and which of them `make test` runs."""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from countersink import calls
from tests.meta.checkout import build_packages
from tests.once import once
from tests.processes.moved_clocks import LIBRARY, Clocks, build
from tests.world.patient_loop import PatientLoop, TidyLoop

pytest_plugins = ("tests.spent", "tests.world.databases")

settings.register_profile(
    "countersink",
    derandomize=True,  # Hypothesis finds the same examples each time
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("countersink")

for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"):
    os.environ.pop(name, None)
sys.dont_write_bytecode = False  # each process that a test starts would compile everything
os.environ["JAVA_TOOL_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # emulators live too short to be optimised
os.environ["PYTHONWARNINGS"] = "ignore::FutureWarning"  # for processes that tests start, too; pyproject.toml says why
os.environ["SSL_CERT_FILE"] = os.devnull  # aiohttp reads all certificates when it is imported; no test uses TLS
calls.__dict__["READ_PATIENCE"] = calls.PATIENCE  # the machine may stand still for seconds

CHECK_FOLDERS: Final = ("browsers", "clients", "deploy", "emulators", "reliability")
"""`make check` alone runs these folders, and tests of other folders that are marked `check` or need an emulator."""
TEST_FOLDERS: Final = ("cli", "contracts", "http", "unit")
"""`make check` runs nothing of these, and does not look into them: that would take half of its time to get started."""
EMULATORS: Final = frozenset(("on_emulators", "redis", "start_redis", "pubsub_host", "firestore_host", "older_host"))
"""Fixtures that start one."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part", choices=("test", "check"), help="only what `make test` runs, or only what `make check` adds"
    )
    parser.addoption("--first-cases", action="store_true", help="of each test only its first case")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "check: needs more than Python, or takes long: `make check` alone runs it")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    left_out = {"test": CHECK_FOLDERS, "check": TEST_FOLDERS}.get(config.getoption("--part"), ())
    return True if collection_path.parent == Path(__file__).parent and collection_path.name in left_out else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part, first_cases = config.getoption("--part"), config.getoption("--first-cases")
    seen: set[str] = set()
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        if _folder(item) in TEST_FOLDERS and _in_check(item):
            raise pytest.UsageError(f"nobody would run {item.nodeid}: make check does not look into its folder")
        test = item.nodeid.partition("[")[0]
        wanted = part in {None, "check" if _in_check(item) else "test"} and not (first_cases and test in seen)
        (kept if wanted else left).append(item)
        seen.add(test)
    config.hook.pytest_deselected(items=left)
    items[:] = kept


def _in_check(item: pytest.Item) -> bool:
    emulated = not EMULATORS.isdisjoint(getattr(item, "fixturenames", ()))
    return emulated or _folder(item) in CHECK_FOLDERS or item.get_closest_marker("check") is not None


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """In a test on an emulator, this process may have leases by the emulator's clock, which goes on."""
    usual = _in_check(item) and _folder(item) != "processes"
    return {"usual": TidyLoop} if usual else {"patient": PatientLoop}


def _folder(item: pytest.Item) -> str:
    return _folder_of(item.path)


@cache
def _folder_of(file: Path) -> str:
    return file.relative_to(Path(__file__).parent).parts[0]


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Tests wait for processes for half of their time, and those of `make check` for emulators and browsers, too."""
    return (os.cpu_count() or 1) * (3 if config.getoption("--part") == "check" else 2)


@pytest.fixture(autouse=True, scope="session")
def _state(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What processes remember of their files is no business of whoever runs the tests."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session")
def clock_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return once(tmp_path_factory, "clocks", build) / LIBRARY


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheels and sources of client and server, as `make dist` builds them."""
    return once(tmp_path_factory, "dist", build_packages)


@pytest.fixture
def clocks(clock_library: Path, tmp_path: Path) -> Callable[[], Clocks]:
    """Makes clocks for one process each; see `tests.processes.moved_clocks`."""
    return partial(Clocks, clock_library, tmp_path)
