"""Jobs under faults drawn from seeds: each counter once, whoever is killed, and whatever comes twice or never."""

import pytest

from tests.interleavings.seeds import HANGS, run

CHUNKS = 4
SEEDS = 25
"""Of one chunk."""


@pytest.mark.timeout(HANGS)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_each_counter_is_changed_once_whatever_fails(chunk: int) -> None:
    done = run("tests.interleavings.jobs", chunk * SEEDS, (chunk + 1) * SEEDS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == f"{SEEDS} seeds, 0 failed\n"
