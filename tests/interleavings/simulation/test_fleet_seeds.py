"""Runs of a fleet on Redis, each with faults of its own. `make seeds` does many more."""

import pytest

from tests.interleavings.seeds import HANGS, check_chunk, check_replay, chunks


@pytest.mark.timeout(HANGS)
@pytest.mark.parametrize("chunk", chunks(in_test=1, in_check=4))
def test_whatever_fails_no_reading_says_exact_and_is_not(chunk: int) -> None:
    check_chunk(chunk, "--fleet")


def test_a_seed_replays_exactly() -> None:
    check_replay(9, "--fleet")
