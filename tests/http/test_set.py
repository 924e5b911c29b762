"""Set, reset, delete: the value before and after, exact whatever is pending."""

import asyncio
import contextlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from countersink_server.cli.audit import AGREES, judge, look
from shared.model.errors import StorageFullError
from shared.model.words import MAX_DELTA, Commit
from shared.ports.store import Balance
from shared.sqlite.database import Reserve
from shared.sqlite.store import SqliteStore
from tests.http.service import Service, running, url_name


async def change(service: Service, method: str, path: str, key: str | None, body: bytes | None = None) -> Any:
    headers = {"Idempotency-Key": key} if key else None
    answer = await service.ask(method, f"/v1/counters/{path}", body, headers)
    assert answer.status == 200, answer
    return answer.json


async def put(service: Service, name: str, value: int, key: str | None = None) -> Any:
    return await change(service, "PUT", url_name(name), key, b'{"value": %d}' % value)


async def reset(service: Service, name: str, key: str | None = None) -> Any:
    return await change(service, "POST", f"{url_name(name)}/reset", key)


async def delete(service: Service, name: str, key: str | None = None) -> Any:
    return await change(service, "DELETE", url_name(name), key)


async def audited(service: Service) -> None:
    """What the receipts say is what the shards hold, and nothing has drifted."""
    ledger = await look(service.parts.store, (), 0)
    with contextlib.closing(ledger):
        assert [line for line in ledger.lines() if judge(line, 0).mark != AGREES] == []
    assert service.parts.balance is not None
    assert service.parts.balance().drift == 0


async def test_a_counter_is_set_whatever_it_was(service: Service) -> None:
    for before, after in pairwise((0, 7, -MAX_DELTA, MAX_DELTA, 0)):
        assert await put(service, "a/b", after) == {"name": "a/b", "before": before, "after": after}
    reading = await service.read("a/b")
    assert (reading["value"], reading["pending"], reading["exists"]) == (0, 0, True)
    await audited(service)


async def test_a_reading_tells_that_the_counter_was_set(service: Service) -> None:
    """So who shows how fast it counts does not take a set for a million increments a second."""
    await service.incr("a")
    told = [(await service.read("a"))["generation"]]
    for change in (put(service, "a", 2**40), reset(service, "a"), delete(service, "a")):
        await change
        told.append((await service.read("a"))["generation"])
        await service.incr("a")
        await service.apply()
        assert (await service.read("a"))["generation"] == told[-1]
    assert (told[0], len({*told})) == (0, 4)


async def test_zero_makes_a_counter_and_a_reset_of_none_makes_none(service: Service) -> None:
    assert await put(service, "set", 0) == {"name": "set", "before": 0, "after": 0}
    assert await reset(service, "reset") == {"name": "reset", "before": 0, "after": 0}
    assert await delete(service, "deleted") == {"name": "deleted", "before": 0, "after": 0}
    assert await service.totals() == {"set": 0}


async def test_a_counter_that_is_made_by_a_set_has_as_many_shards_as_any_new_one(tmp_path: Path) -> None:
    async with running(tmp_path, shards=5) as service:
        for name, value in (("zero", 0), ("seven", 7)):
            await put(service, name, value)
            assert (await service.read(name))["shards"] == 5


async def test_what_is_pending_is_counted_before_the_set_and_not_again_when_it_is_applied(service: Service) -> None:
    await service.incr("c", b'{"delta": 5}')
    await service.apply()
    await service.incr("c", b'{"delta": 30}')
    await service.incr("c", b'{"delta": 200, "id": "x"}')
    assert await put(service, "c", 1_000) == {"name": "c", "before": 235, "after": 1_000}
    assert await service.value("c") == 1_000
    await service.incr("c", b'{"delta": 200, "id": "x"}')
    await service.incr("c")
    assert await service.value("c") == 1_001
    await service.apply()
    assert await service.value("c") == 1_001
    assert await reset(service, "c") == {"name": "c", "before": 1_001, "after": 0}
    await audited(service)


