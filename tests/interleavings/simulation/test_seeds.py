"""Runs, each with faults of its own. `make seeds` does many more."""

import pytest

from tests.interleavings.seeds import HANGS, check_chunk, check_replay, chunks


@pytest.mark.timeout(HANGS)
@pytest.mark.parametrize("chunk", chunks(in_test=1, in_check=4))
def test_whatever_fails_each_increment_counts_once_and_each_read_is_exact(chunk: int) -> None:
    check_chunk(chunk)


def test_a_seed_replays_exactly() -> None:
    check_replay(5)
