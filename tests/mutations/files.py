"""Mutations of the store and the broker in a SQLite file, of the memory store's removals, and of Datastore's guards."""

from dataclasses import replace
from typing import Any
from unittest.mock import ANY

from shared.datastore.keys import DEAD as MARK
from shared.sqlite.receipts import sweep
from tests.mutations.mutation import Instead, around, calling, instead, mutation, returning, returning_later, text
from tests.mutations.places import CHANGES_SEEN, CONSERVATION, DEAD_IN_DATASTORE, IDS, POWER, SEEDS, STORE

mutation("receipt outside the commit", "shared.sqlite.receipts._INSERT", STORE)(
    text("INSERT INTO", "INSERT OR IGNORE INTO")
)
mutation("a receipt that is not dead is revived", "shared.sqlite.receipts.DEAD", STORE)(instead(ANY))
mutation("the guard of a set is not checked", "shared.sqlite.store._CHANGE", STORE)(
    text(" WHERE :seen = coalesce", " WHERE -1 < :seen + coalesce")
)
mutation("the mark of an import is not checked", "shared.sqlite.store._MOVE", STORE)(
    text(" WHERE :seen = coalesce", " WHERE 0 <= abs(:seen) + coalesce")
)
mutation("a shard is made without telling readers of it", "shared.sqlite.store._add_to_shards", STORE)(
    calling(_make=lambda *_: None)
)

mutation("a file applies what comes too late", "shared.sqlite.store.SqliteStore.apply", STORE)(
    lambda apply: lambda self, commit: apply(self, replace(commit, bounds=commit.bounds._replace(until=None)))
)

mutation("a file applies messages that somebody else has settled", "shared.sqlite.store._gone", STORE)(
    returning(frozenset())
)
mutation("receipts of messages that are still there are swept", "shared.sqlite.store._sweep", STORE)(instead(sweep))
mutation("ids of the elder generation are not found", "shared.sqlite.receipts._FIND_IDS", *IDS)(
    text("generation = number", "generation = number AND number = (SELECT max(number) FROM generations)")
)
mutation("an id of the elder generation is inserted again", "shared.sqlite.receipts._INSERT_IDS", *IDS)(
    text("generation = :elder", "generation = :younger")
)
mutation("a generation expires with the first of its ids", "shared.sqlite.receipts._EXPIRE_IDS", *IDS)(
    text("max(expires, ?)", "iif(expires, expires, ?)")
)
mutation("an id is taken for new though its receipt has a note", "shared.sqlite.receipts._exists", *IDS)(
    returning(False)
)
mutation("ids live no longer than receipts of envelopes", "flusher.flush.commit_loop.Flush._expires", *IDS)(
    calling(CLIENT_IDS_REMEMBERED=0)
)

mutation("ids of messages that are still there are swept", "shared.sqlite.receipts._sweep_ids", *IDS)(
    lambda sweep: lambda db, before, limit: sweep(db, max(before, 10**9), limit)
)


@around("the generations turn while something is left of the elder", "shared.sqlite.receipts._sweep_ids", *IDS)
def _(sweep: Any, db: Any, before: int, limit: int) -> Any:
    (elder, _), (younger, _) = db.execute("SELECT number, expires FROM generations ORDER BY number").fetchall()
    if swept := sweep(db, before, limit):
        db.execute("DELETE FROM generations WHERE number = ?", (elder,))
        db.execute("INSERT OR IGNORE INTO generations VALUES (?, 0)", (younger + 1,))
    return swept


mutation("a start builds on a log that may be on no disk", "shared.sqlite.data_file.Log.inherit", POWER)(
    returning(None)
)
mutation("the ids in dead receipts are not asked for", "shared.sqlite.snapshot.SqliteSnapshot.read", STORE)(
    calling(ids_of=lambda _: ())
)
mutation("a sweep forgets what receipts said", "shared.sqlite.receipts.carry", STORE)(returning(None))
mutation("a file does not count what it takes", "shared.sqlite.broker.SqlitePublisher.publish", CONSERVATION)(
    calling(increments_of=lambda _: 1)
)
mutation("a raised floor is not told to other processes", "shared.sqlite.broker.raise_floors", STORE)(
    calling(_tell=lambda *_: None)
)

mutation("a change of a file raises no floor in its commit", "shared.sqlite.store._apply", CHANGES_SEEN)(
    calling(raise_floors=lambda *_: None)
)


@around("a receipt is revived by an upsert", "shared.sqlite.receipts.revive", STORE)
def _(revive: Any, db: Any, receipts: Any, time: int) -> None:
    new = "INSERT OR IGNORE INTO receipts (key, expires, state, time) VALUES (?, 0, 'dead', 0)"
    db.executemany(new, [(receipt.key,) for receipt in receipts])
    revive(db, receipts, time)


@around("a file keeps the shards that nobody reads any more", "shared.sqlite.store._compact", STORE)
def _(compact: Any, db: Any, counter: str, num_shards: int, receipt: Any) -> Any:
    there = db.execute("SELECT counter, shard, 0 FROM shards WHERE counter = ?", (counter,)).fetchall()
    number = compact(db, counter, num_shards, receipt)
    db.executemany("INSERT OR IGNORE INTO shards (counter, shard, count) VALUES (?, ?, ?)", there)
    return number


@around("a removal is not seen by a set that was read before it", "shared.sqlite.store._remove", STORE)
def _(remove: Any, db: Any, counter: str) -> Any:
    version = db.execute("SELECT version FROM guards WHERE counter = ?", (counter,)).fetchone()
    if removed := remove(db, counter):
        db.execute("UPDATE guards SET version = ? WHERE counter = ?", (*version, counter))
    return removed


mutation("a file removes what was deleted though it holds something", "shared.sqlite.store._remove", STORE)(
    calling(sum=lambda _: 0)
)
mutation(
    "what was deleted is removed though something is under way to it",
    "tests.world.memory.store.MemoryStore._held",
    SEEDS,
)(returning(0))

mutation(
    "an empty file takes the place of one that is gone",
    "shared.sqlite.database._prepare",
    "tests/unit/sqlite/test_data_file.py",
)(lambda prepare: lambda file, **how: prepare(Instead(file, recognise=lambda: None), **how))

for broken, function in (
    ("a file is converted while others have it open", "_be_alone"),
    ("a file is converted without a copy", "copy"),
    ("a file is converted without room for it", "flaw_of_room"),
):
    mutation(broken, f"shared.sqlite.schema.{function}", "tests/unit/sqlite/test_conversion.py")(returning(None))

mutation(
    "the older emulator of Datastore is not recognised",
    "shared.datastore.store._adds",
    "tests/emulators/test_setup.py",
    "-k",
    "older",
)(returning_later(True))

mutation("a dead receipt with a body marks no guard", "shared.datastore.commit._marked", *DEAD_IN_DATASTORE)(
    returning(frozenset())
)


@around("a set takes the mark of dead receipts off", "shared.datastore.commit.guard", *DEAD_IN_DATASTORE)
async def _(guard: Any, client: Any, request: Any, commit: Any) -> None:
    await guard(client, request, commit)
    for one in request.mutations if commit.guard is not None else ():
        for entity in (one.update, one.insert):
            if MARK in entity.properties:
                del entity.properties[MARK]