async def test_what_was_deleted_is_listed_again_when_it_is_counted_again(service: Service) -> None:
    for name in ("a", "b"):
        await service.incr(name, b'{"delta": 3}')
    await service.apply()
    await service.incr("a", b'{"delta": 4}')
    assert await delete(service, "a") == {"name": "a", "before": 7, "after": 0}
    for _ in range(2):  # with increments on their way, and when they have come
        reading = await service.read("a")
        assert (reading["value"], reading["exists"]) == (0, False)
        assert await service.totals() == {"b": 3}
        await service.apply()
    await service.incr("a")
    for _ in range(2):
        assert (await service.read("a"))["exists"]
        assert await service.totals() == {"a": 1, "b": 3}
        await service.apply()
    await audited(service)


async def test_what_was_deleted_leaves_nothing_and_begins_anew(service: Service) -> None:
    await service.ask("PUT", "/v1/counters/a/shards", b'{"shards": 5}')
    for number in range(3):
        await service.incr("a", b'{"delta": 3, "id": "x"}')
        await service.apply()
        assert await service.value("a") == (0 if number else 3)
        await delete(service, "a")
        await service.remove()
        reading = await service.read("a")
        assert (reading["value"], reading["shards"], reading["exists"]) == (0, 0, False)
        assert [*await service.parts.store.names("", "", 10)] == []
        await audited(service)
    await service.incr("a")
    await service.apply()
    await service.remove()
    assert await service.totals() == {"a": 1}
    await audited(service)


async def test_what_was_deleted_stays_where_it_is_to_stay(tmp_path: Path) -> None:
    async with running(tmp_path, ndb_writers="yes") as service:
        await service.incr("a")
        await service.apply()
        await delete(service, "a")
        await service.remove()
        assert [*await service.parts.store.names("", "", 10)] == ["a"]
        assert not (await service.read("a"))["exists"]
        assert await service.totals() == {}


@pytest.mark.parametrize("removed", [False, True])
async def test_what_was_deleted_is_there_when_it_is_set_or_when_it_is_reset_after_it_was_counted(
    service: Service, removed: bool
) -> None:
    """Whether it has been removed meanwhile or not."""
    for name in ("set", "counted", "reset"):
        await service.incr(name)
        await service.apply()
        await delete(service, name)
    if removed:
        await service.remove()
    await service.incr("counted")
    await put(service, "set", 0)
    for name in ("counted", "reset"):
        await reset(service, name)
    for _ in range(2):
        assert await service.totals() == {"set": 0, "counted": 0}
        assert not (await service.read("reset"))["exists"]
        await service.apply()
        await service.remove()
    await audited(service)


