"""Sent twice, counted once: ids and the Idempotency-Key."""

import json
from typing import Any

import pytest

from ingest.accept.admission import KnownIds
from ingest.accept.drafts import MAX_ENTRIES
from shared.model.words import MAX_ID_BYTES
from tests.http.service import Service


@pytest.mark.parametrize("applied_between", [False, True])
@pytest.mark.parametrize("known", [False, True])
async def test_an_id_counts_once_and_the_first_delta_wins(
    service: Service, *, applied_between: bool, known: bool
) -> None:
    """Who sends another one is told so, as far as the process remembers."""
    for delta in (3, 3, 4, 0):
        answer = await service.incr("c", json.dumps({"delta": delta, "id": "order-1"}).encode())
        if known and delta != 3:
            assert (answer.status, answer.field) == (422, "id")
        else:
            assert (answer.status, answer.json["accepted"]) == (202, 1)
        if applied_between:
            await service.apply()
        assert await service.value("c") == 3
        if not known:
            service.ingest.publishing._known_ids = KnownIds()
    await service.apply()
    assert await service.value("c") == 3


@pytest.mark.parametrize("key", [{}, {"Idempotency_Key": "k"}])
async def test_another_delta_in_a_batch_is_refused_with_the_batch(service: Service, key: dict[str, Any]) -> None:
    await service.incr("c", b'{"delta": 3, "id": "order-1"}')
    batch = b'[{"counter": "d"}, {"counter": "c", "delta": %d, "id": "order-1"}]'
    answer = await service.post("/v1/increments", batch % 4, **key)
    assert (answer.status, answer.field) == (422, "id")
    assert await service.totals() == {"c": 3}
    assert (await service.post("/v1/increments", batch % 3, **key)).status == 202
    assert await service.totals() == {"c": 3, "d": 1}


async def test_any_text_up_to_1000_bytes_is_an_id(service: Service) -> None:
    for number, id_ in enumerate(["x" * 1000, "é" * 500, "a/b", ".", "__x__", "\x00", " "], 1):
        for _ in range(2):
            assert (await service.incr("c", json.dumps({"id": id_}).encode())).status == 202, id_
        assert await service.value("c") == number, id_


async def test_an_id_twice_in_a_batch_counts_once(service: Service) -> None:
    body = b'[{"counter": "c", "delta": 2, "id": "x"}, {"counter": "c", "delta": 9, "id": "x"}]'
    assert (await service.post("/v1/increments", body)).json["accepted"] == 2
    assert await service.value("c") == 2
    await service.apply()
    assert await service.value("c") == 2


@pytest.mark.parametrize("applied_between", [False, True])
@pytest.mark.parametrize("known", [False, True])
async def test_of_a_batch_under_a_key_the_first_body_wins(
    service: Service, *, applied_between: bool, known: bool
) -> None:
    """Who sends another one is told so, as far as the process remembers."""
    bodies = (b'{"counters": {"a": 1, "b": 2}}', b'{"counters":{"b":2,"a":1}}', b'{"counters": {"a": 5, "c": 5}}')
    receipts = set()
    for body in bodies:
        answer = await service.post("/v1/increments", body, Idempotency_Key="day 1")
        if known and body == bodies[2]:
            assert (answer.status, answer.field) == (422, "Idempotency-Key")
        else:
            assert answer.status == 202
            receipts.add(answer.json["receipt"])
        if applied_between:
            await service.apply()
        assert {name: n for name, n in (await service.totals()).items() if n} == {"a": 1, "b": 2}
        if not known:
            service.ingest.publishing._known_ids = KnownIds()
    assert len(receipts) == 1
    await service.apply()
    assert await service.totals() == {"a": 1, "b": 2}


async def test_an_items_own_id_beats_the_key_of_the_batch(service: Service) -> None:
    first = b'[{"counter": "a"}, {"counter": "a", "delta": 10, "id": "x"}]'
    again = b'[{"counter": "a"}, {"counter": "a", "delta": 10, "id": "x"}, {"counter": "a", "delta": 100, "id": "y"}]'
    await service.post("/v1/increments", first, Idempotency_Key="k")
    await service.post("/v1/increments", again, Idempotency_Key="k")
    assert await service.value("a") == 111
    await service.apply()
    assert await service.value("a") == 111


async def test_a_batch_of_nothing_but_ids_counts_by_them_whatever_the_key(service: Service) -> None:
    for body in (b'[{"counter": "a", "id": "x"}]', b'[{"counter": "a", "id": "x"}]', b'[{"counter": "a", "id": "y"}]'):
        await service.post("/v1/increments", body, Idempotency_Key="k")
    assert await service.value("a") == 2
    await service.apply()
    assert await service.value("a") == 2


async def test_rejected_items_sent_again_under_a_new_key_count(service: Service) -> None:
    body = b'[{"counter": "a"}, {"counter": "b", "delta": "2"}]'
    answer = await service.post("/v1/increments", body, Idempotency_Key="k1")
    assert [item["index"] for item in answer.json["rejected"]] == [1]
    mended = b'[{"counter": "b", "delta": 2}]'
    assert (await service.post("/v1/increments", mended, Idempotency_Key="k1")).status == 422
    assert await service.value("b") == 0
    await service.post("/v1/increments", mended, Idempotency_Key="k2")
    assert await service.value("b") == 2


async def test_a_batch_under_a_key_of_the_most_counters_fits_and_one_more_is_413(service: Service) -> None:
    names = {f"c{number}": 1 for number in range(MAX_ENTRIES + 1)}
    too_many = json.dumps({"counters": names}).encode()
    answer = await service.post("/v1/increments", too_many, Idempotency_Key="k")
    assert (answer.status, answer.field) == (413, "Idempotency-Key")
    assert await service.totals() == {}
    del names["c0"]
    for _ in range(2):
        answer = await service.post("/v1/increments", json.dumps({"counters": names}).encode(), Idempotency_Key="k")
        assert answer.status == 202
    assert await service.totals() == names


@pytest.mark.parametrize("key", ["", "x" * (MAX_ID_BYTES + 1)])
async def test_a_key_that_is_no_id_is_422(unharmed: Service, key: str) -> None:
    for body in (None, b'{"id": "x"}'):
        answer = await unharmed.incr("c", body, Idempotency_Key=key)
        assert (answer.status, answer.field) == (422, "Idempotency-Key")
    answer = await unharmed.post("/v1/increments", b'{"counters": {"a": 1}}', Idempotency_Key=key)
    assert (answer.status, answer.field) == (422, "Idempotency-Key")


@pytest.mark.parametrize("keys", [b"Idempotency-Key: a\r\nIdempotency-Key: b\r\n", b"Idempotency-Key: \xff\r\n"])
async def test_two_keys_or_one_in_bad_utf8_are_422(unharmed: Service, keys: bytes) -> None:
    answer = await unharmed.raw(b"POST /v1/counters/c HTTP/1.1\r\nHost: h\r\nConnection: close\r\n" + keys + b"\r\n")
    assert (answer.status, answer.field) == (422, "Idempotency-Key")
