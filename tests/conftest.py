"""What holds for all tests: Hypothesis finds the same examples each time, and takes the time it needs."""

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.processes.moved_clocks import Clocks, NoCompilerError, build

settings.register_profile(
    "countersink",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("countersink")

for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"):
    os.environ.pop(name, None)
sys.dont_write_bytecode = False  # each process that a test starts would compile everything
os.environ["JAVA_TOOL_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # emulators live too short to be optimised
os.environ["SSL_CERT_FILE"] = os.devnull  # aiohttp reads all certificates when it is imported; no test uses TLS


def pytest_xdist_auto_num_workers() -> int:
    """Half the time of the longest tests is spent on waiting for processes and emulators."""
    return (os.cpu_count() or 1) * 2


@pytest.fixture(autouse=True, scope="session")
def _state(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What processes remember of their files is no business of whoever runs the tests."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session")
def clock_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once for each process that runs tests: it takes some tenths of a second."""
    try:
        return build(tmp_path_factory.mktemp("clocks"))
    except NoCompilerError as error:
        if os.environ.get("COUNTERSINK_REQUIRE_ALL") == "1":
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture
def clocks(clock_library: Path, tmp_path: Path) -> Callable[[], Clocks]:
    """Makes clocks for one process each; see `tests.processes.moved_clocks`."""
    return partial(Clocks, clock_library, tmp_path)
