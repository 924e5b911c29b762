"""countersink import as a process, killed again and again, into a file and into Datastore."""

import asyncio
import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from countersink_server.cli.audit import AGREES, judge, look
from shared.datastore.fleet import DatastoreFleetBook
from shared.runtime.clock import SystemClock
from shared.sqlite.database import Database
from shared.sqlite.store import SqliteStore
from tests.cli.running import Done, environment
from tests.contracts.store import total
from tests.emulators.datastore_fixtures import Datastore
from tests.emulators.proxy import proxy
from tests.emulators.published import SHARD
from tests.emulators.published import Database as OldDatabase

NUMBER = 900
KILLS = 2
SMALL_PAGES = (
    "import shared.datastore.importing as f; f.PAGE = 200; from countersink_server.cli.main import main; main()"
)
"""So that there is time between two of them."""
LATENCY = 0.15
"""Seconds: each page takes two of it, at least."""


class Command:
    """Runs of the command with the same settings."""

    def __init__(self, old: OldDatabase, **settings: str) -> None:
        origin = f"datastore://{old.client.project}?namespace={old.client.namespace}"
        self.arguments = ("import", "--variant", "go", "--from", origin)
        self.environment = environment(**settings)

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            SMALL_PAGES,
            *(arguments or self.arguments),
            env=self.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def run(self, *arguments: str) -> Done:
        process = await self.start(*arguments)
        out, error = await process.communicate()
        assert process.returncode is not None
        return Done(process.returncode, out.decode(), error.decode().splitlines())


def write(old: OldDatabase) -> None:
    for begin in range(0, NUMBER, 300):
        with old.client.batch():
            for number in range(begin, begin + 300):
                old.put(old.key(SHARD, f"c{number}-shard0"), Name=f"c{number}", Count=number)


async def test_killed_again_and_again_all_is_added_once(datastore: Datastore, old: OldDatabase, tmp_path: Path) -> None:
    file = tmp_path / "countersink.db"
    await asyncio.to_thread(write, old)
    async with proxy(datastore.host) as wire:
        command = Command(old, COUNTERSINK_BROKER=f"sqlite:///{file}", DATASTORE_EMULATOR_HOST=wire.address)
        await Database(file).close()
        with closing(sqlite3.connect(file)) as db:
            wire.slow(LATENCY, 10**7)
            for kill in range(KILLS):
                before = marks(db)
                process = await command.start()
                while marks(db) == before and process.returncode is None:
                    await asyncio.sleep(0.002)
                process.kill()
                await process.communicate()
                assert before < marks(db) < NUMBER - 1, kill
            wire.fast()
            done = await command.run(*command.arguments, "--json")
            assert (done.code, done.lines) == (0, [])
            said = json.loads(done.out.splitlines()[-1])
            assert said["counters"]["found"] == NUMBER
            assert 0 < said["counters"]["added"] < NUMBER
            totals = dict(db.execute("SELECT counter, sum(count) FROM shards GROUP BY counter").fetchall())
        assert totals == {f"c{number}": number for number in range(1, NUMBER)}
        assert await agrees(file)
        again = await command.run()
        assert (again.code, again.out) == (
            0,
            f"counters: {NUMBER}; added to 0 of them, +0 in all; {NUMBER} unchanged, 0 not imported\n",
        )


async def agrees(file: Path) -> bool:
    database = Database(file)
    ledger = await look(SqliteStore(database, SystemClock()), (), 0)
    with closing(ledger):
        judged = all(judge(line, 0).mark == AGREES for line in ledger.lines())
    await database.close()
    return judged


def marks(db: sqlite3.Connection) -> int:
    (number,) = db.execute("SELECT count(*) FROM marks").fetchone()
    return int(number)


async def test_into_datastore_and_what_can_not_be_imported_fails_it(datastore: Datastore, old: OldDatabase) -> None:
    for name, count in (("a", 5), ("b", "text")):
        await asyncio.to_thread(old.put, old.key(SHARD, name), Name=name, Count=count)
    store = f"datastore://{datastore.place.project}?namespace={datastore.place.namespace}"
    command = Command(
        old,
        COUNTERSINK_BROKER="pubsub://p/topic?subscription=sub",
        COUNTERSINK_STORE=store,
        DATASTORE_EMULATOR_HOST=datastore.host,
        PUBSUB_EMULATOR_HOST="127.0.0.1:1",
    )
    code, out, (line,) = await command.run(*command.arguments, "--all")
    assert (code, sorted(out.splitlines())[:2]) == (
        1,
        ["a  +5", f"b  NOT imported: Count of {SHARD} b is no whole number, but a string"],
    )
    assert line.startswith("countersink: 1 of 2 counters could not be imported, see above (")
    nothing = await command.run(*command.arguments, "--prefix", "nobody")
    assert (nothing.code, len(nothing.lines)) == (1, 1)
    assert "all counters in go datastore://" in nothing.lines[0]
    assert await total(await datastore.store(), "a") == 5
    fleet = (await DatastoreFleetBook(datastore.client()).look()).fleet
    assert fleet.version
    assert not fleet.members, "its marks are no receipts of a fleet that is lost"
    same = await command.run("import", "--variant", "ndb", "--from", store)
    assert same.code == 1
    assert "are the same place" in same.lines[0]
