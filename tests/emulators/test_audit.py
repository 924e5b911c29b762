"""An audit of the store in Datastore."""

import asyncio
import contextlib
from dataclasses import replace
from typing import Any

import pytest

from countersink_server.cli.audit import AGREES, DIFFERS, UNKNOWN, judge, look
from shared.datastore.client import LAG_EMULATED
from shared.datastore.keys import COUNT, KEY, name_of, query_of
from shared.datastore.store import DatastoreStore
from shared.model.buckets import HOUR, BucketAdd, ByTime, TimeBucket
from shared.model.receipts import notes_of_change
from shared.model.words import Commit, Guard, Receipt, ShardAdd
from tests.contracts.audit_data import noted
from tests.contracts.store import LATER, commit
from tests.emulators.datastore_fixtures import Datastore
from tests.world.series import ALL_KEPT

HOURS_AND_DAYS = (ALL_KEPT[0]._replace(kept=ALL_KEPT[0].kept[:2]),)


async def verdicts(store: DatastoreStore, horizon: float = 1.0) -> dict[str, str]:
    ledger = await look(store, (), horizon)
    with contextlib.closing(ledger):
        return {line.counter: judge(line, horizon).mark for line in ledger.lines()}


async def test_what_agrees_what_differs_and_what_nobody_can_judge(datastore: Datastore) -> None:
    store, place = await datastore.store(), datastore.place
    for name in ("well", "theirs", "lost", "a-1", "ü-2-"):
        await store.apply(noted(name, 5, f"{name}-1"))
        await store.apply(noted(name, -2, f"{name}-2", shard=1))
    assert await verdicts(store) == dict.fromkeys(["a-1", "lost", "theirs", "well", "ü-2-"], AGREES)
    await datastore.put(place.shard("theirs", 0), {COUNT: {"integer_value": 6}})
    await datastore.put(place.key(place.kinds.shard, "shard-of-something-else"), {COUNT: {"integer_value": 1}})
    await datastore.delete(place.receipt("lost-1"))
    await store.apply(commit(ShardAdd("well", 0, 0, 1)))
    found = await verdicts(store)
    assert {name: found[name] for name in ("well", "a-1", "theirs")} == {
        "well": AGREES,
        "a-1": AGREES,
        "theirs": UNKNOWN,
    }
    # Without the receipt nobody knows whose the last write of the shard was: only where others come after is it told.
    assert found["lost"] == UNKNOWN
    await store.apply(noted("lost", 1, "lost-3"))
    assert (await verdicts(store))["lost"] == DIFFERS
    assert (await verdicts(store, 10.0**10))["lost"] == UNKNOWN, "its receipts may have expired"


async def test_what_was_removed_and_counted_again_is_not_judged_but_may_agree(datastore: Datastore) -> None:
    """Its config is young, but receipts of the time before may have expired."""
    store, place = await datastore.store(), datastore.place
    for name in ("back", "gone"):
        await store.apply(noted(name, 5, f"{name}-1"))
        (note,) = notes_of_change("c", name, [-5], 5, 0)
        receipt = Receipt(f"{name}-2", LATER, note=note)
        await store.apply(Commit((receipt,), (ShardAdd(name, 0, -5, 1),), guard=(name, Guard(0, deleted=True))))
        assert await store.remove(name)
    await store.apply(noted("back", 7, "back-3"))
    assert await verdicts(store) == {"back": AGREES, "gone": AGREES}
    await datastore.delete(*(place.receipt(f"{name}-1") for name in ("back", "gone")))
    assert await verdicts(store) == {"back": UNKNOWN, "gone": UNKNOWN}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("p0", {"integer_value": 8}, "sum to 7, and the day has 8"),
        ("p0", {"string_value": "7"}, "is no whole number, but a string"),
        ("p0", {"double_value": 1e300}, "is no whole number, but a double"),
        ("note", {"integer_value": 1}, "is no day"),
        ("p366", {"integer_value": 1}, "is no day"),
    ],
)
async def test_a_damaged_count_by_time_differs(
    datastore: Datastore, name: str, value: dict[str, Any], said: str
) -> None:
    store, client, place = await datastore.store(), datastore.client(), datastore.place
    for counter in ("a", "b"):
        adds = [
            BucketAdd(TimeBucket(counter, by, begin), 0, delta, LATER)
            for by, begin, delta in (("hour", HOUR, 3), ("hour", 5 * HOUR, 4), ("day", 0, 7))
        ]
        await store.apply(replace(noted(counter, 7, f"{counter}-1"), by_time=ByTime(tuple(adds), HOURS_AND_DAYS)))
    assert await verdicts(store) == {"a": AGREES, "b": AGREES}
    buckets = [
        one async for page in client.pages(query_of(place.kinds.buckets, 9, order=KEY), read_time=None) for one in page
    ]
    (day,) = [one.entity for one in buckets if name_of(one.entity.key)[1].startswith("a\x1fday")]
    request = client.commit_request()
    harmed = request.mutations.add().update
    harmed.CopyFrom(day)
    harmed.properties[name].Clear()
    for kind, its in value.items():
        setattr(harmed.properties[name], kind, its)
    await client.commit(request)
    await asyncio.sleep(2 * LAG_EMULATED)
    ledger = await look(store, (), 1.0)
    with contextlib.closing(ledger):
        found = {line.counter: judge(line, 1.0) for line in ledger.lines()}
    assert found["a"].mark == DIFFERS
    assert said in found["a"].said
    assert found["b"].mark == AGREES
