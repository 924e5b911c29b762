"""Who uses an id or a key again is told so: whoever waits always, others as far as the process remembers."""

import asyncio
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from ingest.accept.admission import KnownIds
from shared.model.errors import TransientError
from shared.model.receipts import read_note
from tests.http.service import Service, running, url_name

WAIT = "?wait=applied&timeout=60"
FORMS: dict[str, tuple[bytes | None, str, dict[str, str]]] = {
    "by": (None, "by=2", {"Idempotency-Key": "k"}),
    "by and an empty body": (b"", "by=2", {"Idempotency-Key": "k"}),
    "body": (b'{"delta": 2}', "", {"Idempotency-Key": "k"}),
    "id": (b'{"id": "k", "delta": 2}', "", {}),
    "id beside a key": (b'{"delta":2,"id":"k"}', "", {"Idempotency-Key": "other"}),
}


def forget(service: Service) -> None:
    """As after a restart."""
    service.ingest.publishing._known_ids = KnownIds()


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
