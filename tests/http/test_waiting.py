"""When a write is answered, and where it is: ?wait=applied, ?ack=none, receipts."""

import asyncio
from collections.abc import Sequence

import pytest

from shared.model.words import Message
from shared.ports.broker import Check, at_any_time
from shared.wire.codec import PATIENT
from tests.http.service import Service

BATCH = b'[{"counter": "c", "delta": 2}, {"counter": "c", "delta": 3, "id": "x"}, {"counter": "d"}, 5]'


async def test_wait_applied_answers_200_with_the_value(service: Service) -> None:
    async with service.applying():
        for expected in (2, 4):
            answer = await service.incr("c", b'{"delta": 2}', "?wait=applied&timeout=60")
            assert (answer.status, answer.json["value"]) == (200, expected)
    assert (await service.read("c"))["applied"] == 4


async def test_wait_applied_of_a_batch_answers_200(service: Service) -> None:
    async with service.applying():
        answer = await service.post("/v1/increments?wait=applied", BATCH)
        assert (answer.status, answer.json["accepted"], len(answer.json["rejected"])) == (200, 3, 1)
        answer = await service.post("/v1/increments?wait=applied", BATCH, Idempotency_Key="k")
        assert answer.status == 200
    reading = await service.read("c")
    assert (reading["applied"], reading["pending"]) == (7, 0)


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


async def test_a_receipt_nobody_gave_is_unknown(service: Service) -> None:
    assert (await service.get("/v1/receipts/0123")).json == {"receipt": "0123", "state": "unknown"}
