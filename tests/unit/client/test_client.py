"""Each method of the Python client, against a real service."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import countersink
from countersink import AsyncClient, Increment, Rejected, RejectedError, calls
from tests.http.service import Service, running


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running(tmp_path) as it:
        yield it


@pytest.fixture
async def client(service: Service) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(service.url, patience=120) as it:
        yield it


def test_the_client_is_imported_from_the_package_itself() -> None:
    assert countersink.AsyncClient is AsyncClient
    with pytest.raises(AttributeError):
        countersink.nothing  # noqa: B018 (it is asked for)
    assert set(countersink.__all__) <= set(dir(countersink))
    assert {"__name__", "__version__"} <= set(dir(countersink))


async def test_counting_and_reading(client: AsyncClient, service: Service) -> None:
    answer = await client.increment("a", 5)
    assert await client.receipt(answer.receipt) == "pending"
    await service.apply()
    assert await client.receipt(answer.receipt) == "applied"
    await client.increment("a", -7)
    counter = await client.get("a", max_age=0)
    assert (counter.name, counter.value, counter.applied, counter.pending) == ("a", -2, 5, -7)
    assert (counter.exact, counter.exists, counter.shards) == (True, True, 1)
    assert abs(datetime.now(UTC) - counter.as_of) < timedelta(minutes=1)
    assert not (await client.get("b")).exists


async def test_the_same_id_counts_once(client: AsyncClient) -> None:
    for _ in range(3):
        await client.increment("a", id="x" * 1000)
    await client.increment("b", id="x" * 1000)
    assert [(await client.increment(name, id="y")).duplicates for name in "aa"] == [0, 1]
    many = [
        await client.increment_many([*[Increment("b", 0)] * 1_500, Increment("b", 0, "z")], key="k") for _ in range(2)
    ]
    assert [one.duplicates for one in many] == [0, 1_501]
    assert [counter.value for counter in await client.get_many(["a", "b"], max_age=0)] == [2, 1]


async def test_a_counter_is_set_reset_and_deleted(client: AsyncClient) -> None:
    await client.increment("a/b", 5)
    for _ in range(2):
        changed = await client.set("a/b", 100, key="k")
        assert (changed.name, changed.before, changed.after, changed.key) == ("a/b", 5, 100, "k")
    await client.increment("a/b", 5)
    assert (await client.reset("a/b")).before == 105
    assert (await client.set("a/b", -1)).key != (await client.delete("a/b")).key
    assert not (await client.get("a/b", max_age=0)).exists
    assert [counter async for counter in client.list()] == []
    for value in (2**53, True, "1"):
        with pytest.raises(RejectedError, match="the value must"):
            await client.set("a", value)  # type: ignore[arg-type] # that is what is tried
    with pytest.raises(RejectedError, match="can't be a header"):
        await client.reset("a", key=" ")


async def test_the_answer_has_the_total_if_it_is_wanted(client: AsyncClient, service: Service) -> None:
    for expected in (3, 6):
        answer = await client.increment("a", 3, want_value=True)
        assert (answer.value, answer.exact) == (expected, True)
    assert (await client.increment("a", wait=0)).value is None
    async with service.applying():
        answer = await client.increment("a", wait=20, want_value=True)
    assert (answer.value, answer.exact) == (8, True)


@pytest.mark.parametrize("name", ["a/b", "ü", "100%", "?", "#", "a b", "+", "a&name=b", "☃" * 133])
async def test_any_name_can_be_counted_read_and_listed(client: AsyncClient, name: str) -> None:
    await client.increment(name)
    assert (await client.get(name)).value == 1
    assert [counter.name for counter in await client.get_many([name, "other"])] == [name, "other"]
    assert [counter.name async for counter in client.list(name)] == [name]


async def test_a_batch_of_each_form(client: AsyncClient) -> None:
    assert (await client.increment_many({"a": 2, "b": -1})).accepted == 2
    assert (await client.increment_many([Increment("a", 3), {"counter": "b"}, Increment("a", 1, "x")])).accepted == 3
    assert (await client.increment_many([Increment("a", 1, "x")])).accepted == 1
    assert [counter.value for counter in await client.get_many(["a", "b"], max_age=0)] == [6, 0]


@pytest.mark.parametrize("items", [[("a", 1)], [Increment("a"), "b"], "abc", [None], [5]])
async def test_what_is_no_item_is_said(client: AsyncClient, items: Any) -> None:
    with pytest.raises(RejectedError, match=r"an item must be an Increment, or a dict such as .*, is ") as error:
        await client.increment_many(items)
    assert error.value.field == "items"
    assert [counter async for counter in client.list()] == []


async def test_a_batch_of_nothing_is_nothing(client: AsyncClient) -> None:
    answer = await client.increment_many([])
    assert (answer.accepted, answer.receipt) == (0, "")


async def test_a_large_batch_sent_twice_under_one_key_counts_once(client: AsyncClient, service: Service) -> None:
    items = {f"c{number:04}": number for number in range(1, 2_501)}
    first = await client.increment_many(items, key="batch")
    again = await client.increment_many(items, key="batch")
    assert (first.accepted, first.id) == (again.accepted, again.id) == (2_500, "batch")
    assert await client.receipt(first.receipt) == "pending"
    await service.apply()
    assert await client.receipt(first.receipt) == "applied"
    found = {counter.name: counter.value async for counter in client.list(page=1_000)}
    assert found == items
    assert [counter.value for counter in await client.get_many(items, max_age=0)] == list(items.values())


async def test_a_part_of_a_batch_has_no_key_that_somebody_else_may_choose() -> None:
    keys = [calls.header_of_key(key, part)["Idempotency-Key"] for key in ("a", "a/1", "1") for part in range(3)]
    assert len(set(keys)) == len(keys)
    assert keys == [calls.header_of_key(key, part)["Idempotency-Key"] for key in ("a", "a/1", "1") for part in range(3)]


@pytest.mark.parametrize("name", [None, 1, True])
async def test_a_name_that_is_no_text_is_refused(client: AsyncClient, name: Any) -> None:
    """JSON would make a text of it."""
    with pytest.raises(RejectedError, match=f"the counter's name must be text, is {name}") as error:
        await client.increment_many({"a": 1, name: 3})
    assert error.value.field == "items"


async def test_bad_items_are_named_by_their_place_in_the_whole_batch(client: AsyncClient) -> None:
    items = [Increment("a")] * 1_001 + [Increment("")] + [Increment("a")]
    answer = await client.increment_many(items)
    assert answer.accepted == 1_002
    assert [bad.item for bad in answer.rejected] == [1_001]
    assert "empty" in answer.rejected[0].reason
    answer = await client.increment_many({"": 1, "b": 1})
    assert answer.rejected == (Rejected("", answer.rejected[0].reason),)


async def test_shards_are_raised_and_compacted(client: AsyncClient) -> None:
    await client.increment("a", 5)
    assert await client.set_shards("a", 7) == 7
    assert await client.set_shards("a", 2) == 7
    assert await client.set_shards("a", 2, compact=True) == 2
    assert (await client.get("a", max_age=0)).value == 5
    with pytest.raises(RejectedError, match="100"):
        await client.set_shards("a", 101)


async def test_a_list_is_in_order_over_all_its_pages(client: AsyncClient) -> None:
    await client.increment_many({f"p{number:02}": 1 for number in range(25)} | {"q": 1})
    names = [counter.name async for counter in client.list("p", page=10)]
    assert names == [f"p{number:02}" for number in range(25)]
    pages = [page async for page in client.pages("p", page=10)]
    assert [(len(page.counters), page.exact) for page in pages] == [(10, True), (10, True), (5, True)]


async def test_many_names_of_many_bytes_take_several_requests(client: AsyncClient) -> None:
    names = [f"{number:03}{'☃' * 132}" for number in range(50)]
    await client.increment_many(dict.fromkeys(names, 1))
    assert [counter.name for counter in await client.get_many(names)] == names
    assert await client.get_many([]) == []


@pytest.mark.parametrize("name", ["", ".", "__x__", "a\n", "x" * 401, "\udcff"])
async def test_a_name_that_can_not_be_is_refused_before_it_is_sent(name: str) -> None:
    async with AsyncClient("http://127.0.0.1:1") as client:
        for ask in (client.increment(name), client.get(name), client.get_many([name])):
            with pytest.raises(RejectedError, match="the counter's name must") as raised:
                await ask
            assert raised.value.field == "name"


@pytest.mark.parametrize("key", ["", "a\r\nb", " a", "a\t", "x" * 1_001, "\udcff"])
async def test_a_key_that_can_not_be_a_header_is_refused(key: str) -> None:
    async with AsyncClient("http://127.0.0.1:1") as client:
        with pytest.raises(RejectedError, match="the key"):
            await client.increment_many({"a": 1}, key=key)


async def test_a_key_of_any_other_characters_is_kept(client: AsyncClient) -> None:
    for key in ("ü ☃/%?", "x" * 1_000):
        for _ in range(2):
            await client.increment_many({"a": 1}, key=key)
    assert (await client.get("a", max_age=0)).value == 2


async def test_other_bad_arguments_are_refused_before_they_are_sent() -> None:
    async with AsyncClient("http://127.0.0.1:1") as client:
        for ask in (
            client.increment("a", 2**53),
            client.increment("a", id=""),
            client.increment("a", wait=-1),
            client.increment("a", wait=True),
            client.increment_many({"counter": "a", "delta": 5, "id": "x"}),  # type: ignore[arg-type]
            client.get_many("ab"),
            client.series("a", begin="2026-01-01T00:00:00Z"),  # type: ignore[arg-type]
            client.increment("a", wait=float("nan")),
            client.get("a", max_age=float("inf")),
            client.receipt(""),
            client.set_shards("a", 0),
        ):
            with pytest.raises(RejectedError):
                await ask


async def test_an_export_of_counts_by_time_is_asked_for(client: AsyncClient) -> None:
    begin = datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(hours=2)))
    with pytest.raises(RejectedError, match="COUNTERSINK_WINDOWS") as refused:
        await client.start_job("export", "p:", by="hour", begin=begin, end=begin)
    assert (refused.value.status, refused.value.field) == (422, "by")
    with pytest.raises(RejectedError, match="the begin must have a time zone") as naive:
        await client.start_job("export", "p:", by="hour", begin=datetime(2026, 1, 31))  # noqa: DTZ001 (that is the fault)
    assert naive.value.field == "begin"


async def test_jobs_are_started_looked_at_and_read(client: AsyncClient, service: Service) -> None:
    await client.increment_many({"p:a": 1, "p:b": 2, "q": 3})
    await service.apply()
    begun = await client.start_job("add", "p:", 10, id="mine")
    assert (begun.id, begun.state, begun.delta, begun.finished) == ("mine", "running", 10, None)
    await service.work()
    done = await client.start_job("add", "p:", 10, id="mine")
    assert (done.state, done.visited, done.changed, done.failed, done.share) == ("done", 2, 2, 0, 1.0)
    assert done.finished is not None
    assert done.finished >= done.started
    assert await client.job("mine") == done
    with pytest.raises(RejectedError, match="another job") as refused:
        await client.start_job("reset", "p:", id="mine")
    assert refused.value.status == 409
    export = await client.start_job("export", "p:")
    await service.work()
    assert export.delta is None
    lines = b"".join([lines async for lines in client.export(export.id)])
    assert lines == b'{"name":"p:a","value":11}\n{"name":"p:b","value":12}\n'
    compaction = await client.start_job("compact", "p:", shards=3)
    assert (compaction.delta, compaction.shards, compaction.state) == (None, 3, "running")
    stopped = await client.stop_job(compaction.id)
    assert (stopped.state, stopped.reason) == ("failed", "somebody stopped it; changes that were made stay")
    for wrong in (client.start_job("add", "\ud800", 1), client.start_job("add", "", 2**53), client.job("a/b")):
        with pytest.raises(RejectedError):
            await wrong
