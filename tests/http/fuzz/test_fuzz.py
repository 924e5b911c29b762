"""Some seeds agree in all ways, some of them over real sockets too, and a difference would be seen."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from ingest.http import fast_path
from ingest.parsing import parse
from tests.http import parse_model as model
from tests.http.both_ways import END, check, check_totals, pair
from tests.http.fuzz import parsers
from tests.http.fuzz.plan import framed, plan
from tests.http.fuzz.run import run
from tests.http.fuzz.side import keys_file
from tests.http.fuzz.ways import Ways

SEEDS = 100
SOCKETS = 25
LAST_MOMENT = 1795732502167
"""A byte in 60 ms: the head is whole after 10.98 seconds, and the server looks after 11, before the body has come."""


def test_all_ways_agree() -> None:
    told: list[str] = []
    tally = run(0, SEEDS, 0, told.append)
    assert not told
    assert tally.plans == SEEDS
    assert tally.fast > SEEDS / 2


def test_a_head_that_comes_whole_at_the_last_moment_is_in_time() -> None:
    told: list[str] = []
    run(LAST_MOMENT, LAST_MOMENT + 1, 0, told.append)
    assert not told


@pytest.mark.parametrize(
    "lines",
    [
        (b"Proxy-Connection: close",),
        (b"Proxy-Connection: x, Close",),
        (b"Proxy-Connection: close", b"Proxy-Connection: x"),
        (b"Proxy-Connection: closed",),
        (b"Connection: close", b"Proxy-Connection: keep-alive"),
    ],
)
def test_whether_a_connection_ends_is_read_as_aiohttp_does(lines: tuple[bytes, ...]) -> None:
    ours, its = parsers.head(b"".join(b"%b\r\n" % line for line in (b"GET / HTTP/1.1", b"Host: h", *lines, b"")))
    assert ours == its


async def test_they_agree_over_real_sockets(tmp_path: Path) -> None:
    async with pair(tmp_path) as services:
        for one in framed(SOCKETS):
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


@pytest.mark.parametrize(
    ("compare", "body"),
    [
        *(
            (parsers.batch, body)
            for body in (
                b'{"counters": {"a": 1, "\\u0061": 2}}',
                b'{"counter": "a:b"}\n{"counter": "a", "counter": "b"}',
                b'{"counters":\n{"a":1,\n"a":1}}',
                b"\x0b[1]",
                b'x\n{"counter": "a"}',
                b'[\n{"counter": "a"}\n',
                b'{"counter": "a", "delta": -0}',
            )
        ),
        *((parsers.single, body) for body in (b"\x0c", b'{"delta": 1, "d\\u0065lta": 1}')),
    ],
)
def test_bodies_that_were_read_in_two_ways_are_read_in_one(compare: Callable[[bytes], object], body: bytes) -> None:
    assert parsers.difference(compare, body) == ""  # type: ignore[arg-type] # one of two


def test_what_is_accepted_adds_up_in_every_form() -> None:
    """As an array and as lines; as a map too, where a sum may be one delta."""
    chance = Random(5)
    for _ in range(250):
        items = [
            (chance.choice("ab"), chance.choice((1, -1, model.BIG, -model.BIG))) for _ in range(chance.randint(1, 30))
        ]
        sums = Counter[str]()
        for name, delta in items:
            sums[name] += delta
        rows = [{"counter": name, "delta": delta} for name, delta in items]
        bodies = [json.dumps(rows), "\n".join(map(json.dumps, rows))]
        if all(model.is_delta(total) for total in sums.values()):
            bodies.append(json.dumps({"counters": sums}))
        for body in bodies:
            assert parse.batch(body.encode()).batch.sums == dict(sums)