async def test_a_set_to_zero_that_meets_the_removal_of_what_was_deleted_makes_it_anew(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It saw a shard, so it had nothing to add; and before it commits that shard goes."""
    await service.incr("a")
    await service.apply()
    await delete(service, "a")
    apply = SqliteStore.apply

    async def remove_and_apply(store: SqliteStore, commit: Commit) -> int:
        await service.remove()
        return await apply(store, commit)

    monkeypatch.setattr(SqliteStore, "apply", remove_and_apply)
    assert (await put(service, "a", 0))["after"] == 0
    assert await service.totals() == {"a": 0}


async def test_under_a_key_it_happens_once_and_answers_the_same(service: Service) -> None:
    await service.incr("c", b'{"delta": 5}')
    first = await put(service, "c", 100, key="k")
    await service.incr("c")
    for _ in range(2):
        assert await put(service, "c", 100, key="k") == first
        await service.apply()
    assert await service.value("c") == 101
    assert (await put(service, "other", 1, key="k"))["after"] == 1
    assert (await put(service, "c", 7, key="l"))["before"] == 101
    gone = await reset(service, "c", key="k")
    assert gone == {"name": "c", "before": 7, "after": 0}
    await service.incr("c")
    assert await reset(service, "c", key="k") == gone
    assert (await delete(service, "c", key="k"))["before"] == 1
    await service.incr("c", Idempotency_Key="k")
    assert await service.value("c") == 1
    await audited(service)


async def test_of_equal_keys_at_once_one_happens(service: Service) -> None:
    await service.incr("c", b'{"delta": 5}')
    answers = await asyncio.gather(
        *(
            service.ask("PUT", "/v1/counters/c", b'{"value": %d}' % value, {"Idempotency-Key": "k"})
            for value in (*range(10, 18), *range(10, 18))
        )
    )
    value = await service.value("c")
    good = [answer.json for answer in answers if answer.status == 200]
    assert good == [{"name": "c", "before": 5, "after": value}] * 2
    for answer in answers:  # those of another value
        assert answer.status == 200 or (answer.status, answer.field) == (422, "Idempotency-Key"), answer


async def test_sets_and_increments_at_once_all_count(tmp_path: Path) -> None:
    """In two processes on one file. What was before each set, and what has come since the last, is all there was."""
    async with running(tmp_path) as one, running(tmp_path) as two:
        services = (one, two)
        answers: list[Any] = []

        async def count(number: int) -> None:
            for step in range(6):
                await services[number % 2].incr("c", b'{"delta": %d}' % (100 * number + step + 1))

        async def set_it(number: int) -> None:
            service = services[number % 2]
            for step in range(4):
                value = 10**6 * (10 * number + step)
                answers.append(await (put(service, "c", value) if step % 2 else reset(service, "c")))

        async with one.applying():
            await asyncio.gather(*map(count, range(6)), *map(set_it, range(4)))
        for _ in range(2):
            last = await one.value("c")
            assert await two.value("c") == last
            counted = sum(100 * number + step + 1 for number in range(6) for step in range(6))
            assert sum(one["before"] - one["after"] for one in answers) + last == counted
            await one.apply()
        assert one.parts.balance is not None
        assert one.parts.balance() == Balance(0, 0)
        await audited(one)


async def test_others_read_it_at_once_however_old_a_base_may_be(tmp_path: Path) -> None:
    async with running(tmp_path) as one, running(tmp_path) as two:
        await one.incr("c", b'{"delta": 5}')
        await one.apply()
        for value in (7, 9):
            for service in (one, two):
                assert (await service.read("c", "?max_age=60"))["value"] in {5, 7}
            await put(one, "c", value)
            for service in (two, one):
                assert (await service.read("c", "?max_age=60"))["value"] == value


async def test_a_nearly_full_disk_is_507_and_what_was_accepted_is_applied(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    await service.incr("c", b'{"delta": 5}')

    def full(_: Reserve, db: object, pending: int) -> None:
        raise StorageFullError(f"no room for {pending} bytes")

    monkeypatch.setattr(Reserve, "check", full)
    answer = await service.ask("PUT", "/v1/counters/c", b'{"value": 7}')
    assert (answer.status, answer.headers["Retry-After"]) == (507, "10")
    await service.apply()
    reading = await service.read("c")
    assert (reading["value"], reading["pending"]) == (5, 0)
    monkeypatch.undo()
    assert (await put(service, "c", 7))["before"] == 5


async def test_a_reset_and_a_delete_have_no_body(service: Service) -> None:
    for body in (b"{}", b" "):
        assert (await service.post("/v1/counters/c/reset", body)).status == 200
        assert (await service.ask("DELETE", "/v1/counters/c", body)).status == 200


async def test_a_path_behind_a_counter_that_is_not_there_names_what_is(service: Service) -> None:
    for path in ("/v1/counters/a/set", "/v1/counters/a/b"):
        answer = await service.post(path, b'{"value": 1}')
        assert answer.status == 404
        assert 'PUT /v1/counters/NAME {"value": 1} sets it' in answer.json["detail"]
        assert "write a '/' in the name of a counter as %2F" in answer.json["detail"]
