"""Refusals of Pub/Sub that pass, and a subscription that is deleted: nothing that was accepted is lost."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest

from ingest.accept.spool import PAUSE, Spool
from shared.model.errors import BrokerRejectedError, TransientError
from shared.model.words import Envelope, Message
from shared.runtime.clock import SystemClock
from shared.sqlite.broker import SqlitePublisher, SqliteSubscription, claim
from shared.sqlite.database import Database
from shared.wire.codec import encode
from tests.cli.running import run
from tests.contracts.broker import message, numbers, pull_all
from tests.emulators.datastore_fixtures import Datastore
from tests.emulators.front import Front
from tests.emulators.pubsub_fixtures import Pubsub, settings_of
from tests.processes.harness import Processes, processes
from tests.world.manual_clock import ManualClock
from tests.world.scraping import until

MET = 10
"""Calls that a refusal must have met before it passes."""


@pytest.fixture
async def started(pubsub: Pubsub, datastore: Datastore, before: Front, tmp_path: Path) -> AsyncIterator[Processes]:
    settings = settings_of(pubsub, datastore) | {
        "COUNTERSINK_SPOOL": f"{tmp_path}/spool.db",
        "COUNTERSINK_SPOOL_DISK": "durable",
        "COUNTERSINK_FLUSH_INTERVAL": "0.1",
        "PUBSUB_EMULATOR_HOST": before.address,
    }
    async with processes(tmp_path, tmp_path / "log", **settings) as started:
        yield started


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def post(session: aiohttp.ClientSession, url: str, number: int) -> tuple[int, str]:
    async with session.post(f"{url}/v1/counters/c", json={"delta": 1, "id": f"i-{number}"}) as answer:
        return answer.status, await answer.text()


async def applied(session: aiohttp.ClientSession, url: str) -> int:
    async with session.get(f"{url}/v1/counters/c?max_age=0") as answer:
        return int((await answer.json()).get("applied", 0))


async def test_a_refusal_of_everything_that_passes_loses_nothing_and_ends_nobody(
    before: Front, started: Processes, session: aiohttp.ClientSession
) -> None:
    """Pub/Sub is away; then a proxy that is routed wrongly answers: to gRPC its HTTP 404 is UNIMPLEMENTED."""
    ingest, flusher = await started.start("ingest", "--port", "0"), await started.start("flusher")
    assert (await post(session, ingest.url, 0))[0] == 202
    before.codes[""] = grpc.StatusCode.UNAVAILABLE
    answers = await asyncio.gather(*(post(session, ingest.url, number) for number in range(1, 21)))
    assert {status for status, _ in answers} == {202}
    before.codes[""] = grpc.StatusCode.UNIMPLEMENTED
    met = before.refused + MET

    async def all_have_met_it() -> bool:
        return before.refused >= met

    await until(all_have_met_it)
    before.codes.clear()

    async def all_are_applied() -> bool:
        return await applied(session, ingest.url) == 21

    await until(all_are_applied)
    assert flusher.process.returncode is None


class Spooled:
    """A spool in a file before Pub/Sub."""

    def __init__(self, pubsub: Pubsub, host: str, folder: Path) -> None:
        self.clock = ManualClock()
        self.database = Database(folder / "spool.db")
        self._reader = self.database.reader()
        queue = SqlitePublisher(self.database, self.clock, 10**6)
        waiting = SqliteSubscription(self.database, self.clock, 5.0)
        self.publisher = pubsub.publisher(pubsub.client(host), patience=0.2)
        self.spool = Spool(self.publisher, queue, waiting, self.clock, 3_600.0)

    def is_empty(self) -> bool:
        (rows,) = self._reader.execute("SELECT count(*) FROM messages").fetchone()
        return bool(rows == 0)

    async def tried(self) -> int:
        try:
            return await self.spool.forward_once()
        except TransientError:
            return 0


@pytest.fixture
async def spooled(pubsub: Pubsub, before: Front, tmp_path: Path) -> AsyncIterator[Spooled]:
    spooled = Spooled(pubsub, before.address, tmp_path)
    await spooled.tried()
    yield spooled
    await spooled.database.close()


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
async def test_no_answer_to_a_publish_is_final(
    pubsub: Pubsub, before: Front, spooled: Spooled, code: grpc.StatusCode
) -> None:
    before.codes["Publish"] = code
    for number in range(5):
        await spooled.spool.publish([message(number)])
    for _ in range(3):
        await spooled.tried()
        spooled.clock.turn(PAUSE)
    before.codes.clear()
    while not spooled.is_empty():
        await spooled.tried()
        spooled.clock.turn(PAUSE)
    seen, subscription = set[int](), pubsub.subscription()
    while seen != set(range(5)):  # twice, if a try was taken and its answer came too late for the short patience here
        seen |= {*numbers(await pull_all(subscription, 1))}


async def test_a_schema_that_is_put_on_the_topic_and_taken_off_loses_nothing(pubsub: Pubsub, spooled: Spooled) -> None:
    spooled.publisher._patience = 30.0
    await pubsub.put_schema()
    for number in range(3):
        await spooled.spool.publish([message(number)])
    with pytest.raises(BrokerRejectedError, match="INVALID_ARGUMENT"):
        await spooled.spool.forward_once()
    await pubsub.take_schema_off()
    spooled.clock.turn(PAUSE)
    assert await spooled.spool.forward_once() == 3
    assert numbers(await pull_all(pubsub.subscription(), 3)) == [0, 1, 2]


async def test_a_refusal_after_a_try_without_an_answer_does_not_say_that_nothing_was_taken(
    pubsub: Pubsub, before: Front
) -> None:
    before.late.add("Publish")
    before.codes["Publish"] = grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(TransientError, match="INVALID_ARGUMENT"):
        await pubsub.publisher(pubsub.client(before.address)).publish([message(1)])
    assert before.refused == 1
    assert numbers(await pull_all(pubsub.subscription(), 1)) == [1]


async def test_a_deleted_subscription_is_said_and_its_successor_gets_everything(
    pubsub: Pubsub, before: Front, started: Processes, session: aiohttp.ClientSession
) -> None:
    """Without a spool. What was published before anybody knew is in the topic, and comes back by a seek."""
    settings = started.environment | {"PUBSUB_EMULATOR_HOST": pubsub.host, "COUNTERSINK_SPOOL": "off"}
    ingest = await started.start("ingest", "--port", "0", COUNTERSINK_SPOOL="off")
    begun = int(time.time())
    accepted = [(await post(session, ingest.url, 0))[0]]
    await pubsub.delete_subscription()

    async def refused() -> bool:
        """Not because the process is still entering the list of processes."""
        status, said = await post(session, ingest.url, len(accepted))
        accepted.append(status)
        return status == 503 and "it does not exist; run: countersink provision" in said

    await until(refused)
    async with session.get(f"{ingest.url}/readyz") as answer:
        assert answer.status == 503
    done = await asyncio.to_thread(run, "provision", cwd=None, **settings)
    assert done.code == 0, done
    await pubsub.seek(begun - 1)

    async def taken() -> bool:
        accepted.append((await post(session, ingest.url, len(accepted)))[0])
        return accepted[-1] == 202

    await until(taken)
    await started.start("flusher")

    async def all_are_applied() -> bool:
        return await applied(session, ingest.url) == accepted.count(202)

    await until(all_are_applied)


async def buried(file: Path, topic: str, messages: Sequence[Message], reason: str) -> None:
    database = Database(file)
    claim(database, topic)
    await SqlitePublisher(database, SystemClock(), 10**6).publish(messages)
    subscription = SqliteSubscription(database, SystemClock(), 5.0)
    for delivery in await subscription.pull(10, 10**6, 0):
        await subscription.bury(delivery, reason)
    await database.close()


def envelopes(*ids: str) -> list[Message]:
    return [encode(Envelope(id_, {"c": 1}, created=int(time.time() * 1000))) for id_ in ids]


async def test_dlq_shows_replays_and_drops_what_a_spool_can_not_send(
    pubsub: Pubsub, started: Processes, session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """The service runs on the same file meanwhile."""
    file = tmp_path / "spool.db"
    await buried(file, pubsub.place.topic, envelopes("e-1", "e-2"), "it is too large to be sent")
    settings = started.environment | {"PUBSUB_EMULATOR_HOST": pubsub.host}
    ingest = await started.start("ingest", "--port", "0")

    async def dlq(*words: str) -> tuple[int, str]:
        done = await asyncio.to_thread(run, "dlq", *words, cwd=None, **settings)
        return done.code, done.out + "".join(done.lines)

    code, said = await dlq("list")
    assert code == 0
    assert "spool-1" in said
    assert "spool-2" in said
    assert "1 increment: c +1  (it is too large to be sent)" in said
    assert "receipt     e-1" in (await dlq("show", "spool-1"))[1]
    assert "1 increment dropped: c +1" in (await dlq("drop", "spool-2"))[1]
    assert "increments: 1 counted, 0 counted before, 0 left" in (await dlq("replay", "--all"))[1]
    assert "no dead letters found" in (await dlq("list"))[1]
    assert await applied(session, ingest.url) == 1
    with closing(sqlite3.connect(file)) as db:
        assert db.execute("SELECT count(*) FROM messages").fetchone() == (0,)


async def test_an_ingest_shows_replays_and_drops_what_its_spool_can_not_send(
    pubsub: Pubsub, started: Processes, session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """Over HTTP, while it has the same file open."""
    await buried(tmp_path / "spool.db", pubsub.place.topic, envelopes("e-1", "e-2"), "it is too large to be sent")
    ingest = await started.start("ingest", "--port", "0")

    async def listed() -> list[Any]:
        async with session.get(f"{ingest.url}/v1/dead-letters") as answer:
            assert answer.status == 200, await answer.text()
            page = await answer.json()
        assert (page["next_page_token"], page["complete"]) == (None, False)
        found: list[Any] = page["dead_letters"]
        return found

    async def change(what: str, id_: str) -> Any:
        async with session.post(f"{ingest.url}/v1/dead-letters/{what}", json={"ids": [id_]}) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    one, other = await listed()
    assert (one["reason"], one["counters"], one["state"]) == ("it is too large to be sent", {"c": 1}, "dead")
    assert (await change("drop", one["id"]))["dropped"] == [{"id": one["id"], "increments": 1}]
    assert (await change("replay", other["id"]))["counted"] == 1
    assert await listed() == []
    assert await applied(session, ingest.url) == 1
    assert (await post(session, ingest.url, 1))[0] == 202
