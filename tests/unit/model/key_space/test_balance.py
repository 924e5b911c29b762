"""A walk is short and wide for any distribution of names."""

from math import ceil, log2

import pytest

from shared.model.ranges import Range
from tests.unit.model.key_space.spaces import SPACES
from tests.unit.model.key_space.virtual import Keys, VirtualStore
from tests.unit.model.key_space.walk import Report, walk

MOST_READS = {"zipf": 2.5, "unicode": 1.5, "tenants": 2.5}
"""Times as many as there are pages of names. Where there are many small heaps of names, the ends of each cost reads."""
EDGES = 40
"""Those of few heaps, however many names there are."""


async def walked(keys: Keys, page: int) -> Report:
    return await walk(VirtualStore(keys), len, page=page)


@pytest.mark.parametrize("name", SPACES)
async def test_reads_are_few_and_rounds_about_as_many_as_halving_takes(name: str) -> None:
    depths = []
    for size, page in ((2_000, 50), (20_000, 50), (50_000, 500)):
        keys = SPACES[name](size)
        report = await walked(keys, page)
        ideal = ceil(keys.size / page)
        assert report.names == keys.size
        assert report.tasks <= MOST_READS.get(name, 1.4) * ideal + EDGES
        assert report.depth <= log2(ideal) + 3
        depths.append(report.depth)
    assert depths[1] <= depths[0] + 2 * log2(10)


async def test_one_page_after_another_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is where nothing is cut."""
    monkeypatch.setattr(
        "tests.unit.model.key_space.walk.split", lambda _, done, page: [Range(page[-1], done.until, done.depth + 1)]
    )
    assert (await walked(SPACES["padded"](5_000), 50)).depth > log2(5_000 / 50) + 4
