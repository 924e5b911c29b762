"""`?return=value`: an answer to increments has the totals, of an instant after they were accepted."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ingest.api import increments
from ingest.api.increments import MOST_VALUES, Totals
from shared.counters.reader import Reader
from shared.model.buckets import WallSeconds
from shared.model.errors import DamagedError, TransientError
from shared.model.words import Reading
from tests.http.faults import failing
from tests.http.keys import keys_file
from tests.http.service import Service, running

ASKED = "?return=value"
BATCH = f"/v1/increments{ASKED}"


def names(number: int) -> bytes:
    return json.dumps({"counters": {f"c{index}": 1 for index in range(number)}}).encode()


@pytest.mark.parametrize("applied_between", [False, True])
async def test_the_value_has_the_increment_in_it(service: Service, applied_between: bool) -> None:
    for expected in (2, 4, 6):
        answer = await service.incr("c", b'{"delta": 2}', ASKED)
        assert (answer.status, answer.json["value"], answer.json["exact"]) == (202, expected, True)
        if applied_between:
            await service.apply()
    answer = await service.incr("c", None, "?by=-6&return=value")
    assert answer.json["value"] == 0


async def test_a_batch_has_the_values_of_its_counters(service: Service) -> None:
    body = b'[{"counter": "c", "delta": 2}, {"counter": "q\\"\xc3\xa9", "id": "x"}, {"counter": "c", "id": "x"}, 5]'
    for expected in ({"c": 3, 'q"é': 1}, {"c": 5, 'q"é': 1}):
        answer = await service.post(BATCH, body)
        assert (answer.status, answer.json["values"], answer.json["exact"]) == (202, expected, True)
        assert "value" not in answer.json
    answer = await service.post(BATCH, b'{"counters": {"c": 1}}', Idempotency_Key="k")
    assert (answer.json["value"], answer.json["values"]) == (6, {"c": 6})
    answer = await service.post(BATCH, b'{"counters": {"c": 1}}', Idempotency_Key="k")
    assert (answer.json["value"], answer.json["duplicate"]) == (6, True)


async def test_totals_beyond_64_bits_are_whole(service: Service) -> None:
    body, accepted = json.dumps([{"counter": "c", "delta": 2**53 - 1}] * 300).encode(), 0
    while accepted <= 1_024:
        answer = await service.post(BATCH, body)
        accepted += answer.json["accepted"]
    assert answer.json["value"] == answer.json["values"]["c"] == accepted * (2**53 - 1) > 2**63


async def test_beside_wait_applied(service: Service) -> None:
    async with service.applying():
        answer = await service.incr("c", None, f"{ASKED}&wait=applied&timeout=60")
        assert (answer.status, answer.json["value"], answer.json["exact"]) == (200, 1, True)
        answer = await service.post(f"{BATCH}&wait=applied&timeout=60", b'{"counters": {"c": 1, "d": 1}}')
        assert (answer.status, answer.json["values"]) == (200, {"c": 2, "d": 1})
    answer = await service.incr("c", None, f"{ASKED}&wait=applied&timeout=0")
    assert (answer.status, answer.json["value"]) == (202, 3)


async def test_what_cannot_be_is_422_and_counts_nothing(unharmed: Service) -> None:
    for target, body, field in (
        ("/v1/counters/there?return=value&ack=none", None, "ack"),
        ("/v1/counters/there?return=total", None, "return"),
        ("/v1/counters/there?return=", None, "return"),
        ("/v1/counters/there?return=value&return=value", None, "return"),
        (f"{BATCH}&ack=none", b'{"counters": {"there": 1}}', "ack"),
        (BATCH, names(MOST_VALUES + 1), "return"),
        (BATCH, names(20_000), "return"),
    ):
        answer = await unharmed.post(target, body)
        assert (answer.status, answer.field) == (422, field)


async def test_as_many_counters_as_are_allowed(service: Service) -> None:
    answer = await service.post(BATCH, names(MOST_VALUES))
    assert answer.json["values"] == {f"c{index}": 1 for index in range(MOST_VALUES)}


async def test_a_key_that_may_only_write_is_403_and_counts_nothing(tmp_path: Path) -> None:
    shop = "https://shop.example"
    file, keys = keys_file(
        tmp_path,
        all={},
        writes={"scopes": ["write"]},
        web={"scopes": ["write"], "prefixes": ["c"], "publishable": True, "origins": [shop]},
        mine={"scopes": ["write", "read"], "prefixes": ["c"]},
    )
    async with running(tmp_path, keys_file=str(file)) as service:

        async def ask(key: str, target: str, body: bytes | None = None) -> Any:
            headers = {"Authorization": f"Bearer {keys[key]}", "Origin": shop}
            return await service.ask("POST", target, body, headers)

        for key in ("writes", "web"):
            for target, body in ((f"/v1/counters/c{ASKED}", None), (BATCH, b'{"counters": {"c": 1}}')):
                answer = await ask(key, target, body)
                assert answer.status == 403
                assert "read" in answer.json["detail"]
        assert (await ask("mine", BATCH, b'{"counters": {"c": 1, "d": 1}}')).status == 403
        assert (await ask("mine", f"/v1/counters/c{ASKED}")).json["value"] == 1, "nothing was counted before"
        assert (await ask("writes", "/v1/counters/c")).status == 202
        assert (await ask("all", f"/v1/counters/c{ASKED}")).json["value"] == 3


async def test_a_page_of_another_site_may_count_and_is_told_no_totals(tmp_path: Path) -> None:
    origin = {"Origin": "https://shop.example"}
    async with running(tmp_path, origins=("https://shop.example",)) as service:
        assert (await service.ask("POST", f"/v1/counters/c{ASKED}", None, origin)).status == 403
        assert (await service.ask("POST", "/v1/counters/c", None, origin)).status == 202
        assert await service.value("c") == 1


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (TransientError("the store does not answer"), "the store does not answer"),
        (DamagedError("secrets"), "stored data can't be read"),
    ],
)
async def test_what_counts_is_accepted_though_it_cannot_be_read(
    service: Service, monkeypatch: pytest.MonkeyPatch, error: Exception, told: str
) -> None:
    with monkeypatch.context() as context:
        context.setattr(service.ingest.reader, "read", failing(error))
        for answer in (await service.incr("c", None, ASKED), await service.post(BATCH, b'{"counters": {"c": 1}}')):
            assert (answer.status, answer.json["accepted"]) == (202, 1)
            assert told in answer.json["value_error"]
            assert not answer.json.keys() & {"value", "values", "exact"}
        async with service.applying():
            answer = await service.incr("c", None, "?wait=applied&timeout=60")
            assert answer.status == 200
            assert told in answer.json["value_error"]
    assert await service.value("c") == 3


async def test_a_slow_store_does_not_hold_up_the_answer(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(increments, "LONGEST_READ", 0.05)
    answers = asyncio.Event()

    async def hangs(*_: Any) -> list[Reading]:
        await answers.wait()
        raise TransientError("too late")

    with monkeypatch.context() as context:
        context.setattr(service.ingest.reader, "read", hangs)
        answer = await service.incr("c", None, ASKED)
    assert (answer.status, "took longer" in answer.json["value_error"]) == (202, True)
    assert (await service.incr("c", None, ASKED)).json["value"] == 2, "the read that hangs is in nobody's way"
    answers.set()


@pytest.fixture
def counted(service: Service, monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """What was read."""
    reads: list[Sequence[str]] = []
    read = service.ingest.reader.read

    async def counting(asked: Sequence[str], max_age: float | None = None) -> list[Reading]:
        reads.append(asked)
        return await read(asked, max_age)

    monkeypatch.setattr(service.ingest.reader, "read", counting)
    return reads


async def test_requests_that_are_accepted_together_share_a_read(service: Service, counted: list[Sequence[str]]) -> None:
    answers = await asyncio.gather(*(service.incr("c" if number % 2 else "d", None, ASKED) for number in range(80)))
    assert len(counted) < 60
    assert {name for asked in counted for name in asked} == {"c", "d"}
    for half in (answers[::2], answers[1::2]):
        assert max(answer.json["value"] for answer in half) == 40
    assert all(answer.json["exact"] for answer in answers)


async def test_of_a_read_together_each_answer_has_its_own_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(increments, "MOST_TOGETHER", 3)
    asked: list[Sequence[str]] = []

    class Known(Reader):
        def __init__(self) -> None:
            """It needs nothing."""

        async def read(self, counters: Sequence[str], max_age: float | None = None) -> list[Reading]:
            asked.append(counters)
            return [Reading(name, len(name), 0, name != "dd", WallSeconds(0.0), 1, exists=True) for name in counters]

    reads = Totals(Known())
    answers = await asyncio.gather(
        reads.of_one("a", with_exact=True),
        reads.of_one("dd", with_exact=True),
        reads.of_one("a", with_exact=False),
        reads.of_one("dd", with_exact=False),
        reads.of_many(["a", "ccc"]),
        reads.of_many(["dd", "a"]),
    )
    assert [*answers] == [
        b',"value":1,"exact":true',
        b',"value":2,"exact":false',
        b',"value":1',
        b',"value":2,"exact":false',
        b',"values":{"a":1,"ccc":3},"exact":true',
        b',"values":{"dd":2,"a":1},"exact":false',
    ]
    assert asked == [["a", "dd"], ["a", "ccc"], ["dd", "a"]]


async def test_a_read_that_has_begun_serves_no_later_request(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, goes_on = asyncio.Event(), asyncio.Event()
    read = service.ingest.reader.read

    async def slow(*asked: Any) -> list[Reading]:
        found = await read(*asked)
        begun.set()
        await goes_on.wait()
        return found

    monkeypatch.setattr(service.ingest.reader, "read", slow)
    first = asyncio.create_task(service.incr("c", None, ASKED))
    await begun.wait()
    second = asyncio.create_task(service.incr("c", None, ASKED))
    await service.incr("d")
    goes_on.set()
    assert [(await first).json["value"], (await second).json["value"]] == [1, 2]


async def test_each_value_is_of_an_instant_after_its_own_acceptance(service: Service) -> None:
    """While others count the same: of the values that one client sees, each is larger than the one before."""

    async def client() -> None:
        last = 0
        for _ in range(25):
            answer = await service.incr("c", None, ASKED)
            assert answer.json["value"] > last
            last = answer.json["value"]

    async with service.applying():
        await asyncio.gather(*(client() for _ in range(8)))
    assert (await service.incr("c", None, ASKED)).json["value"] == 201
