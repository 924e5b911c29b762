"""Makes the folder of the present version: `python -m tests.releases`. It needs Google's emulators."""

import asyncio
import gzip
import json
import signal
import sqlite3
import tempfile
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import countersink
from countersink import AsyncClient
from shared.config.settings import Settings
from shared.model.buckets import BrokerMillis
from shared.model.words import Delivery, Envelope, Increment, Message
from shared.runtime.clock import SystemClock
from shared.sqlite.backup import copy
from shared.sqlite.broker import SqlitePublisher
from shared.sqlite.database import Database
from shared.wire.codec import decode, encode
from shared.wiring.files import Queue, open_spool
from shared.wiring.moving import end_of, lines_of
from tests.processes.harness import processes
from tests.releases import SETTINGS, TOPIC
from tests.releases.entities import make_entities, written

ACCOUNTS: Final = 2_000
"""So many that a job over them has several tasks."""
REFUSES: Final = (
    "CREATE TRIGGER rule BEFORE INSERT ON shards WHEN NEW.counter = 'refused'"
    " BEGIN SELECT RAISE(ABORT, 'not in this file'); END"
)
ENVELOPES: Final = (
    Envelope("sums", {"page:home": 12, "p": -3}, {"page:home": 12}, created=1_790_000_000_000),
    Envelope("ids", {}, {}, (Increment("orders", 5, "order-1"), Increment("ü", 1, "ñ")), created=1_790_000_000_001),
    Envelope("retried", {"a": 1}, {}, (Increment("b", 2, "i"),), retried=True, attempt="1", created=1_790_000_000_002),
    Envelope("traced", {"a": 2**60}, {"a": 3}, traceparent=f"00-{'a' * 32}-{'b' * 16}-01", patient=True, created=1),
    Envelope("large", {f"n{number}": number for number in range(1_200)}, {}, created=1_790_000_000_003),
)
CLOUD_EVENT: Final = {"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/shop", "ce-type": "shop.sold"}
OTHERS: Final = (
    Message(b'{"counter": "visits", "delta": 2}'),
    Message(b"", {"counter": "visits", "delta": "3"}),
    Message(b'[{"counter": "a"}, {"counter": "a", "delta": 4}, {"counter": "b", "id": "x", "colour": "red"}]'),
    Message(b'{"counter": "a"}\n\n{"counter": "b", "delta": -2}\n'),
    Message(b'{"counters": {"a": 1}, "keyed": [{"counter": "b", "id": "i"}]}', CLOUD_EVENT),
    Message(b'{"counters": {}}'),
)
"""As other publishers send them, see docs/messages.md."""


