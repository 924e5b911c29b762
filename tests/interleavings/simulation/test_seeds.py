"""Hundreds of runs, each with faults of its own."""

import os
import subprocess
import sys

import pytest

CHUNKS = 4
SEEDS = 50
"""Of one chunk. COUNTERSINK_SEEDS begins elsewhere."""
HANGS = 1_500
"""Seconds. A chunk takes some tens of them, on a busy machine some hundreds."""


def simulate(*seeds: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.interleavings.simulation", *map(str, seeds)]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANGS, check=False)


@pytest.mark.timeout(HANGS)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_whatever_fails_each_increment_counts_once_and_each_read_is_exact(chunk: int) -> None:
    first = int(os.environ.get("COUNTERSINK_SEEDS", "0")) + chunk * SEEDS
    done = simulate(first, first + SEEDS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{SEEDS} seeds, 0 failed")


def test_a_seed_replays_exactly() -> None:
    for seed in (4, 5):
        first, second = (simulate(seed).stdout.splitlines()[0] for _ in range(2))
        assert first == second
        assert first.startswith(f"seed {seed}: trace ")
