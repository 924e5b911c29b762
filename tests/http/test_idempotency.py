"""Sent twice, counted once: ids and the Idempotency-Key, and what a second use is answered."""

import asyncio
import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from ingest.accept.drafts import MAX_ENTRIES
from shared.model.errors import TransientError
from shared.model.receipts import read_note
from shared.model.words import MAX_ID_BYTES
from tests.http.faults import forget
from tests.http.service import Service, running, url_name


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
            assert "another delta for 'c' was accepted under the same id or key" in answer.json["detail"]
            assert "If it is not a retry, send it with a new id or key" in answer.json["detail"]
        else:
            assert (answer.status, answer.json["accepted"]) == (202, 1)
        if applied_between:
            await service.apply()
        assert await service.value("c") == 3
        if not known:
            forget(service)
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
            forget(service)
    assert len(receipts) == 1
    await service.apply()
    assert await service.totals() == {"a": 1, "b": 2}


@pytest.mark.parametrize("others", [[], [{"counter": "a"}]], ids=["nothing but ids", "beside what has none"])
async def test_an_items_own_id_beats_the_key_of_the_batch(service: Service, others: list[Any]) -> None:
    one, other = ({"counter": "a", "delta": delta, "id": f"of {delta}"} for delta in (10, 100))
    for ids in ([one], [one], [one, other]):
        assert (
            await service.post("/v1/increments", json.dumps(others + ids).encode(), Idempotency_Key="k")
        ).status == 202
    for _ in range(2):
        assert await service.value("a") == 110 + len(others)
        await service.apply()


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


WAIT = "?wait=applied&timeout=60"
FORMS: dict[str, tuple[bytes | None, str, dict[str, str]]] = {
    "by": (None, "by=2", {"Idempotency-Key": "k"}),
    "by and an empty body": (b"", "by=2", {"Idempotency-Key": "k"}),
    "body": (b'{"delta": 2}', "", {"Idempotency-Key": "k"}),
    "id": (b'{"id": "k", "delta": 2}', "", {}),
    "id beside a key": (b'{"delta":2,"id":"k"}', "", {"Idempotency-Key": "other"}),
}


def said(answer: Any) -> tuple[bool, int]:
    assert answer.status in {200, 202}
    return answer.json.get("duplicate", False), answer.json.get("duplicates", 0)


async def test_a_second_use_in_any_form_is_told(service: Service) -> None:
    for first, second in product(FORMS, FORMS):
        name = url_name(f"{first}, {second}")
        for form, expected in ((first, False), (second, True), (first, True)):
            body, query, headers = FORMS[form]
            answer = await service.ask("POST", f"/v1/counters/{name}{'?' if query else ''}{query}", body, headers)
            assert said(answer) == (expected, 0), (first, second)
    assert {*(await service.totals()).values()} == {2}


async def test_another_delta_under_the_id_is_422_in_any_form(service: Service) -> None:
    for form, (body, query, headers) in FORMS.items():
        name = f"/v1/counters/{url_name(form)}"
        await service.ask("POST", f"{name}{'?' if query else ''}{query}", body, headers)
        for other, more, named in (
            *((nothing, "", {"Idempotency-Key": "k"}) for nothing in (None, b"")),
            (None, "?by=3", {"Idempotency-Key": "k"}),
            (b'{"delta": -2}', "", {"Idempotency-Key": "k"}),
            (b'{"id": "k"}', "", {}),
            (b'{"id": "k", "delta": 3}', "", {"Idempotency-Key": "new"}),
        ):
            answer = await service.ask("POST", f"{name}{more}", other, named)
            assert (answer.status, answer.field) == (422, "id"), (form, other, more)
    assert await service.totals() == dict.fromkeys(FORMS, 2)


async def test_an_empty_body_and_a_delta_of_1_are_the_same(service: Service) -> None:
    for number, (body, query) in enumerate(
        ((None, ""), (b"", ""), (b"{}", ""), (b'{"delta": 1}', ""), (None, "?by=1"))
    ):
        assert said(await service.incr("c", body, query, Idempotency_Key="k")) == (number > 0, 0)
    assert await service.value("c") == 1


@pytest.mark.parametrize("restarts", [False, True])
async def test_who_waits_is_always_told(service: Service, restarts: bool) -> None:
    async with service.applying():
        for expected in (False, True, True):
            answer = await service.incr("c", b'{"delta": 2, "id": "x"}', WAIT)
            assert (answer.status, answer.json["value"], *said(answer)) == (200, 2, expected, 0)
            answer = await service.post(f"/v1/increments{WAIT}", b'{"counters": {"a": 1, "b": 1}}', Idempotency_Key="k")
            assert (answer.status, *said(answer)) == (200, expected, 2 * expected)
            if restarts:
                forget(service)
    assert await service.totals() == {"a": 1, "b": 1, "c": 2}


