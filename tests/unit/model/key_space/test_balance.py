"""A walk is short and wide for any distribution of names."""

from math import ceil, log2

import pytest

from shared.model.ranges import Range
from tests.unit.model.key_space.spaces import SPACES
from tests.unit.model.key_space.virtual import Keys, VirtualStore
from tests.unit.model.key_space.walk import Report, walk

SIZE = 50_000
MOST_READS = {"plain": 2.0, "zipf": 3.0, "unicode": 1.8, "tenants": 3.5}
"""Times as many as there are pages of names. Where there are many small heaps of names, the ends of each cost reads."""
EDGES = 40
"""Those of few heaps, however many names there are."""


async def walked(keys: Keys, page: int) -> Report:
    return await walk(VirtualStore(keys), len, page=page)


@pytest.mark.parametrize("page", [50, 500])
@pytest.mark.parametrize("name", SPACES)
async def test_reads_are_few_and_rounds_about_as_many_as_halving_takes(name: str, page: int) -> None:
    keys = SPACES[name](SIZE)
    report = await walked(keys, page)
    ideal = ceil(keys.size / page)
    assert report.names == keys.size
    assert report.tasks <= MOST_READS.get(name, 1.5) * ideal + EDGES
    assert report.depth <= log2(ideal) + 4


@pytest.mark.parametrize("name", SPACES)
async def test_ten_times_as_many_names_take_few_more_rounds(name: str) -> None:
    few, many = [await walked(SPACES[name](size), 20) for size in (2_000, 20_000)]
    assert many.depth <= few.depth + 2 * log2(10)


@pytest.mark.parametrize("name", SPACES)
def test_spaces_are_in_order(name: str) -> None:
    keys = SPACES[name](3_000)
    there = [keys.key(index) for index in range(keys.size)]
    assert len(there) >= 3_000
    assert there == sorted({*there})


async def test_one_page_after_another_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is where nothing is cut."""
    monkeypatch.setattr(
        "tests.unit.model.key_space.walk.split", lambda _, done, page: [Range(page[-1], done.until, done.depth + 1)]
    )
    assert (await walked(SPACES["padded"](SIZE), 500)).depth > log2(SIZE / 500) + 4
