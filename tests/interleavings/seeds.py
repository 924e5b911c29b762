"""Runs seeds of a simulation in a process of its own, and checks what it prints."""

import os
import subprocess
import sys
from typing import Final

HANGS: Final = 1_500
"""Seconds. A chunk of seeds takes some tens of them, on a busy machine some hundreds."""
_SIMULATION: Final = "tests.interleavings.simulation"


def run(module: str, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANGS, check=False)


def check_chunk(number: int, seeds: int, *flags: str) -> None:
    """Run the chunk of this number, and assert that no seed of it fails. COUNTERSINK_SEEDS begins elsewhere."""
    first = int(os.environ.get("COUNTERSINK_SEEDS", "0")) + number * seeds
    done = run(_SIMULATION, *flags, first, first + seeds)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{seeds} seeds, 0 failed")


def check_replay(seed: int, *flags: str) -> None:
    """Assert that two runs of a seed do exactly the same."""
    first, second = (run(_SIMULATION, *flags, seed).stdout.splitlines()[0] for _ in range(2))
    assert first == second
    assert first.startswith(f"seed {seed}: trace ")
