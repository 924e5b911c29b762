"""When a write is answered, where it is, and with which total."""

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
from shared.model.words import Message, Reading
from shared.ports.broker import Check, at_any_time
from shared.wire.codec import PATIENT
from tests.http.faults import failing
from tests.http.keys import SHOP, guarded
from tests.http.service import Service

BATCH = b'[{"counter": "c", "delta": 2}, {"counter": "c", "delta": 3, "id": "x"}, {"counter": "d"}, 5]'


async def test_wait_applied_answers_200_with_the_value_and_for_a_batch_without(service: Service) -> None:
    async with service.applying():
        for expected in (2, 4):
            answer = await service.incr("c", b'{"delta": 2}', "?wait=applied&timeout=60")
            assert (answer.status, answer.json["value"]) == (200, expected)
        answer = await service.post("/v1/increments?wait=applied", BATCH)
        assert (answer.status, answer.json["accepted"], len(answer.json["rejected"])) == (200, 3, 1)
        answer = await service.post("/v1/increments?wait=applied", BATCH, Idempotency_Key="k")
        assert answer.status == 200
    reading = await service.read("c")
    assert (reading["applied"], reading["pending"]) == (11, 0)


async def test_messages_say_whether_somebody_waits(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    publishing = service.ingest.publishing
    publisher, published = publishing._publisher, list[Message]()
    publish = publisher.publish

    async def seen(messages: Sequence[Message], check: Check = at_any_time) -> None:
        published.extend(messages)
        await publish(messages, check)

    monkeypatch.setattr(publisher, "publish", seen)
    monkeypatch.setattr(publishing, "_read_lately", lambda _: False)
    for query in ("", "?wait=applied&timeout=0"):
        await service.incr("c", None, query)
        await service.post(f"/v1/increments{query}", b'[{"counter": "c"}]')
    assert [message.attributes.get(PATIENT) for message in published] == ["1", "1", None, None]


@pytest.mark.parametrize("timeout", ["0", "0.05", "1e-3"])
async def test_after_the_timeout_it_is_202_and_counts_all_the_same(service: Service, timeout: str) -> None:
    answer = await service.incr("c", None, f"?wait=applied&timeout={timeout}")
    assert (answer.status, answer.json.keys()) == (202, {"accepted", "receipt"})
    assert (await service.post(f"/v1/increments?timeout={timeout}&wait=applied", BATCH)).status == 202
    assert await service.totals() == {"c": 6, "d": 1}


async def test_a_store_that_does_not_answer_does_not_hold_up_the_timeout(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = asyncio.Event()

    async def stuck(*_: object) -> None:
        looked.set()
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(service.ingest.waits._tracking, "ends", stuck)
    async with asyncio.timeout(60):
        first = asyncio.create_task(service.incr("c", None, "?wait=applied&timeout=0.5"))
        await looked.wait()
        for waits in (service.incr("c", None, "?wait=applied&timeout=0.1"), first):  # one came during a look
            assert (await waits).status == 202


async def test_ack_none_answers_at_once_and_says_that_it_is_no_promise(service: Service) -> None:
    answer = await service.incr("c", None, "?ack=none")
    assert (answer.status, answer.json["durable"]) == (202, False)
    answer = await service.post("/v1/increments?ack=none", BATCH)
    assert (answer.status, answer.json["durable"], answer.json["accepted"]) == (202, False, 3)
    await service.incr("c")  # answered when it is durable, and what went before it is so too
    await service.apply()
    assert await service.totals() == {"c": 7, "d": 1}


async def test_a_batch_under_a_key_with_ids_in_it_is_applied_when_all_its_parts_are(service: Service) -> None:
    receipt = (await service.post("/v1/increments", BATCH, Idempotency_Key="k")).json["receipt"]
    assert (await service.get(f"/v1/receipts/{receipt}")).json["state"] == "pending"
    other = f"{receipt}.unheard-of"
    assert (await service.get(f"/v1/receipts/{other}")).json["state"] == "unknown"
    await service.apply()
    assert (await service.get(f"/v1/receipts/{receipt}")).json["state"] == "applied"
    assert (await service.get(f"/v1/receipts/{other}")).json["state"] == "unknown"
    assert (await service.get("/v1/receipts/0123")).json == {"receipt": "0123", "state": "unknown"}


ASKED = "?return=value"
MANY = f"/v1/increments{ASKED}"


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
        answer = await service.post(MANY, body)
        assert (answer.status, answer.json["values"], answer.json["exact"]) == (202, expected, True)
        assert "value" not in answer.json
    answer = await service.post(MANY, b'{"counters": {"c": 1}}', Idempotency_Key="k")
    assert (answer.json["value"], answer.json["values"]) == (6, {"c": 6})
    answer = await service.post(MANY, b'{"counters": {"c": 1}}', Idempotency_Key="k")
    assert (answer.json["value"], answer.json["duplicate"]) == (6, True)


async def test_totals_beyond_64_bits_are_whole(service: Service) -> None:
    body, accepted = json.dumps([{"counter": "c", "delta": 2**53 - 1}] * 300).encode(), 0
    while accepted <= 1_024:
        answer = await service.post(MANY, body)
        accepted += answer.json["accepted"]
    assert answer.json["value"] == answer.json["values"]["c"] == accepted * (2**53 - 1) > 2**63


async def test_beside_wait_applied(service: Service) -> None:
    async with service.applying():
        answer = await service.incr("c", None, f"{ASKED}&wait=applied&timeout=60")
        assert (answer.status, answer.json["value"], answer.json["exact"]) == (200, 1, True)
        answer = await service.post(f"{MANY}&wait=applied&timeout=60", b'{"counters": {"c": 1, "d": 1}}')
        assert (answer.status, answer.json["values"]) == (200, {"c": 2, "d": 1})
    answer = await service.incr("c", None, f"{ASKED}&wait=applied&timeout=0")
    assert (answer.status, answer.json["value"]) == (202, 3)


async def test_what_cannot_be_is_422_and_counts_nothing(unharmed: Service) -> None:
    for target, body, field in (
        ("/v1/counters/there?return=value&ack=none", None, "ack"),
        ("/v1/counters/there?return=total", None, "return"),
        ("/v1/counters/there?return=", None, "return"),
        ("/v1/counters/there?return=value&return=value", None, "return"),
        (f"{MANY}&ack=none", b'{"counters": {"there": 1}}', "ack"),
        (MANY, names(MOST_VALUES + 1), "return"),
        (MANY, names(20_000), "return"),
    ):
        answer = await unharmed.post(target, body)
        assert (answer.status, answer.field) == (422, field)


async def test_as_many_counters_as_are_allowed(service: Service) -> None:
    answer = await service.post(MANY, names(MOST_VALUES))
    assert answer.json["values"] == {f"c{index}": 1 for index in range(MOST_VALUES)}


async def test_a_key_that_may_only_write_is_403_and_counts_nothing(tmp_path: Path) -> None:
    async with guarded(
        tmp_path,
        all={},
        writes={"scopes": ["write"]},
        web={"scopes": ["write"], "prefixes": ["c"], "publishable": True, "origins": [SHOP]},
        mine={"scopes": ["write", "read"], "prefixes": ["c"]},
    ) as it:
        for key in ("writes", "web"):
            for target, body in ((f"/v1/counters/c{ASKED}", None), (MANY, b'{"counters": {"c": 1}}')):
                answer = await it.post(key, target, body)
                assert answer.status == 403
                assert "read" in answer.json["detail"]
        assert (await it.post("mine", MANY, b'{"counters": {"c": 1, "d": 1}}')).status == 403
        assert (await it.post("mine", f"/v1/counters/c{ASKED}")).json["value"] == 1, "nothing was counted before"
        assert (await it.post("writes", "/v1/counters/c")).status == 202
        assert (await it.post("all", f"/v1/counters/c{ASKED}")).json["value"] == 3


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
        for answer in (await service.incr("c", None, ASKED), await service.post(MANY, b'{"counters": {"c": 1}}')):
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
