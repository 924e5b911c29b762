"""Traffic of all kinds on one file: all that is accepted is accounted for, in the file, in metrics and in receipts."""

import contextlib
import random
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import orjson
import pytest

from countersink_server.cli.audit import AGREES, judge, look
from flusher.dead_letters.desk import Replay
from flusher.dead_letters.letters import open_letter
from flusher.service import make_tools
from shared.config.settings import Settings
from shared.model.buckets import Instant
from shared.model.errors import TransientError
from shared.model.words import PART_ENTRIES, Message
from shared.runtime import metrics
from shared.wire.codec import TYPE
from tests.http.service import Service, running

ROUNDS = 60
POISON = (
    "CREATE TRIGGER poison BEFORE INSERT ON shards WHEN new.counter = 'poison' BEGIN SELECT RAISE(ABORT, 'no'); END"
)


class Traffic:
    """What somebody may do, drawn by chance; few names, few ids and few keys, so that they meet."""

    def __init__(self, seed: int, file: Path) -> None:
        self.file = file
        self.garbled = 0
        self.random = random.Random(seed)
        self.kinds: Sequence[Callable[[Service], Awaitable[object]]] = (
            self.one,
            self.one,
            self.with_id,
            self.batch,
            self.keyed_batch,
            self.keyed_batch,
            self.events,
            self.foreign,
            self.garble,
            self.poison,
            self.change,
            self.apply,
            self.lose_acks,
            self.hand_back,
        )

    async def one(self, service: Service) -> None:
        await service.incr(self.random.choice("ab"), None, f"?by={self.random.randint(-5, 5)}")

    async def with_id(self, service: Service) -> None:
        await service.incr(self.random.choice("ab"), b'{"id": "%d"}' % self.random.randint(0, 3))

    async def batch(self, service: Service) -> None:
        ids = [{"id": f"{self.random.randint(0, 9)}"} if self.random.random() < 0.5 else {} for _ in range(9)]
        items = [{"counter": self.random.choice("abc"), "delta": 2} | its for its in ids]
        await service.post("/v1/increments", orjson.dumps([*items, {"counter": ""}]))

    async def keyed_batch(self, service: Service) -> None:
        names = self.random.sample("abcd", self.random.randint(1, 4))
        body = orjson.dumps({"counters": {name: self.random.randint(1, 9) for name in names}})
        await service.post("/v1/increments", body, Idempotency_Key=str(self.random.randint(0, 2)))

    async def events(self, service: Service) -> None:
        """Each with sums and with ids of its own, and often with other data than an earlier one of its id."""
        events = []
        for _ in range(self.random.randint(1, 4)):
            items = [{"counter": self.random.choice("abc"), "id": f"{self.random.randint(0, 9)}"} for _ in range(3)]
            name = self.random.choice(["a", "b", "poison"])
            its = {"specversion": "1.0", "type": "t", "source": "s", "id": f"{self.random.randint(0, 9)}"}
            events.append({**its, "data": {"counters": {name: self.random.randint(1, 9)}, "keyed": items}})
        headers = {"Content-Type": "application/cloudevents-batch+json"}
        assert (await service.ask("POST", "/v1/events", orjson.dumps(events), headers)).status in {202, 400, 422}

    async def foreign(self, service: Service) -> None:
        """Among it what can't be read, and what is too large for one commit."""
        large = orjson.dumps({"counters": dict.fromkeys(map(str, range(2 * PART_ENTRIES + 1)), 1)})
        data = self.random.choice([b'{"counter":"a"}', b"rubbish", b'{"counters":{"a":1,"b":2}}', large])
        its = {"ce-source": "s", "ce-id": f"{len(data)}-{self.random.randint(0, 1)}"}
        await service.parts.publisher.publish([Message(data, its if self.random.random() < 0.7 else {})])

    async def garble(self, service: Service) -> None:
        """What an ingest has accepted, and no flusher can read."""
        await service.parts.publisher.publish([Message(b"[", {"ce-type": TYPE}, None, 3)])
        metrics.ACCEPTED.inc(3)
        self.garbled += 3

    async def poison(self, service: Service) -> None:
        await service.incr("poison", None, "?by=3")
        body = b'{"counters": {"poison": 1, "a": 1}}'
        await service.post("/v1/increments", body, Idempotency_Key=str(self.random.randint(2, 3)))

    async def change(self, service: Service) -> None:
        """No increment, and so nothing of what is counted here; but shards hold other sums."""
        path = f"/v1/counters/{self.random.choice('abcd')}"
        key = {"Idempotency-Key": str(self.random.randint(0, 9))}
        value = b'{"value": %d}' % self.random.randint(-9, 9)
        asked = [("PUT", path, value, key), ("POST", f"{path}/reset", None, key), ("DELETE", path, None, key)]
        answer = await service.ask(*self.random.choice(asked))
        assert answer.status in {200, 422}, "422: another value was set under this key"
        await service.remove()

    async def apply(self, service: Service) -> None:
        await service.apply()

    async def lose_acks(self, service: Service) -> None:
        """As if the flusher had been killed after its commit: all of it comes again."""
        subscription = service.parts.subscription

        async def lost(tokens: Sequence[str], floor: Instant) -> None:
            await subscription.give_back(tokens)
            raise TransientError("killed")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(subscription, "ack", lost)
            if await service._flusher.pull_once(0):
                await service._flusher.flush_once()

    async def hand_back(self, service: Service) -> None:
        await service._flusher.pull_once(0)
        await service._flusher.give_back()

    async def replay(self, service: Service) -> None:
        """The poison is none any more. One by one, in any order, and some of them twice."""
        with contextlib.closing(sqlite3.connect(self.file)) as db:
            db.execute("DROP TRIGGER poison")
        letters = service.parts.letters()
        while batch := await letters.pull(500, 10**9):
            opened = [open_letter(one, service.parts.topic) for one in batch]
            self.random.shuffle(opened)
            for one in (*opened, *opened[:3]):
                await Replay(make_tools(service.parts, Settings()), letters).run([one])


