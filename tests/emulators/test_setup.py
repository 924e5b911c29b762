"""provision, doctor, sweep and the starts on Google's emulators; each flaw is made there for real."""

import asyncio
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from google.pubsub_v1 import types

from shared.config.findings import FAIL, OK, WARN, Finding
from shared.datastore.client import DatastoreClient
from shared.datastore.keys import query_of
from shared.datastore.setup import DatastoreSetup, Ttl
from shared.model.buckets import StoreMillis, WallSeconds
from shared.model.errors import SettingsError
from shared.model.words import Commit, Receipt
from shared.runtime.clock import SystemClock
from tests.cli.running import Done, environment, run
from tests.emulators.datastore_fixtures import Datastore
from tests.emulators.pubsub_fixtures import Pubsub, settings_of
from tests.processes.harness import Processes

DAY = 86_400
WEEK = 7 * DAY


class Cloud:
    """A set-up on the emulators, and the commands that work with it."""

    def __init__(self, pubsub: Pubsub, datastore: Datastore, **hosts: str) -> None:
        self.pubsub = pubsub
        self.datastore = datastore
        self.settings = settings_of(pubsub, datastore) | hosts

    async def run(self, *arguments: str, **settings: str) -> Done:
        return await asyncio.to_thread(run, *arguments, cwd=None, **(self.settings | settings))

    async def doctor(self, **settings: str) -> tuple[list[str], list[str]]:
        """What FAILs and what WARNs; its exit code is checked by them."""
        done = await self.run("doctor", **settings)
        lines = done.out.splitlines()
        assert {line.split()[0] for line in lines} <= {OK, WARN, FAIL}, done
        failed = [line for line in lines if line.startswith(FAIL)]
        assert done.code == bool(failed)
        assert len(done.lines) == bool(failed)
        assert all(
            line.startswith(f"countersink: {len(failed)} of {len(lines)} checks failed (") for line in done.lines
        )
        return failed, [line for line in lines if line.startswith(WARN)]


@pytest.fixture
async def cloud(empty_pubsub: Pubsub, datastore: Datastore) -> Cloud:
    """Nothing is provisioned."""
    return Cloud(empty_pubsub, datastore)


@pytest.fixture
async def ready(cloud: Cloud) -> Cloud:
    done = await cloud.run("provision")
    assert (done.code, done.lines) == (0, [])
    return cloud


