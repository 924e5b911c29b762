"""COUNTERSINK_MAX_COUNTERS: no more new counters than that, and those that exist go on."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from countersink.calls import MOST_ITEMS
from shared.config.settings import Settings
from tests.http.answer import Answer
from tests.http.keys import guarded
from tests.http.service import Service, running, url_name

LIMITS: Final = Settings.read({"COUNTERSINK_MAX_COUNTERS": "a=:=3,page:=2,=8"}).max_counters


@pytest.fixture(autouse=True)
def _counts_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingest.accept.new_names.COUNT_AGAIN", 0.01)


@pytest.fixture
async def limited(tmp_path: Path) -> AsyncIterator[Service]:
    async with running(tmp_path, max_counters=LIMITS) as service:
        yield service


@pytest.fixture(params=[{}, {"TE": "x"}], ids=["either way", "by aiohttp"])
def both(request: pytest.FixtureRequest, limited: Service) -> Service:
    """The fast path leaves requests with the header TE to aiohttp."""
    limited._session.headers.update(request.param)
    return limited


def is_refused(answer: Answer, prefix: str) -> bool:
    """Whether the answer is a 429 that names the prefix and the setting, and when to try again."""
    if answer.status != 429:
        return False
    assert int(answer.headers["Retry-After"]) >= 1
    assert "COUNTERSINK_MAX_COUNTERS" in answer.json["detail"]
    assert (repr(prefix) if prefix else "in all") in answer.json["detail"]
    return True


def lines(*items: dict[str, Any]) -> bytes:
    return b"\n".join(map(orjson.dumps, items))


async def test_a_flood_of_new_names_ends_at_the_limit_and_counters_that_exist_go_on(both: Service) -> None:
    answers = await asyncio.gather(*(both.incr(f"n{number}") for number in range(200)))
    refused = [number for number, answer in enumerate(answers) if is_refused(answer, "")]
    assert len(refused) == 192
    assert sum(answer.status == 202 for answer in answers) == 8
    counted = [number for number in range(200) if number not in refused]
    for _ in range(3):
        for number in counted:
            assert (await both.incr(f"n{number}", b'{"delta":10}')).status == 202
        assert is_refused(await both.incr("another"), "")
        await both.apply()
    assert await both.totals() == {f"n{number}": 31 for number in counted}


async def test_a_removed_counter_gives_its_room_to_another(limited: Service) -> None:
    for name in ("page:1", "page:2"):
        await limited.incr(name)
    await limited.apply()
    await asyncio.sleep(0.02)  # so that the next request counts them in the store
    assert is_refused(await limited.incr("page:3"), "page:")
    assert (await limited.ask("DELETE", "/v1/counters/page:1")).status == 200
    await limited.remove()
    await asyncio.sleep(0.02)
    assert (await limited.incr("page:3")).status == 202
    assert is_refused(await limited.incr("page:4"), "page:")


async def test_a_request_that_is_refused_takes_no_room(limited: Service) -> None:
    """Nothing of it counts, so its new names do not, either."""
    await limited.incr("page:1", b'{"id": "i"}')
    for form in (1, 2, 3):
        batch = [{"counter": f"page:new {form}"}, {"counter": "page:1", "id": "i", "delta": 2}]
        assert (await limited.post("/v1/increments", orjson.dumps(batch))).status == 422
        assert (await limited.incr("page:1", b'{"id": "i", "delta": 2}')).status == 422
    assert (await limited.incr("page:2")).status == 202
    assert is_refused(await limited.incr("page:3"), "page:")


async def test_a_counter_that_is_pending_is_none_that_is_new(limited: Service, tmp_path: Path) -> None:
    """Another process has accepted it, or this one before it was restarted."""
    for name in ("page:1", "page:2"):
        await limited.incr(name)
    async with running(tmp_path, max_counters=LIMITS) as other:
        for name in ("page:3", "page:4"):
            await other.incr(name)
        for name in ("page:1", "page:2"):
            assert (await other.incr(name)).status == 202, "GET says that it exists"


async def test_prefixes_and_names_may_hold_anything(limited: Service) -> None:
    """Those that come right before and behind all names with a prefix are not under its limit."""
    last = chr(0x10FFFF)
    for name in ("a=:\u00e9", f"a=:{last * 98}", "a=:/?#%", "a=", "a=;", "a<:", "a=\u00e9"):
        assert (await limited.incr(name)).status == 202, name
    await limited.apply()
    for name in ("a=:", "a=:\U00010000", "a=:%41", f"a=:{last}"):
        assert is_refused(await limited.incr(name), "a=:"), name
    # The same names, encoded in another way.
    for path in ("a%3D%3a%C3%A9", "%61=:%2f%3f%23%25", "a%3d"):
        assert (await limited.post(f"/v1/counters/{path}")).status == 202, path
    assert (await limited.post("/v1/counters/a=:%ff")).status == 400
    assert (await limited.incr("last")).status == 202
    assert is_refused(await limited.incr("one more"), "")


@pytest.mark.parametrize("form", ["array", "lines", "map"])
async def test_of_a_batch_new_names_are_rejected_and_others_count(both: Service, form: str) -> None:
    await both.incr("page:1")
    names = ["page:1", "page:2", "page:3", "page:4", "other"]
    items = [{"counter": name, "delta": 2} for name in names]
    body = {
        "array": orjson.dumps([*items, {"counter": ""}]),
        "lines": lines(*items, {"counter": ""}),
        "map": orjson.dumps({"counters": {**dict.fromkeys(names, 2), "": 2}}),
    }[form]
    answer = await both.post("/v1/increments", body)
    assert (answer.status, answer.json["accepted"]) == (202, 3)
    assert [one.get("counter") for one in answer.json["rejected"]][1:] == ["page:3", "page:4"]
    assert all("COUNTERSINK_MAX_COUNTERS" in one["reason"] for one in answer.json["rejected"][1:])
    await both.apply()
    assert await both.totals() == {"page:1": 3, "page:2": 2, "other": 2}


async def test_a_batch_of_new_names_alone_is_429_and_nothing_counts(both: Service) -> None:
    await both.post("/v1/increments", b'{"counters":{"page:1":1,"page:2":1}}')
    for body in (
        b'{"counters":{"page:3":1}}',
        b'[{"counter":"page:3"},{"counter":"page:3","id":"x"}]',
        b'{"counter":"page:3","id":"x"}\n{"counter":""}',
    ):
        assert is_refused(await both.post("/v1/increments", body), "page:")
    assert (await both.incr("page:1", Idempotency_Key="x")).status == 202
    await both.apply()
    assert await both.totals() == {"page:1": 2, "page:2": 1}


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        ("/v1/counters/page:3", b"", {}),
        ("/v1/increments", b'{"counters":{"page:3":1,"page:4":1}}', {}),
        ("/v1/increments", b'{"counters":{"page:3":1,"b":1,"page:4":1,"page:1":1}}', {"Idempotency_Key": "key"}),
        ("/v1/increments", b'[{"counter":"page:4","id":"x"},{"counter":"page:3"},{"counter":"page:3","id":"y"}]', {}),
    ],
)
async def test_a_refusal_names_the_counters_without_room(
    both: Service, path: str, body: bytes, headers: dict[str, Any]
) -> None:
    """So a client can send the others again, without a search for them. Here all without an id count or none."""
    await both.post("/v1/increments", b'{"counters":{"page:1":1,"page:2":1}}')
    answer = await both.post(path, body, **headers)
    assert is_refused(answer, "page:")
    assert sorted(answer.json["counters"]) == sorted({"page:3", "page:4"} if body else {"page:3"})


async def test_a_refusal_names_as_many_counters_as_the_python_client_sends_at_once(limited: Service) -> None:
    await limited.post("/v1/increments", b'{"counters":{"page:1":1,"page:2":1}}')
    names = [f"page:new{number}" for number in range(2 * MOST_ITEMS)]
    answer = await limited.post("/v1/increments", orjson.dumps({"counters": dict.fromkeys(names, 1)}))
    assert answer.json["counters"] == names[:MOST_ITEMS]


async def test_many_rejections_are_counted_and_some_are_listed(limited: Service) -> None:
    items = [{"counter": f"page:{number % 50}", "delta": 1} for number in range(300)]
    items += [{"counter": f"page:{number}", "delta": 1, "id": f"id{number}"} for number in range(5)]
    answer = (await limited.post("/v1/increments", orjson.dumps(items))).json
    assert answer["accepted"] == 2 * 6 + 2
    assert answer["rejected_count"] == 48 * 6 + 3
    assert len(answer["rejected"]) == 100
    await limited.apply()
    assert await limited.totals() == {"page:0": 7, "page:1": 7}


async def test_under_an_idempotency_key_all_without_an_id_count_or_none(both: Service, tmp_path: Path) -> None:
    """If a part counted, a retry that finds room would seem to count the rest, which its receipt would prevent."""
    body = b'[{"counter":"page:1"},{"counter":"page:2"},{"counter":"page:3"},{"counter":"b","id":"i"}]'
    for _ in range(2):
        answer = await both.post("/v1/increments", body, Idempotency_Key="k")
        assert (answer.status, answer.json["accepted"]) == (202, 1)
        assert [one["counter"] for one in answer.json["rejected"]] == ["page:1", "page:2", "page:3"]
        await both.apply()
    assert await both.totals() == {"b": 1}
    smaller = b'[{"counter":"page:1"},{"counter":"page:2"},{"counter":""}]'
    first = await both.post("/v1/increments", smaller, Idempotency_Key="k")
    assert is_refused(await both.incr("page:4"), "page:")
    await both.apply()
    again = await both.post("/v1/increments", smaller, Idempotency_Key="k")
    assert (again.status, again.json["accepted"], again.json["rejected"]) == (202, 2, first.json["rejected"])
    await both.apply()
    assert await both.totals() == {"b": 1, "page:1": 1, "page:2": 1}


async def test_a_set_and_new_shards_make_no_counter_beyond_the_limit(limited: Service) -> None:
    assert (await limited.ask("PUT", "/v1/counters/page:1", b'{"value":7}')).status == 200
    assert (await limited.ask("PUT", "/v1/counters/page:2/shards", b'{"shards":2}')).status == 200
    assert is_refused(await limited.ask("PUT", "/v1/counters/page:3", b'{"value":7}'), "page:")
    assert is_refused(await limited.ask("PUT", "/v1/counters/page:4/shards", b'{"shards":2}'), "page:")
    assert (await limited.ask("PUT", "/v1/counters/page:1", b'{"value":8}')).status == 200
    for method, target in (("POST", "/v1/counters/page:3/reset"), ("DELETE", "/v1/counters/page:3")):
        assert (await limited.ask(method, target)).status == 200
    assert set(await limited.totals()) <= {"page:1", "page:2"}


async def test_new_names_that_are_refused_are_spent_from_the_rate_of_a_key(tmp_path: Path) -> None:
    limits = Settings.read({"COUNTERSINK_MAX_COUNTERS": "=0"}).max_counters
    async with guarded(tmp_path, {"max_counters": limits}, slow={"rate": 2}) as it:
        answers = [await it.post("slow", "/v1/counters/n") for _ in range(4)]
        assert [answer.status for answer in answers] == [429] * 4
        assert "COUNTERSINK_MAX_COUNTERS" in answers[0].json["detail"]
        assert "more than its 2 increments" in answers[3].json["detail"]


async def test_with_ack_none_or_a_wait_it_is_the_same(both: Service) -> None:
    async with both.applying():
        for query in ("?ack=none", "?wait=applied"):
            name = url_name(f"page:{query}")
            assert (await both.post(f"/v1/counters/{name}{query}")).status in {200, 202}
        for query in ("", "?ack=none", "?wait=applied"):
            assert is_refused(await both.incr("page:3", query=query), "page:")
            batch = b'{"counters":{"page:3":1}}'
            assert is_refused(await both.post(f"/v1/increments{query}", batch), "page:")
