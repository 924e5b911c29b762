"""Flushers are killed while they tell a topic: a consumer that keeps the greatest sequence has all totals, and gets all
thresholds.
"""

import asyncio
import json
import signal
from collections.abc import Mapping
from pathlib import Path

from google.pubsub_v1 import types

from countersink import AsyncClient
from shared.config.lists import feed_rules, threshold_rules
from shared.datastore.feed import DatastoreFeedBook
from shared.model.buckets import StoreMillis
from shared.model.feed import told
from tests.emulators.datastore_fixtures import Datastore
from tests.processes.fleet.pairs import Emulated
from tests.processes.harness import processes

NAMES = [f"page:{letter}" for letter in "abcd"]
ROUNDS = 30


async def test_a_consumer_has_every_total_though_flushers_are_killed(on_emulators: Emulated, tmp_path: Path) -> None:
    pubsub = on_emulators.pubsub
    client, topic, subscription = pubsub.client(), pubsub.place.topic + "-feed", pubsub.place.subscription + "-feed"
    await client.create_topic(types.Topic.pb()(name=topic))
    await client.create_subscription(types.Subscription.pb()(name=subscription, topic=topic))
    table: dict[str, tuple[int, int]] = {}
    reached: set[str] = set()

    async def consume() -> None:
        while True:
            for one in await client.pull(subscription, 100, 1):
                data = json.loads(one.message.data)
                if "threshold" in data:
                    reached.add(one.message.attributes["ce-id"])
                else:
                    row = (data["sequence"], data["value"])
                    table[data["counter"]] = max(table.get(data["counter"], row), row)
                await client.acknowledge(subscription, [one.ack_id], 5)

    settings = on_emulators.settings | {
        "COUNTERSINK_FLUSH_INTERVAL": "0.05",
        "COUNTERSINK_MAX_FLUSH_INTERVAL": "0.05",
        "COUNTERSINK_FEED": "page:=1s",
        "COUNTERSINK_THRESHOLDS": "page:=every 7",
        "COUNTERSINK_FEED_TO": f"pubsub://{pubsub.place.project}/{topic.rpartition('/')[2]}",
    }
    await begin_long_ago(on_emulators.datastore, settings)
    consuming = asyncio.create_task(consume())
    async with processes(tmp_path, tmp_path / "log", **settings) as started:
        flushers = [await started.start("flusher") for _ in range(2)]
        ingest = await started.start("ingest", "--port", "0")
        async with AsyncClient(ingest.url) as counters:
            for step in range(ROUNDS):
                await asyncio.gather(*[counters.increment(name, 2, id=f"{name}-{step}") for name in NAMES])
                if step % 10 == 9:
                    await flushers.pop(0).end(signal.SIGKILL)
                    flushers.append(await started.start("flusher"))
            await counters.increment("other")
        async with asyncio.timeout(120):
            while {name: value for name, (_, value) in table.items()} != dict.fromkeys(NAMES, 2 * ROUNDS):
                await asyncio.sleep(0.1)
            while len(reached) < len(NAMES) * (2 * ROUNDS // 7):
                await asyncio.sleep(0.1)
        assert reached == {f"0/{level}/{name}" for name in NAMES for level in range(7, 2 * ROUNDS + 1, 7)}
        for flusher in flushers:
            assert await flusher.end(signal.SIGTERM) == 0
    consuming.cancel()


async def begin_long_ago(datastore: Datastore, settings: Mapping[str, str]) -> None:
    """As if these rules had been in the store for more than twelve minutes."""
    rules = feed_rules(settings["COUNTERSINK_FEED"]), threshold_rules(settings["COUNTERSINK_THRESHOLDS"])
    store = await datastore.store()
    book = DatastoreFeedBook(datastore.client(), store, 60.0)
    assert await book.open(told(*rules, settings["COUNTERSINK_FEED_TO"]))
    book._since, book._covered = StoreMillis(1), dict.fromkeys(book._covered, 1)
    await book.close()