async def test_another_process_on_the_file_is_told_too(tmp_path: Path) -> None:
    async with running(tmp_path) as one, running(tmp_path) as other, one.applying():
        for service, expected in ((one, False), (other, True), (one, True)):
            assert said(await service.incr("c", b'{"id": "x"}', WAIT)) == (expected, 0)
            body = b'[{"counter": "c"}, {"counter": "c", "id": "y"}]'
            answer = await service.post(f"/v1/increments{WAIT}", body, Idempotency_Key="k")
            assert said(answer) == (expected, 2 * expected)
        assert await one.value("c") == 3


async def test_of_many_at_once_that_wait_one_is_told_that_it_is_the_first(tmp_path: Path) -> None:
    async with running(tmp_path) as one, running(tmp_path) as other, one.applying():
        answers = await asyncio.gather(
            *(service.incr("c", b'{"id": "x"}', WAIT) for service in (one, other) for _ in range(8)),
            *(one.incr("d", b'{"id": "x%d"}' % number, WAIT) for number in range(8)),
        )
        assert [said(answer)[0] for answer in answers[:16]].count(False) == 1
        assert not any(said(answer)[0] for answer in answers[16:])
        assert await one.totals() == {"c": 1, "d": 8}


async def test_of_many_at_once_that_do_not_wait_the_process_knows_the_first(service: Service) -> None:
    answers = await asyncio.gather(*(service.incr("c", b'{"id": "x"}') for _ in range(8)))
    assert [said(answer)[0] for answer in answers].count(False) == 1


async def test_after_the_timeout_it_is_told_what_the_process_remembers(service: Service) -> None:
    for expected in (False, True):
        answer = await service.incr("c", b'{"id": "x"}', "?wait=applied&timeout=0.05")
        assert (answer.status, *said(answer)) == (202, expected, 0)


@pytest.mark.parametrize("wait", ["", WAIT])
async def test_a_batch_tells_how_many_and_whether_it_was_all(service: Service, wait: str) -> None:
    async def send(*ids: str, **key: Any) -> tuple[bool, int]:
        items = ['{"counter": "c"}' if id_ == "-" else f'{{"counter": "c", "id": "{id_}"}}' for id_ in ids]
        answer = await service.post(f"/v1/increments{wait}", f"[{','.join(items)}]".encode(), **key)
        if wait:
            forget(service)
        return said(answer)

    async with service.applying():
        assert await send("x", "-", "y") == (False, 0)
        assert await send("x", "-", "y") == (False, 2)
        assert await send("y", "x") == (True, 2)
        assert await send("z", "z", "z") == (False, 2)
        assert await send("-", "u", Idempotency_Key="k") == (False, 0)
        assert await send("-", "u", Idempotency_Key="k") == (True, 2)
        assert await send("-", "v", Idempotency_Key="k") == (False, 1)
        assert await send("-", "-") == (False, 0)


async def test_a_large_batch_in_several_envelopes_is_told_of_each_id(service: Service) -> None:
    items = [b'{"counter": "c", "id": "%d"}' % number for number in range(2_500)]
    await service.incr("c", b'{"id": "0"}')
    async with service.applying():
        for ids, expected in ((items[:5], 1), (items, 5), (items[1_400:], 1_100)):
            forget(service)
            assert said(await service.post(f"/v1/increments{WAIT}", b"[%b]" % b",".join(ids)))[1] == expected
    assert await service.value("c") == 2_500


@pytest.mark.parametrize("body", [b'{"id": "x"}', b'[{"counter": "c", "id": "x"}]', b'{"counters": {"c": 1}}'])
async def test_a_retry_of_an_ambiguous_answer_finds_its_first_try(
    service: Service, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    """The first try was published, and nobody could say so: the retry is told that it counted."""
    target = "/v1/counters/c" if body.startswith(b'{"id"') else "/v1/increments"
    publish = service.parts.publisher.publish

    async def fails(*arguments: Any) -> None:
        await publish(*arguments)
        raise TransientError("nobody knows")

    with monkeypatch.context() as context:
        context.setattr(service.ingest.publishing._publisher, "publish", fails)
        assert (await service.post(target, body, Idempotency_Key="k")).status == 503
    async with service.applying():
        answer = await service.post(f"{target}{WAIT}", body, Idempotency_Key="k")
    assert (answer.status, said(answer)[0]) == (200, True)
    assert await service.totals() == {"c": 1}


async def test_receipts_of_older_versions_are_no_duplicates(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not say who counted, so nobody is told something that is not known."""
    read = read_note
    monkeypatch.setattr("ingest.api.receipts.read_note", lambda note: read(b"") if note else read(note))
    async with service.applying():
        for _ in range(2):
            assert said(await service.incr("c", b'{"id": "x"}', WAIT)) == (False, 0)
            answer = await service.post(f"/v1/increments{WAIT}", b'{"counters": {"a": 1}}', Idempotency_Key="k")
            assert said(answer) == (False, 0)
            forget(service)
    assert await service.totals() == {"a": 1, "c": 1}
