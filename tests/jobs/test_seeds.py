"""Jobs under faults drawn from seeds: each counter once, whoever is killed, and whatever comes twice or never."""

import pytest

from tests.jobs.world import World


@pytest.mark.parametrize("chunk", range(6))
def test_each_counter_is_changed_once_whatever_fails(chunk: int) -> None:
    for seed in range(chunk * 50, chunk * 50 + 50):
        try:
            World(seed).run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
