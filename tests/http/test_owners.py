"""What belongs to an owner of keys: ids, idempotency keys, receipts and jobs; and the prefixes of a key."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from ingest.access.callers import OWNED, batch_id, owned, signed
from shared.model.jobs import MOST_RUNNING
from tests.http.answer import Answer
from tests.http.keys import Guarded, authorization, guarded, keys_file
from tests.http.service import running

KEYS: Final[dict[str, dict[str, Any]]] = {
    "nobodys": {},
    "nobodys-second": {},
    "shop": {"owner": "shop"},
    "shop-second": {"owner": "shop"},
    "club": {"owner": "club"},
    "narrow": {"owner": "shop", "prefixes": ["b", "a", "aa", "c:"]},
    "writer": {"scopes": ["write"]},
}


@pytest.fixture
async def owners(tmp_path: Path) -> AsyncIterator[Guarded]:
    async with guarded(tmp_path, **KEYS) as it:
        yield it


async def value_of(owners: Guarded, name: str = "c") -> int:
    value: int = (await owners.ask("nobodys", "GET", f"/v1/counters/{name}?max_age=0")).json["value"]
    return value


async def test_an_id_of_one_owner_is_not_that_of_another(owners: Guarded) -> None:
    """Otherwise, who guesses an id and sends it first with a delta of 0 voids the real increment."""
    assert (await owners.ask("club", "POST", "/v1/counters/c", {"delta": 0, "id": "order-1"})).status == 202
    assert (await owners.ask("nobodys", "POST", "/v1/counters/c", {"delta": 0, "id": "order-1"})).status == 202
    assert (await owners.ask("shop", "POST", "/v1/counters/c", {"delta": 5, "id": "order-1"})).status == 202
    assert await value_of(owners) == 5
    await owners.service.apply()
    assert await value_of(owners) == 5


@pytest.mark.parametrize(("first", "second"), [("shop", "shop-second"), ("nobodys", "nobodys-second")])
async def test_a_key_can_be_replaced_while_retries_go_on(owners: Guarded, first: str, second: str) -> None:
    for who in (first, second):
        assert (await owners.ask(who, "POST", "/v1/counters/c", {"delta": 5, "id": "one"})).status == 202
        assert (await owners.ask(who, "POST", "/v1/counters/c", {}, Idempotency_Key="two")).status == 202
        batch = [{"counter": "c", "delta": 100, "id": "three"}, {"counter": "c", "delta": 1000}]
        assert (await owners.ask(who, "POST", "/v1/increments", batch, Idempotency_Key="four")).status == 202
        await owners.service.apply()
    assert await value_of(owners) == 1106


async def test_a_service_can_move_to_keys_without_counting_twice(tmp_path: Path) -> None:
    file, keys = keys_file(tmp_path, **KEYS)
    async with running(tmp_path) as service:
        await service.incr("c", b'{"id": "one"}')
        await service.post("/v1/increments", b'[{"counter": "c"}]', Idempotency_Key="two")
        await service.apply()
    async with running(tmp_path, keys_file=str(file)) as service:
        owners = Guarded(service, keys)
        await owners.ask("nobodys", "POST", "/v1/counters/c", {"id": "one"})
        await owners.ask("nobodys", "POST", "/v1/increments", [{"counter": "c"}], Idempotency_Key="two")
        assert await value_of(owners) == 2
        await service.apply()
        assert await value_of(owners) == 2


async def test_ids_in_batches_and_idempotency_keys_are_of_an_owner(owners: Guarded) -> None:
    for who in ("nobodys", "club", "shop"):
        await owners.ask(who, "POST", "/v1/increments", [{"counter": "c", "id": "x"}])
        await owners.ask(who, "POST", "/v1/increments", [{"counter": "c", "delta": 10}], Idempotency_Key="k")
        await owners.ask(who, "POST", "/v1/counters/c", {"delta": 100}, Idempotency_Key="k")
        await owners.service.apply()
    assert await value_of(owners) == 333
    for who in ("club", "shop"):  # their sets under one key are two
        assert (await owners.ask(who, "PUT", "/v1/counters/c", {"value": 7}, Idempotency_Key="k")).status == 200
        assert (await owners.ask("nobodys", "POST", "/v1/counters/c", {})).status == 202
        assert await value_of(owners) == 8
    again = await owners.ask("shop-second", "PUT", "/v1/counters/c", {"value": 7}, Idempotency_Key="k")
    assert (again.json["before"], again.json["after"]) == (8, 7)
    assert await value_of(owners) == 8


def test_no_id_that_a_client_sends_is_that_of_an_owner() -> None:
    stored = owned("shop", "order-1")
    assert stored.startswith(OWNED)
    assert owned("", "order-1") == "order-1"
    assert owned("", stored) != stored
    assert len({owned(*one) for one in [("ab", "c"), ("a", "bc"), ("", "abc"), ("", stored), ("shop", stored)]}) == 5
    assert len(owned("shop", "x" * 1000)) < 1000


async def test_nobody_can_make_a_receipt_for_what_another_owner_has_sent(owners: Guarded) -> None:
    """Though they may guess the Idempotency-Key, and know how ids are made."""
    body = [{"counter": "c"}]
    theirs = (await owners.ask("shop", "POST", "/v1/increments", body, Idempotency_Key="k")).json["receipt"]
    mine = (await owners.ask("club", "POST", "/v1/increments", body, Idempotency_Key="k")).json["receipt"]
    singles = [(await owners.ask(who, "POST", "/v1/counters/c", {})).json["receipt"] for who in ("shop", "nobodys")]
    bare = [one.partition(".")[2] or one for one in singles]
    ids = theirs.partition(".")[2]
    assert ids == batch_id("shop", "k")
    for who, receipt in (
        ("nobodys", ids),
        ("nobodys", f"x.{ids}"),
        ("nobodys", signed("", "", ids)),
        *(("nobodys", one) for one in bare),
        ("club", f"{mine.partition('.')[0]}.{ids}"),
        ("club", signed("", "club", ids)),
        ("club", ids),
        ("shop", ids),
    ):
        assert (await owners.ask(who, "GET", f"/v1/receipts/{receipt}")).status == 404, (who, receipt)
    assert (await owners.ask("shop", "GET", f"/v1/receipts/{theirs}")).status == 200


async def test_another_owners_receipt_is_404(owners: Guarded) -> None:
    receipts = {}
    for who in ("shop", "club", "nobodys"):
        receipts[who] = [
            (await owners.ask(who, "POST", "/v1/counters/c", {"id": f"x-{who}"})).json["receipt"],
            (await owners.ask(who, "POST", "/v1/increments", [{"counter": "c"}], Idempotency_Key="k")).json["receipt"],
            (await owners.ask(who, "POST", "/v1/counters/c?ack=none", {})).json["receipt"],
        ]
    await owners.service.apply()
    may = {"shop": "shop", "shop-second": "shop", "club": "club", "nobodys": "nobodys", "writer": "nobodys"}
    for who, owner in may.items():
        for whose, each in receipts.items():
            for receipt in each:
                found = await owners.ask(who, "GET", f"/v1/receipts/{receipt}")
                assert found.status == (200 if whose == owner else 404), (who, receipt)
                if whose == owner:
                    assert (found.json["receipt"], found.json["state"]) == (receipt, "applied")


async def test_another_owners_job_is_404(owners: Guarded) -> None:
    for name in ("a", "b", "d"):
        await owners.ask("nobodys", "POST", f"/v1/counters/{name}", {})
    await owners.service.apply()
    for who in ("shop", "club", "nobodys"):
        begun = await owners.ask(who, "POST", "/v1/jobs", {"kind": "add", "prefix": "", "delta": 10, "id": "j"})
        assert (begun.status, begun.json["id"], begun.headers["Location"]) == (202, "j", "/v1/jobs/j")
        unnamed = await owners.ask(who, "POST", "/v1/jobs", {"kind": "export", "prefix": ""})
        await owners.service.work()
        here = f"/v1/jobs/{unnamed.json['id']}"
        assert unnamed.headers["Location"] == here
        for other in {"shop", "club", "nobodys"} - {who}:
            for method, target in (("GET", here), ("GET", f"{here}/export"), ("DELETE", here)):
                assert (await owners.ask(other, method, target)).status == 404
        assert (await owners.ask(who, "GET", here)).json["state"] == "done"
        assert (await owners.ask(who, "GET", f"{here}/export")).body.count(b"\n") == 3
    again = await owners.ask("shop-second", "POST", "/v1/jobs", {"kind": "add", "prefix": "", "delta": 10, "id": "j"})
    assert (again.status, again.json["state"]) == (200, "done")
    taken = await owners.ask("shop", "POST", "/v1/jobs", {"kind": "reset", "prefix": "", "id": "j"})
    assert taken.status == 409
    assert "'j'" in taken.json["detail"]
    assert await value_of(owners, "a") == 31


async def test_an_owner_may_have_so_many_running_jobs(owners: Guarded) -> None:
    async def start(who: str, id_: str) -> Answer:
        return await owners.ask(who, "POST", "/v1/jobs", {"kind": "add", "prefix": "c", "delta": 1, "id": id_})

    for number in range(MOST_RUNNING):
        assert (await start("shop", f"j{number}")).status == 202
    for who in ("shop", "shop-second"):
        refused = await start(who, "more")
        assert refused.status == 429
        assert f"{MOST_RUNNING} jobs of the owner 'shop' are running" in refused.json["detail"]
        assert int(refused.headers["Retry-After"]) >= 1
    assert (await start("shop", "j3")).status == 200
    assert (await start("club", "more")).status == 202
    for number in range(MOST_RUNNING + 1):
        assert (await start("nobodys", f"j{number}")).status == 202
    assert (await owners.ask("shop-second", "DELETE", "/v1/jobs/j3")).status == 200
    assert (await start("shop", "more")).status == 202
    assert (await start("shop", "one more")).status == 422
    assert (await start("shop", "one-more")).status == 429
    await owners.service.work()
    assert (await start("shop", "one-more")).status == 202


async def test_exports_of_one_owner_leave_room_for_others(tmp_path: Path) -> None:
    async with guarded(tmp_path, {"max_exports": 8}, **KEYS) as owners:

        async def export(who: str) -> Answer:
            return await owners.ask(who, "POST", "/v1/jobs", {"kind": "export", "prefix": "c"})

        assert [(await export("shop")).status for _ in range(4)] == [202, 202, 429, 429]
        refused = await export("shop-second")
        assert "the owner 'shop' may have 2 of them, and 2 are kept" in refused.json["detail"]
        assert int(refused.headers["Retry-After"]) > 7 * 86_400
        assert (await export("club")).status == 202
        assert [(await export("nobodys")).status for _ in range(6)] == [202] * 5 + [429]
        assert "allows 8 exports, and 8 are kept" in (await export("club")).json["detail"]


async def test_each_owner_sees_its_own_jobs_the_latest_first(owners: Guarded) -> None:
    for who, id_ in (("shop", "a"), ("club", "b"), ("shop-second", "c"), ("nobodys", "d")):
        asked = await owners.ask(who, "POST", "/v1/jobs", {"kind": "reset", "prefix": "", "id": id_})
        assert asked.status == 202, asked
    for who, ids in (("shop", {"a", "c"}), ("shop-second", {"a", "c"}), ("club", {"b"}), ("nobodys", {"d"})):
        found = (await owners.ask(who, "GET", "/v1/jobs")).json["jobs"]
        assert {job["id"] for job in found} == ids
        for job in found:
            assert job == (await owners.ask(who, "GET", f"/v1/jobs/{job['id']}")).json


async def test_jobs_keep_to_the_prefixes_of_the_key(owners: Guarded) -> None:
    for prefix, status in (("", 403), ("d", 403), ("a", 202), ("c", 403), ("c:x", 202)):
        job = {"kind": "export", "prefix": prefix, "id": f"j-{prefix[:1]}"}
        assert (await owners.ask("narrow", "POST", "/v1/jobs", job)).status == status, prefix
    whole = await owners.ask("shop", "POST", "/v1/jobs", {"kind": "export", "prefix": "", "id": "whole"})
    assert whole.status == 202
    await owners.service.work()
    for method, target in (("GET", "/v1/jobs/whole"), ("GET", "/v1/jobs/whole/export"), ("DELETE", "/v1/jobs/whole")):
        assert (await owners.ask("narrow", method, target)).status == 403
    assert (
        await owners.ask("narrow", "POST", "/v1/jobs", {"kind": "export", "prefix": "a", "id": "whole"})
    ).status == 403


async def test_a_batch_with_one_counter_of_others_is_refused_whole(owners: Guarded) -> None:
    for body in (
        [{"counter": "a"}, {"counter": "d"}],
        [{"counter": "a"}, {"counter": "d", "id": "x"}],
        {"counters": {"a": 1, "d": 1}},
    ):
        assert (await owners.ask("narrow", "POST", "/v1/increments", body)).status == 403
    assert (await owners.ask("narrow", "POST", "/v1/counters/%64", {})).status == 403
    assert (await owners.ask("narrow", "POST", "/v1/counters/%61", {})).status == 202
    assert (await owners.ask("nobodys", "GET", "/v1/counters?max_age=0")).json["counters"][0]["value"] == 1
    assert await value_of(owners, "d") == 0


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_lists_show_only_counters_under_the_prefixes(owners: Guarded, limit: int) -> None:
    names = ["a", "a1", "aa", "aa1", "b", "c", "c:1", "c;", "d"]
    body = {"counters": dict.fromkeys(names, 1)}
    assert (await owners.ask("nobodys", "POST", "/v1/increments", body)).status == 202
    await owners.service.apply()
    await owners.ask("nobodys", "POST", "/v1/counters/b2", {})
    for prefix, expected in (
        ("", ["a", "a1", "aa", "aa1", "b", "b2", "c:1"]),
        ("a", ["a", "a1", "aa", "aa1"]),
        ("aa", ["aa", "aa1"]),
        ("c", ["c:1"]),
        ("d", []),
    ):
        narrow = authorization(owners.keys["narrow"])
        pages = [page["counters"] async for page in owners.service.pages(f"prefix={prefix}&limit={limit}", narrow)]
        assert all(len(page) <= limit for page in pages)
        assert [item["name"] for page in pages for item in page] == expected
    assert (await owners.ask("narrow", "GET", "/v1/counters?name=a&name=d")).status == 403


async def test_a_key_that_may_only_write_gets_no_total(owners: Guarded) -> None:
    async with owners.service.applying():
        found = await owners.ask("writer", "POST", "/v1/counters/c?wait=applied", {})
        assert (found.status, found.json.keys()) == (200, {"accepted", "receipt"})
        found = await owners.ask("shop", "POST", "/v1/counters/c?wait=applied", {})
        assert (found.status, found.json["value"]) == (200, 2)
