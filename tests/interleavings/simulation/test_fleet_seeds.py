"""Hundreds of runs of a fleet on Redis, each with faults of its own."""

import os
import subprocess
import sys

import pytest

CHUNKS = 10
SEEDS = 50
"""Of one chunk. COUNTERSINK_SEEDS begins elsewhere."""
HANGS = 1_500
"""Seconds. A chunk takes some tens of them, on a busy machine some hundreds."""


def simulate(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.interleavings.simulation", "--fleet", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANGS, check=False)


@pytest.mark.timeout(HANGS)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_whatever_fails_no_reading_says_exact_and_is_not(chunk: int) -> None:
    first = int(os.environ.get("COUNTERSINK_SEEDS", "0")) + chunk * SEEDS
    done = simulate(first, first + SEEDS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{SEEDS} seeds, 0 failed")


def test_a_seed_replays_exactly() -> None:
    first, second = (simulate(9).stdout.splitlines()[0] for _ in range(2))
    assert first == second
    assert first.startswith("seed 9: trace ")
