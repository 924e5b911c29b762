"""Runs, each with faults of its own, in processes of their own. `make seeds` does many more."""

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

import pytest

HANGS: Final = 1_500
"""Seconds. A chunk of seeds takes some tens of them, on a busy machine some hundreds."""
CHUNK: Final = 25
"""Seeds of one chunk: one process runs them."""


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.interleavings.simulation", *map(str, words)]
    fixed = os.environ | {"PYTHONHASHSEED": "0"}  # else the simulation would start itself once more, with this
    return subprocess.run(command, env=fixed, capture_output=True, text=True, timeout=HANGS, check=False)


def chunks(in_test: int, in_check: int) -> Sequence[object]:
    """Numbers of chunks, for `parametrize`: those that `make test` runs, then those that `make check` adds."""
    late = range(in_test, in_test + in_check)
    return [*range(in_test), *(pytest.param(chunk, marks=pytest.mark.check) for chunk in late)]


def check_chunk(chunk: int, *flags: str) -> None:
    """Run the chunk, and assert that no seed of it fails. COUNTERSINK_SEEDS is the first seed of chunk 0."""
    first = int(os.environ.get("COUNTERSINK_SEEDS", "0")) + chunk * CHUNK
    done = run(*flags, first, first + CHUNK)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{CHUNK} seeds, 0 failed")


@pytest.mark.timeout(HANGS)
@pytest.mark.parametrize("chunk", chunks(in_test=1, in_check=4))
def test_whatever_fails_each_increment_counts_once_and_each_read_is_exact(chunk: int) -> None:
    check_chunk(chunk)


@pytest.mark.timeout(HANGS)
@pytest.mark.parametrize("chunk", chunks(in_test=1, in_check=4))
def test_whatever_fails_in_a_fleet_on_redis_no_reading_says_exact_and_is_not(chunk: int) -> None:
    check_chunk(chunk, "--fleet")


@pytest.mark.timeout(HANGS)
@pytest.mark.parametrize("chunk", chunks(in_test=1, in_check=1))
def test_whatever_fails_a_job_changes_each_counter_once(chunk: int) -> None:
    check_chunk(chunk, "--jobs")


@pytest.mark.parametrize(("seed", "flags"), [(5, ()), (9, ("--fleet",))], ids=["one overlay", "a fleet"])
def test_a_seed_replays_exactly(seed: int, flags: Sequence[str]) -> None:
    first, second = (run(*flags, seed).stdout.splitlines()[0] for _ in range(2))
    assert first == second
    assert first.startswith(f"seed {seed}: trace ")
