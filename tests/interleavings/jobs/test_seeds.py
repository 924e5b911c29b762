"""Jobs under faults drawn from seeds: each counter once, whoever is killed, and whatever comes twice or never."""

import pytest

from tests.interleavings.seeds import HANGS, check_chunk, chunks


@pytest.mark.timeout(HANGS)
@pytest.mark.parametrize("chunk", chunks(in_test=1, in_check=1))
def test_each_counter_is_changed_once_whatever_fails(chunk: int) -> None:
    check_chunk(chunk, module="tests.interleavings.jobs")
