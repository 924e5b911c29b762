"""An audit of the store in Datastore, on both emulators."""

import contextlib

import pytest

from countersink_server.commands.audit import AGREES, DIFFERS, UNKNOWN, judge, look
from shared.google.datastore.keys import COUNT
from shared.google.datastore.store import DatastoreStore
from shared.model import receipt_notes
from shared.model.words import Commit, Guard, Receipt, ShardAdd
from tests.contracts.audit_data import noted
from tests.contracts.store import LATER, commit
from tests.emulators.datastore_fixtures import Datastore


async def verdicts(store: DatastoreStore, horizon: float = 1.0) -> dict[str, str]:
    ledger, exact = await look(store, (), horizon)
    with contextlib.closing(ledger):
        assert exact == (await store.abilities()).read_time
        return {line.counter: judge(line, horizon, exact=exact).mark for line in ledger.lines()}


@pytest.fixture(params=["firestore", "older"])
def datastore(request: pytest.FixtureRequest) -> Datastore:
    """Each of the emulators."""
    one: Datastore = request.getfixturevalue(request.param)
    return one


async def test_what_agrees_what_differs_and_what_nobody_can_judge(datastore: Datastore) -> None:
    store, client, place = await datastore.store(), datastore.client(), datastore.place
    for name in ("well", "theirs", "lost", "a-1", "ü-2-"):
        await store.apply(noted(name, 5, f"{name}-1"))
        await store.apply(noted(name, -2, f"{name}-2", shard=1))
    assert await verdicts(store) == dict.fromkeys(["a-1", "lost", "theirs", "well", "ü-2-"], AGREES)
    request_ = client.commit_request()
    theirs = request_.mutations.add().upsert
    theirs.key.CopyFrom(place.shard("theirs", 0))
    theirs.properties[COUNT].integer_value = 6
    odd = request_.mutations.add().upsert
    odd.key.CopyFrom(place.key(place.kinds.shard, "shard-of-something-else"))
    odd.properties[COUNT].integer_value = 1
    request_.mutations.add().delete.CopyFrom(place.receipt("lost-1"))
    await client.commit(request_)
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
    knows_age = (await store.abilities()).read_time
    assert (await verdicts(store))["lost"] == (DIFFERS if knows_age else UNKNOWN)
    assert (await verdicts(store, 10.0**10))["lost"] == UNKNOWN, "its receipts may have expired"


async def test_what_was_removed_and_counted_again_is_not_judged_but_may_agree(datastore: Datastore) -> None:
    """Its config is young, but receipts of the time before may have expired."""
    store, client, place = await datastore.store(), datastore.client(), datastore.place
    for name in ("back", "gone"):
        await store.apply(noted(name, 5, f"{name}-1"))
        (note,) = receipt_notes.of_change("c", name, [-5], 5, 0)
        receipt = Receipt(f"{name}-2", LATER, note=note)
        await store.apply(Commit((receipt,), (ShardAdd(name, 0, -5, 1),), guard=(name, Guard(0, deleted=True))))
        assert await store.remove(name)
    await store.apply(noted("back", 7, "back-3"))
    assert await verdicts(store) == {"back": AGREES, "gone": AGREES}
    request_ = client.commit_request()
    for name in ("back", "gone"):
        request_.mutations.add().delete.CopyFrom(place.receipt(f"{name}-1"))
    await client.commit(request_)
    assert await verdicts(store) == {"back": UNKNOWN, "gone": UNKNOWN}