def counted() -> dict[str, float]:
    """Of this process."""
    its = {"accepted": metrics.ACCEPTED, "foreign": metrics.FOREIGN, "applied": metrics.APPLIED}
    its |= {"deduplicated": metrics.DEDUPLICATED, "dead": metrics.DEAD_INCREMENTS}
    return {name: one.get() for name, one in its.items()}


async def audited(service: Service) -> dict[str, float]:
    """What the receipts say, which must agree with the shards."""
    ledger = await look(service.parts.store, (), 0)
    with contextlib.closing(ledger):
        assert [line for line in ledger.lines() if judge(line, 0).mark != AGREES] == []
        return {"applied": ledger.tally.applied, "deduplicated": ledger.tally.deduplicated, "dead": ledger.tally.dead}


@pytest.mark.parametrize("seed", range(3))
async def test_at_rest_nothing_is_missing_and_nothing_too_much(tmp_path: Path, seed: int) -> None:
    traffic, before, replayed = Traffic(seed, tmp_path / "countersink.db"), counted(), 0.0
    for life in range(3):
        async with running(tmp_path) as service:
            assert service.parts.balance is not None
            with contextlib.closing(sqlite3.connect(traffic.file)) as db:
                db.execute(POISON.replace("TRIGGER", "TRIGGER IF NOT EXISTS"))
            for _ in range(ROUNDS):
                await traffic.random.choice(traffic.kinds)(service)
                balance = service.parts.balance()
                assert -balance.pending <= balance.drift <= 0
            if life < 2:
                continue  # on a backlog
            await service.apply()
            assert service.parts.balance()[:2] == (0, 0)
            said = await audited(service)
            now = {name: value - before[name] for name, value in counted().items()}
            assert said["dead"] == now["dead"] - replayed - traffic.garbled > 0
            replayed += said["dead"]
            await traffic.replay(service)  # what came first, and what came second under its id, in any order
            assert service.parts.balance()[:2] == (0, 0)
            now = {name: value - before[name] for name, value in counted().items()}
            assert min(now.values()) > 0, "all kinds have come"
            assert now["accepted"] + now["foreign"] == now["applied"] + now["deduplicated"] + now["dead"]
            assert now["dead"] == replayed + traffic.garbled
            assert (
                await service.value("a") == (await service.read("a"))["applied"] + (await service.read("a"))["pending"]
            )
            said = await audited(service)
            assert said["dead"] == 0
    # In the metrics, what was replayed stays dead; receipts say what became of it.
    assert now["applied"] < said["applied"] <= now["applied"] + replayed
    again = now["applied"] + replayed - said["applied"]
    assert said["deduplicated"] <= now["deduplicated"] + again, "the broker drops some by itself"
