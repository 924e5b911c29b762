"""Runs seeds of a simulation in a process of its own, and checks what it prints."""

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
_SIMULATION: Final = "tests.interleavings.simulation"


def run(module: str, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *map(str, words)]
    fixed = os.environ | {"PYTHONHASHSEED": "0"}  # else the simulation would start itself once more, with this
    return subprocess.run(command, env=fixed, capture_output=True, text=True, timeout=HANGS, check=False)


def chunks(in_test: int, in_check: int) -> Sequence[object]:
    """Numbers of chunks, for `parametrize`: those that `make test` runs, then those that `make check` adds."""
    late = range(in_test, in_test + in_check)
    return [*range(in_test), *(pytest.param(chunk, marks=pytest.mark.check) for chunk in late)]


def check_chunk(chunk: int, *flags: str, module: str = _SIMULATION) -> None:
    """Run the chunk, and assert that no seed of it fails. COUNTERSINK_SEEDS is the first seed of chunk 0."""
    first = int(os.environ.get("COUNTERSINK_SEEDS", "0")) + chunk * CHUNK
    done = run(module, *flags, first, first + CHUNK)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{CHUNK} seeds, 0 failed")


def check_replay(seed: int, *flags: str) -> None:
    """Assert that two runs of a seed do exactly the same."""
    first, second = (run(_SIMULATION, *flags, seed).stdout.splitlines()[0] for _ in range(2))
    assert first == second
    assert first.startswith(f"seed {seed}: trace ")
