"""Jobs under faults drawn from seeds: each counter once, whoever is killed, and whatever comes twice or never."""

import subprocess
import sys

import pytest

CHUNKS = 4
SEEDS = 25
"""Of one chunk."""
HANGS = 1_500
"""Seconds. A chunk takes some of them, on a busy machine a hundred."""


@pytest.mark.timeout(HANGS)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_each_counter_is_changed_once_whatever_fails(chunk: int) -> None:
    command = [sys.executable, "-m", "tests.interleavings.jobs", str(chunk * SEEDS), str((chunk + 1) * SEEDS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == f"{SEEDS} seeds, 0 failed\n"