@pytest.fixture
def nowhere() -> Iterator[str]:
    """A host that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        yield f"127.0.0.1:{deaf.getsockname()[1]}"


@asynccontextmanager
async def started(cloud: Cloud, *arguments: str, **settings: str) -> AsyncIterator[str]:
    """What it said at its start; then it drains."""
    processes = Processes(None, {})  # type: ignore[arg-type] # its data is not in a folder
    processes.environment = environment(**(cloud.settings | settings))
    try:
        process = await processes.start(*arguments)
        yield process.line
        assert await process.end(signal.SIGTERM) == 0
    finally:
        await processes.close()


async def test_provision_makes_everything_and_the_second_time_nothing(cloud: Cloud) -> None:
    place = cloud.pubsub.place
    counts = (place.topic, place.subscription, place.dead_topic, place.dead_subscription)
    names = (*counts, place.tasks.topic, place.tasks.subscription)
    first = await cloud.run("provision")
    assert (first.code, first.lines) == (0, [])
    *made, store = first.out.splitlines()
    assert [line.partition(": made")[0] for line in made] == list(names)
    assert "an emulator has no TTL policies" in store
    assert "countersink sweep" in store
    second = await cloud.run("provision")
    assert second == (0, "".join(f"{name}: exists\n" for name in names) + f"{store}\n", [])


async def test_provision_fails_on_what_it_can_not_mend(ready: Cloud) -> None:
    place = ready.pubsub.place
    other = f"pubsub://{place.project}/{place.topic_id}-2?subscription={place.subscription_id}"
    done = await ready.run("provision", COUNTERSINK_BROKER=other)
    assert done.code == 1
    assert f"{place.subscription}: WRONG: it belongs to {place.topic}" in done.out
    assert "could not be created" in done.lines[0]


async def test_provision_without_a_server_says_what_to_look_at_and_goes_on(cloud: Cloud) -> None:
    code, out, (line,) = await cloud.run("provision", PUBSUB_EMULATOR_HOST="127.0.0.1:1")
    away, store = out.splitlines()
    assert code == 1
    assert "UNAVAILABLE" in away
    assert away.endswith("look at PUBSUB_EMULATOR_HOST=127.0.0.1:1")
    assert "an emulator has no TTL policies" in store
    assert line.startswith("countersink: 1 of these could not be created or repaired: see what their lines say to do (")


async def test_doctor_finds_a_healthy_set_up_healthy(ready: Cloud) -> None:
    failed, warned = await ready.doctor()
    assert failed == []
    (line,) = warned
    assert "the emulator" in line
    said = (await ready.run("doctor")).out
    for part in ("can be read and written", "clock is within", "flushers delete expired"):
        assert part in said


@pytest.mark.parametrize("store", ["postgres://x", "sqlite:///x.db"])
async def test_another_store_is_refused(ready: Cloud, store: str) -> None:
    """In a file the time would be another than that of Pub/Sub."""
    (line,), _ = await ready.doctor(COUNTERSINK_STORE=store)
    assert "with a Pub/Sub broker it must be datastore://" in line


async def test_what_is_missing_is_said_by_doctor_and_stops_a_start(cloud: Cloud) -> None:
    place = cloud.pubsub.place
    failed, _ = await cloud.doctor()
    (line,) = failed
    for name in (place.topic, place.dead_topic, place.subscription, place.dead_subscription):
        assert name in line
    assert "; run: countersink provision" in line
    for command in (("ingest", "--port", "0"), ("ingest", "--port", "0", "--workers", "2"), ("flusher",)):
        code, out, (said,) = await cloud.run(*command)
        assert (code, out) == (1, "")
        assert place.topic in said
        assert "run: countersink provision" in said


async def test_nobody_starts_where_nobody_would_keep_what_is_published(ready: Cloud) -> None:
    place = ready.pubsub.place
    await ready.pubsub.delete_subscription()
    failed, _ = await ready.doctor()
    assert failed == [f"FAIL  broker    missing: {place.subscription}; run: countersink provision"]
    for command in (("ingest", "--port", "0"), ("ingest", "--port", "0", "--workers", "2"), ("flusher",)):
        code, _, (said,) = await ready.run(*command)
        assert code == 1
        assert said == f"countersink: missing: {place.subscription}; run: countersink provision"


async def test_an_ingest_does_not_need_what_only_flushers_do(ready: Cloud) -> None:
    place = ready.pubsub.place
    await ready.pubsub.delete_subscription(place.dead_subscription)
    async with started(ready, "ingest", "--port", "0") as line:
        assert "ingest is up" in line
    code, _, (said,) = await ready.run("flusher")
    assert (code, said) == (1, f"countersink: missing: {place.dead_subscription}; run: countersink provision")


async def test_a_subscription_of_another_topic_stops_a_start(ready: Cloud) -> None:
    place, client = ready.pubsub.place, ready.pubsub.client()
    await client.create_topic(types.Topic.pb()(name=f"{place.topic}-2"))
    await client.create_topic(types.Topic.pb()(name=f"{place.topic}-2-tasks"))
    other = f"pubsub://{place.project}/{place.topic_id}-2?subscription={place.subscription_id}"
    code, _, (said,) = await ready.run("ingest", "--port", "0", COUNTERSINK_BROKER=other)
    assert code == 1
    assert f"{place.subscription}: it belongs to {place.topic}, not to {place.topic}-2: name another" in said


async def test_receipts_that_would_be_gone_too_soon_stop_a_flusher(ready: Cloud) -> None:
    """Its own retention is what it was, while the receipts are to live for a shorter time now."""
    place, short = ready.pubsub.place, {"COUNTERSINK_RETENTION": str(DAY)}
    failed, _ = await ready.doctor(**short)
    names = (place.topic, place.dead_topic, place.subscription, place.dead_subscription)
    for line, name in zip(failed, names, strict=True):
        assert f"{name} keeps messages 7 days, but receipts are made for 1, " in line
        assert f"set COUNTERSINK_RETENTION={WEEK}" in line
    code, out, (said,) = await ready.run("flusher", **short)
    assert (code, out) == (1, "")
    assert f"set COUNTERSINK_RETENTION={WEEK}" in said
    assert said.endswith("(3 more: run countersink doctor)")
    async with started(ready, "ingest", "--port", "0", **short):
        pass  # it makes no receipts
    async with started(ready, "flusher"):
        pass


async def test_a_topic_that_keeps_messages_counts_too(cloud: Cloud) -> None:
    place, client = cloud.pubsub.place, cloud.pubsub.client()
    topic = types.Topic.pb()(name=place.topic)
    topic.message_retention_duration.seconds = 3 * DAY
    await client.create_topic(topic)
    short = {"COUNTERSINK_RETENTION": str(DAY)}
    await cloud.run("provision", **short)
    failed, _ = await cloud.doctor(**short)
    (line,) = failed
    assert f"{place.topic} keeps messages 3 days" in line


async def foreign_subscription(cloud: Cloud, **flaws: Any) -> None:
    """Made by somebody else, before the rest is provisioned."""
    place, client = cloud.pubsub.place, cloud.pubsub.client()
    await client.create_topic(types.Topic.pb()(name=place.topic))
    await client.create_topic(types.Topic.pb()(name=place.dead_topic))
    wanted = types.Subscription(name=place.subscription, topic=place.topic, **flaws)
    await client.create_subscription(types.Subscription.pb(wanted))


@pytest.mark.parametrize(
    ("flaw", "said"),
    [
        ({"filter": "attributes.x"}, "its filter 'attributes.x' drops messages uncounted"),
        ({"push_config": {"push_endpoint": "http://127.0.0.1:1/"}}, "it pushes, and Countersink pulls"),
        ({"dead_letter_policy": {"max_delivery_attempts": 5}}, "its dead-letter policy takes healthy messages away"),
    ],
)
async def test_flaws_that_lose_counts_fail(cloud: Cloud, flaw: dict[str, Any], said: str) -> None:
    if "dead_letter_policy" in flaw:
        flaw["dead_letter_policy"]["dead_letter_topic"] = cloud.pubsub.place.dead_topic
    await foreign_subscription(cloud, **flaw)
    assert (await cloud.run("provision")).code == 1
    failed, _ = await cloud.doctor()
    (line,) = failed
    assert f"{cloud.pubsub.place.subscription}: {said}" in line


@pytest.mark.parametrize(
    ("flaw", "said"),
    [
        ({"enable_message_ordering": True}, "ordering makes messages wait"),
        ({"expiration_policy": {"ttl": timedelta(days=31)}}, "deletes it after 31 days"),
    ],
)
async def test_flaws_that_cost_and_those_that_the_emulator_can_not_mend_warn(
    cloud: Cloud, flaw: dict[str, Any], said: str
) -> None:
    await foreign_subscription(cloud, **flaw)
    done = await cloud.run("provision")
    assert done.code == 0
    assert said in done.out
    failed, warned = await cloud.doctor()
    assert failed == []
    assert any(said in line for line in warned), warned


async def test_the_older_emulator_is_refused(empty_pubsub: Pubsub, older_host: str) -> None:
    """It would lose counts: it ignores transforms. A process that started without it ends when it meets it."""
    older = Datastore(older_host)
    cloud = Cloud(empty_pubsub, older)
    assert (await cloud.run("provision")).code == 0
    said = "start the other emulator, `gcloud emulators firestore start --database-mode=datastore-mode`"
    (line,) = (await cloud.doctor())[0]
    assert said in line
    for command in (("ingest", "--port", "0"), ("ingest", "--port", "0", "--workers", "2"), ("flusher",)):
        done = await cloud.run(*command)
        assert (done.code, done.out) == (1, "")
        (line,) = done.lines
        assert said in line
    with pytest.raises(SettingsError, match="older Datastore emulator"):
        await older.store()
    (client,) = older.clients
    query = query_of(older.place.kinds.receipt, 10)
    assert await client.query(query) == [], "the probe leaves nothing"
    await client.close()


@pytest.mark.parametrize("variable", ["PUBSUB_EMULATOR_HOST", "DATASTORE_EMULATOR_HOST"])
async def test_a_server_that_is_away_or_says_nothing_is_soon_said_and_the_rest_is_looked_at(
    ready: Cloud, nowhere: str, variable: str
) -> None:
    for host in ("127.0.0.1:1", nowhere):
        begun = time.monotonic()
        failed, _ = await ready.doctor(**{variable: host})
        assert time.monotonic() - begun < 25
        (line,) = failed
        assert f"look at {variable}={host}" in line


async def test_without_a_broker_they_start_all_the_same(ready: Cloud) -> None:
    away = {"PUBSUB_EMULATOR_HOST": "127.0.0.1:1"}
    async with started(ready, "flusher", **away) as line:
        assert "flusher is up" in line
    async with started(ready, "ingest", "--port", "0", **away) as line:
        assert "ingest is up" in line


async def test_a_sweep_deletes_all_that_have_expired(ready: Cloud) -> None:
    store = await ready.datastore.store()
    now = int(time.time() * 1_000)
    for begin in range(0, 1_200, 400):
        receipts = tuple(
            Receipt(f"r{number}", StoreMillis(now - 1_000 - number)) for number in range(begin, begin + 400)
        )
        await store.apply(Commit(receipts, ()))
    await store.apply(Commit((Receipt("young", StoreMillis(now + 3_600_000)),), ()))
    assert await ready.run("sweep") == (0, "1,200 expired receipts deleted\n", [])
    assert await ready.run("sweep") == (0, "0 expired receipts deleted\n", [])
    assert set((await store.receipts(["young", "r1"])).found) == {"young"}


class Wrong(SystemClock):
    """A clock that was set wrong by hand."""

    def __init__(self, ahead: float) -> None:
        self._ahead = ahead

    def now(self) -> WallSeconds:
        return WallSeconds(super().now() + self._ahead)


@pytest.mark.parametrize(("ahead", "mark"), [(0.0, OK), (30.0, WARN), (-30.0, WARN), (600.0, FAIL), (-600.0, FAIL)])
async def test_a_clock_that_is_wrong_is_found(datastore: Datastore, ahead: float, mark: str) -> None:
    place = datastore.place
    client = DatastoreClient(place, Wrong(ahead), datastore.host)
    datastore.clients.append(client)
    setup = DatastoreSetup(client, [Ttl(place, place.kinds.receipt)], emulator=datastore.host)
    found = [finding async for finding in setup.findings() if finding.part == "clock"]
    assert [finding.mark for finding in found] == [mark]
    assert isinstance(found[0], Finding)
