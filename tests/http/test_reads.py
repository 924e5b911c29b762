"""Reads: one counter, several, and all of them page by page."""

import asyncio
import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ingest.api.counters import MOST_LISTED, MOST_NAMED
from shared.counters.reader import AllNames
from shared.model.buckets import BrokerMillis, StoreMillis
from shared.model.dead_letters import with_body
from shared.model.words import DEAD, Commit, Envelope, Receipt
from tests.http.service import Service, running, url_name


async def test_a_counter_never_seen_is_zero_and_does_not_exist(service: Service) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    reading = await service.read("c")
    assert before <= datetime.fromisoformat(reading.pop("as_of")) <= datetime.now(UTC)
    assert reading == {
        "name": "c", "value": 0, "applied": 0, "pending": 0, "exact": True, "shards": 0, "exists": False,
        "generation": 0, "updated_at": None,
    }  # fmt: skip
    assert await service.totals() == {}


async def test_a_value_is_applied_and_pending(service: Service) -> None:
    await service.incr("c", b'{"delta": 4}')
    reading = await service.read("c")
    assert (reading["value"], reading["applied"], reading["pending"], reading["exists"]) == (4, 0, 4, True)
    await service.apply()
    await service.incr("c", b'{"delta": -1, "id": "x"}')
    reading = await service.read("c")
    assert (reading["value"], reading["applied"], reading["pending"]) == (3, 4, -1)
    assert (reading["exact"], reading["shards"], reading["exists"]) == (True, 1, True)
    await service.apply()
    reading = await service.read("c")
    assert (reading["value"], reading["applied"], reading["pending"]) == (3, 3, 0)


@pytest.mark.parametrize("query", ["", "?max_age=60", "?max_age=1e9", "?max_age=0", "?max_age=.5"])
async def test_a_read_sees_what_was_answered_however_old_its_base_may_be(tmp_path: Path, query: str) -> None:
    async with running(tmp_path, cache_ttl=60.0) as service:
        for expected in range(1, 4):
            await service.incr("c")
            assert (await service.read("c", query))["value"] == expected
            await service.apply()
            assert (await service.read("c", query))["value"] == expected


async def test_a_cached_base_keeps_its_as_of_and_max_age_0_renews_it(tmp_path: Path) -> None:
    async with running(tmp_path, cache_ttl=60.0) as service:
        first = await service.read("c", "")
        assert await service.read("c", "") == first
        renewed = first
        while renewed["as_of"] == first["as_of"]:
            renewed = await service.read("c")
        assert await service.read("c", "?max_age=60") == renewed


async def test_readers_and_writers_at_once_see_what_was_answered_before(service: Service) -> None:
    async def count() -> None:
        for _ in range(20):
            await service.incr("c")

    async def read() -> None:
        last = 0
        for _ in range(20):
            value = await service.value("c")
            assert value >= last
            last = value

    async with service.applying(), asyncio.TaskGroup() as tasks:
        for work in (count, read, count, read):
            tasks.create_task(work())
    assert await service.value("c") == 40


async def test_several_names_are_answered_in_their_order(service: Service) -> None:
    await service.post("/v1/increments", b'{"counters": {"a": 1, "b/c": 2, "\\u00e9": 3}}')
    asked = ["é", "none", "a", "b/c", "a"]
    answer = await service.get("/v1/counters?max_age=0&" + "&".join(f"name={url_name(name)}" for name in asked))
    assert [(item["name"], item["value"]) for item in answer.json["counters"]] == [
        ("é", 3),
        ("none", 0),
        ("a", 1),
        ("b/c", 2),
        ("a", 1),
    ]
    assert [item["exists"] for item in answer.json["counters"]] == [True, False, True, True, True]
    assert answer.json["next_page_token"] is None


async def test_a_thousand_names_are_most(service: Service) -> None:
    names = "&".join(f"name={number}" for number in range(MOST_NAMED))
    assert len((await service.get(f"/v1/counters?{names}")).json["counters"]) == MOST_NAMED


@pytest.mark.parametrize("when", ["pending", "applied", "half"])
async def test_a_list_is_complete_page_by_page_and_in_order(service: Service, when: str) -> None:
    names = ["p:", "p:1", "p:10", "p:2", "p:é", "p:\uffff", "p:\U0001f600"]
    if when == "half":
        await service.post("/v1/increments", json.dumps({"counters": dict.fromkeys(names[::2], 1)}).encode())
        await service.apply()
    counters = dict.fromkeys(["o", *names, "p", "q"], 1)
    await service.post("/v1/increments", json.dumps({"counters": counters}).encode())
    if when == "applied":
        await service.apply()
    for limit in (1, 2, 3, 7, MOST_LISTED):
        *full, last = [page["counters"] async for page in service.pages(f"prefix=p:&limit={limit}")]
        assert all(len(page) == limit for page in full)
        assert all(item["exists"] for page in (*full, last) for item in page)
        assert [item["name"] for page in (*full, last) for item in page] == sorted(names), limit


async def test_a_page_holds_100_unless_told(service: Service) -> None:
    counters = {f"{number:03}": number + 1 for number in range(150)}
    await service.post("/v1/increments", json.dumps({"counters": counters}).encode())
    page = (await service.get("/v1/counters")).json
    assert [item["name"] for item in page["counters"]] == sorted(counters)[:100]
    rest = (await service.get(f"/v1/counters?prefix=&page_token={page['next_page_token']}")).json
    assert [item["name"] for item in rest["counters"]] == sorted(counters)[100:]


