"""What holds for all tests: Hypothesis finds the same examples each time, and takes the time it needs."""

import os

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
