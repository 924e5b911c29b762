"""What holds for all tests: Hypothesis finds the same examples each time, and takes the time it needs."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "countersink",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("countersink")
