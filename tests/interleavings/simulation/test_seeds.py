"""Runs, each with faults of its own. `make seeds` does many more."""

import pytest

from tests.interleavings.seeds import HANGS, check_chunk, check_replay

SEEDS = 50


@pytest.mark.timeout(HANGS)
def test_whatever_fails_each_increment_counts_once_and_each_read_is_exact() -> None:
    check_chunk(0, SEEDS)


def test_a_seed_replays_exactly() -> None:
    for seed in (4, 5):
        check_replay(seed)
