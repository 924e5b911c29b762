"""Some seeds agree in all ways, some of them over real sockets too, and a difference would be seen."""

from pathlib import Path

import pytest

from ingest.http import fast_path
from tests.http.both_ways import END, check, check_totals, pair
from tests.http.fuzz.plan import plan
from tests.http.fuzz.run import run
from tests.http.fuzz.side import keys_file
from tests.http.fuzz.ways import Ways

SEEDS = 250
SOCKETS = 25


def test_all_ways_agree() -> None:
    told: list[str] = []
    tally = run(0, SEEDS, 0, told.append)
    assert not told
    assert tally.plans == SEEDS
    assert tally.fast > SEEDS / 2


async def test_they_agree_over_real_sockets(tmp_path: Path) -> None:
    """Without a body that asks whether it may come: the answer depends on the pieces that the kernel makes."""
    plans = [one for one in map(plan, range(2 * SEEDS)) if one.is_framed() and b"100-continue" not in one.stream]
    async with pair(tmp_path) as services:
        for one in plans[:SOCKETS]:
            await check(services, [*(piece for piece, _ in one.pieces()), END])
        await check_totals(services)


def test_a_seed_does_the_same_again(tmp_path: Path) -> None:
    ways = Ways(keys_file(tmp_path))
    for seed in range(10):
        assert plan(seed) == plan(seed)
        assert ways.short(plan(seed)) == ways.short(plan(seed))


def test_a_difference_is_told_with_what_it_takes_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_path, "accepted_one", lambda *_, **__: b"{}")
    told: list[str] = []
    assert run(0, 20, 0, told.append).failed == len(told) > 0
    first = told[0]
    assert "the answers differ" in first
    assert "python -m tests.http.fuzz" in first
    assert first.count("then the next one") == 1
    assert "b'POST /v1/counters/" in first