def make(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        expected = asyncio.run(make_file(Path(made)))
        asyncio.run(make_spool(Path(made)))
        (folder / "copy.ndjson").write_bytes(asyncio.run(lines_in(Path(made, "countersink.db"))))
        for name in ("countersink.db", "spool.db"):
            copied = Path(made, f"copy of {name}")
            copy(Path(made, name), copied)
            (folder / f"{name}.gz").write_bytes(gzip.compress(copied.read_bytes(), mtime=0))
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    messages = [meaning(message) for message in [*map(encode, ENVELOPES), *OTHERS]]
    (folder / "messages.json").write_text("[\n" + ",\n".join(map(json.dumps, messages)) + "\n]\n")
    with tempfile.TemporaryDirectory() as made:
        (folder / "entities.json").write_text(written(asyncio.run(make_entities(Path(made)))))
    print(*(f"{path.name}: {path.stat().st_size} bytes" for path in sorted(folder.iterdir())), sep="\n")


async def lines_in(file: Path) -> bytes:
    async with end_of(Settings(), "--from", f"sqlite:///{file}", makes=False, still=True) as end:
        return b"".join([line async for line in lines_of(end.origin, "page:")])


def meaning(message: Message) -> dict[str, Any]:
    """The message, and what this version makes of it."""
    delivery = Delivery("", message, "1234", BrokerMillis(1_790_000_000_000))
    return {
        "data": message.data.decode(),
        "attributes": message.attributes,
        "envelopes": [
            {
                "receipt": envelope.key,
                "created": envelope.created,
                "increments": envelope.increments,
                "sums": envelope.sums,
                "keyed": [[item.counter, item.delta, item.id, item.key] for item in envelope.keyed],
            }
            for envelope in decode(delivery, TOPIC)
        ],
    }


async def make_spool(folder: Path) -> None:
    spool = spool_in(folder)
    await spool.publisher.publish([*map(encode, ENVELOPES)])
    await spool.close()


def spool_in(folder: Path) -> Queue:
    broker, file = "pubsub://project/counts?subscription=counts-flushers", str(folder / "spool.db")
    spool = open_spool(Settings(broker=broker, spool=file, spool_disk="durable"), SystemClock(), TOPIC, makes=True)
    assert spool is not None
    return spool


async def make_file(folder: Path) -> dict[str, Any]:
    """What is in the file, once its job is done and its messages are applied."""
    accounts = [f"account:{number:04}" for number in range(ACCOUNTS)]
    file = folder / "countersink.db"
    async with processes(folder, folder / "log", **SETTINGS) as started:
        running = await started.start("up", "--port", "0")
        async with AsyncClient(running.url) as client:
            await client.increment_many(dict.fromkeys(accounts, 1), wait=60)
            await client.increment_many({"page:home": 12, "page:about": 3}, key="batch-1", wait=60)
            await client.increment("orders", 5, id="order-1", wait=60)
            await client.increment("stock", 7, wait=60)
            await client.set("stock", 100)
            await client.increment("gone", wait=60)
            await client.delete("gone")
            with closing(sqlite3.connect(file, timeout=60, isolation_level=None)) as db:
                db.execute(REFUSES)
                await client.increment("refused", 4, id="refused-1")
                await publish_unreadable(file)
                while db.execute("SELECT count(*) FROM messages WHERE buried IS NOT NULL").fetchone() != (2,):
                    await asyncio.sleep(0.05)
                db.execute("DROP TRIGGER rule")
            today = datetime.now(UTC).strftime("%Y-%m-%dT00:00:00Z")
            await client.start_job("add", "account:", 10, id="bonus")
        with closing(sqlite3.connect(file, timeout=60, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")  # nothing more is done of the job while this process looks
            while db.execute("SELECT count(*) FROM done_tasks").fetchone() == (0,):
                db.execute("ROLLBACK")
                await asyncio.sleep(0.001)
                db.execute("BEGIN IMMEDIATE")
            await running.end(signal.SIGKILL)
        running = await started.start("ingest", "--port", "0")
        async with AsyncClient(running.url) as client:  # what it accepts stays pending
            await client.increment("page:home", 2)
            await client.increment("orders", 1, id="order-2")
            assert (await client.job("bonus")).state == "running"
        await running.end(signal.SIGTERM)
    totals = {"page:home": 14, "page:about": 3, "orders": 6, "stock": 100}
    return {
        "totals": totals,
        "missing": ["gone"],
        "day": today,
        "of_the_day": {"page:home": 14, "page:about": 3},
        "batch": {"key": "batch-1", "counters": {"page:home": 12, "page:about": 3}},
        "ids": [["orders", 5, "order-1"], ["orders", 1, "order-2"]],
        "job": {"id": "bonus", "prefix": "account:", "counters": ACCOUNTS, "each": 11},
        "dead_letters": 2,
        "replayed": {"refused": 4},
    }


async def publish_unreadable(file: Path) -> None:
    database = Database(file)
    await SqlitePublisher(database, SystemClock(), Settings().max_pending_bytes).publish([Message(b"not JSON")])
    await database.close()


if __name__ == "__main__":
    if ".dev" in countersink.__version__:
        raise SystemExit("this is no release: give it its version first")
    make(Path(__file__).parent / countersink.__version__)
