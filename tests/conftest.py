"""What holds for all tests: Hypothesis finds the same examples each time, and takes the time it needs."""

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "countersink",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("countersink")


def pytest_xdist_auto_num_workers() -> int:
    """Half the time of the longest tests is spent on waiting for processes and emulators."""
    return (os.cpu_count() or 1) * 2


@pytest.fixture(autouse=True, scope="session")
def _state(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What processes remember of their files is no business of whoever runs the tests."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
