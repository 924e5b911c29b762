"""Hundreds of runs, each with faults of its own."""

import pytest

from tests.interleavings.seeds import HANGS, check_chunk, check_replay

CHUNKS = 2
SEEDS = 50
"""Of one chunk."""


@pytest.mark.timeout(HANGS)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_whatever_fails_each_increment_counts_once_and_each_read_is_exact(chunk: int) -> None:
    check_chunk(chunk, SEEDS)


def test_a_seed_replays_exactly() -> None:
    for seed in (4, 5):
        check_replay(seed)