async def test_a_prefix_is_taken_literally(service: Service) -> None:
    prefixes = ("%", "_", "*", "'", '"', "\\", "a b", "\U0010ffff", "x" * 400)
    names = dict.fromkeys((*prefixes, "zz", "A"), 1)
    await service.post("/v1/increments", json.dumps({"counters": names}).encode())
    for _ in range(2):
        for prefix in prefixes:
            page = (await service.get(f"/v1/counters?prefix={url_name(prefix)}")).json
            assert [item["name"] for item in page["counters"]] == [prefix]
        await service.apply()


@pytest.mark.parametrize("when", ["pending", "applied", "half"])
async def test_names_are_found_by_a_part_under_a_prefix_page_by_page(service: Service, when: str) -> None:
    names = ["home", "page:a/home", "page:b", "page:home", "page:home:2", "page:\U0001f600home"]
    if when == "half":
        await service.post("/v1/increments", json.dumps({"counters": dict.fromkeys(names[::2], 1)}).encode())
        await service.apply()
    await service.post("/v1/increments", json.dumps({"counters": dict.fromkeys(names, 1)}).encode())
    if when == "applied":
        await service.apply()
    pages = [page async for page in service.pages("contains=home&prefix=page:&limit=1")]
    assert all(page["exact"] for page in pages)
    assert [[item["name"] for item in page["counters"]] for page in pages] == [
        ["page:a/home"],
        *([n] for n in names[3:]),
    ]
    assert len((await service.get("/v1/counters?contains=home")).json["counters"]) == 5
    assert len((await service.get("/v1/counters?contains=")).json["counters"]) == 6


async def test_without_search_in_the_store_a_part_is_422_and_says_what_to_do(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AllNames, "searchable", False)  # as with Datastore
    answer = await service.get("/v1/counters?contains=home")
    assert (answer.status, answer.field) == (422, "contains")
    assert "'prefix'" in answer.json["detail"]


async def test_head_is_get_without_the_body(service: Service) -> None:
    await service.incr("c")
    for target in ("/v1/counters/c", "/v1/counters", "/healthz", "/openapi.json", "/v1/counters/.."):
        get, head = await service.get(target), await service.ask("HEAD", target)
        assert (head.status, head.body) == (get.status, b"")
        assert head.headers["Content-Type"] == get.headers["Content-Type"]
        assert head.headers["Content-Length"] == str(len(get.body))


async def test_a_counter_that_has_only_a_dead_letter_is_listed(service: Service) -> None:
    """No message of it waits, and it has no shard."""
    envelope = Envelope("e", {"lonely": 3})
    dead = with_body(Receipt(envelope.key, StoreMillis(1), DEAD), envelope, "refused", BrokerMillis(0))
    await service.parts.store.apply(Commit((dead,), ()))
    assert (await service.get("/v1/counters?contains=nely")).json["counters"][0]["name"] == "lonely"
    (found,) = (await service.get("/v1/counters?prefix=lone")).json["counters"]
    assert (found["name"], found["value"], found["pending"], found["exact"]) == ("lonely", 3, 3, True)


async def test_the_largest_come_first_with_what_is_pending(service: Service) -> None:
    await service.post("/v1/increments", b'{"counters": {"a:1": 5, "a:2": 7, "a:3": 7, "b": 100}}')
    await service.apply()
    await service.post("/v1/increments", b'{"counters": {"a:2": -3, "a:4": 6}}')
    answer = await service.get("/v1/counters?prefix=a:&order=value&limit=3")
    assert [(one["name"], one["value"]) for one in answer.json["counters"]] == [("a:3", 7), ("a:4", 6), ("a:1", 5)]
    assert (answer.json["exact"], answer.json["next_page_token"]) == (True, None)
    by_name = await service.get("/v1/counters?prefix=a:&order=name&limit=3")
    assert [one["name"] for one in by_name.json["counters"]] == ["a:1", "a:2", "a:3"]


async def test_what_was_not_changed_for_long_is_found(service: Service, tmp_path: Path) -> None:
    await service.post("/v1/increments", b'{"counters": {"new": 1, "old": 5, "old:counted": 7, "older": 0}}')
    await service.apply()
    with closing(sqlite3.connect(tmp_path / "countersink.db")) as db, db:
        db.execute("UPDATE shards SET updated = updated - 401 * 86400000 WHERE counter LIKE 'old%'")
    await service.incr("old:counted")
    await service.incr("pending")

    async def unused(span: str) -> list[str]:
        answer = await service.get(f"/v1/counters?max_age=0&unused_for={span}")
        return [one["name"] for one in answer.json["counters"]]

    assert [await unused(span) for span in ("400d", "402d", "1y", "2y")] == [["old"], [], ["old"], []]
    assert (await service.read("old"))["updated_at"] < (await service.read("new"))["updated_at"]
    assert (await service.read("pending"))["updated_at"] is None
    await service.apply()
    assert await unused("400d") == ["old"]
    await service.incr("old")
    await service.apply()
    assert await unused("0h") != []
    assert await unused("400d") == []
