"""Adapters with one mistake each: the suites are worth something only if every one of them fails."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from shared.clock import ManualClock
from shared.memory.broker import MemoryBroker, MemoryOverlay
from shared.memory.store import MemorySnapshot, MemoryStore
from shared.ports import Overlay
from shared.words import Commit, Delivery, Message, Receipts, Total, View
from tests.contracts.broker import BrokerContract
from tests.contracts.overlay import Accepted, OverlayContract
from tests.contracts.store import StoreContract
from tests.contracts.test_memory import make_broker


class LosesOne(MemoryBroker):
    async def publish(self, messages: Sequence[Message]) -> None:
        await super().publish(messages[:25])


class DoublesOne(MemoryBroker):
    async def publish(self, messages: Sequence[Message]) -> None:
        await super().publish([*messages, *messages[:1]])


class ForgetsAttributes(MemoryBroker):
    async def publish(self, messages: Sequence[Message]) -> None:
        await super().publish([replace(message, attributes={"number": "1"}) for message in messages])


class LeasesToEverybody(MemoryBroker):
    def _free(self) -> list[int]:
        return [number for number, held in self._messages.items() if held.buried is None]


class TakesStaleAcks(MemoryBroker):
    def _leased(self, token: str) -> Any:
        return self._messages.get(int(token.partition(".")[0]))


class NeverRedelivers(MemoryBroker):
    def _free(self) -> list[int]:
        return [number for number, held in self._messages.items() if held.attempt == 0 and held.buried is None]


class IgnoresTheLimit(MemoryBroker):
    async def pull(self, limit: int, max_bytes: int, wait: float) -> Sequence[Delivery]:
        return await super().pull(10**6, 10**9, wait)


class AcksAllOfAPull(MemoryBroker):
    async def ack(self, tokens: Sequence[str], floor: int) -> None:
        await super().ack([f"{n}.{held.attempt}" for n, held in self._messages.items() if held.until > 0], floor)


class ForgetsToExtend(MemoryBroker):
    async def extend(self, tokens: Sequence[str], seconds: float) -> None:
        return


class KeepsWhatIsGivenBack(MemoryBroker):
    async def give_back(self, tokens: Sequence[str]) -> None:
        return


class BuriesNothing(MemoryBroker):
    async def bury(self, delivery: Delivery, reason: str) -> None:
        await self.ack([delivery.token], 0)


class TakesTooMuch(MemoryBroker):
    def _admit(self, size: int) -> None:
        return


class AppliesWithoutReceipts(MemoryStore):
    async def apply(self, commit: Commit) -> int:
        return await super().apply(Commit((), commit.adds))


class AppliesHalfOfACommit(MemoryStore):
    async def apply(self, commit: Commit) -> int:
        await super().apply(Commit((), commit.adds[:1]))
        return await super().apply(Commit(commit.receipts, commit.adds[1:]))


class TakesDeadForApplied(MemoryStore):
    async def apply(self, commit: Commit) -> int:
        return await super().apply(Commit(tuple(r._replace(state="applied") for r in commit.receipts), commit.adds))


class OverwritesReceipts(MemoryStore):
    async def apply(self, commit: Commit) -> int:
        for receipt in commit.receipts:
            self._receipts = {key: found for key, found in self._receipts.items() if key != receipt.key}
        return await super().apply(commit)


class LosesUpdates(MemoryStore):
    async def apply(self, commit: Commit) -> int:
        shards = self._shards
        await asyncio.sleep(0)
        self._shards = shards
        return await super().apply(commit)


class LowersShards(MemoryStore):
    async def raise_shards(self, counter: str, num_shards: int) -> int:
        self._configs = self._configs | {counter: num_shards}
        return num_shards


class HidesNewShards(MemoryStore):
    async def apply(self, commit: Commit) -> int:
        return await super().apply(replace(commit, adds=tuple(add._replace(num_shards=1) for add in commit.adds)))


class FillsShards(MemoryStore):
    async def apply(self, commit: Commit) -> int:
        shards, self._shards = self._shards, {}
        time = await super().apply(commit)
        added, self._shards = self._shards, shards
        for shard, count in added.items():
            self._shards = self._shards | {shard: self._shards.get(shard, 0) + count}
        return time


class StandsStill(MemoryStore):
    async def receipts(self, keys: Collection[str]) -> Receipts:
        return Receipts(0, (await super().receipts(keys)).found)


class Tears(MemoryStore):
    """Each counter as it is when it is its turn."""

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[MemorySnapshot]:
        async with super().snapshot() as first:
            yield _Torn(self, first)


class _Torn(MemorySnapshot):
    def __init__(self, store: MemoryStore, first: MemorySnapshot) -> None:
        self._store = store
        self.time, self.as_of = first.time, first.as_of

    async def read(
        self, counters: Sequence[str], receipts: Collection[str]
    ) -> tuple[Mapping[str, Total], Collection[str]]:
        totals: dict[str, Total] = {}
        applied: Collection[str] = ()
        for counter in counters:
            async with MemoryStore.snapshot(self._store) as now:
                some, applied = await now.read([counter], receipts)
            totals |= some
            await asyncio.sleep(0)
        return totals, applied


class SortsBackwards(MemoryStore):
    async def names(self, prefix: str, after: str, limit: int) -> Sequence[str]:
        return [*reversed(await super().names(prefix, after, limit))]


class SweepsAll(MemoryStore):
    async def sweep(self, now: int, limit: int) -> int:
        return await super().sweep(2**60, limit)


class DropsTooEarly(MemoryBroker):
    async def pull(self, limit: int, max_bytes: int, wait: float) -> Sequence[Delivery]:
        held = await super().pull(limit, max_bytes, wait)
        self.pending.remove([int(delivery.message_id) for delivery in held], 0)
        return held


class DropsTooLate(MemoryBroker):
    async def ack(self, tokens: Sequence[str], floor: int) -> None:
        pending, self.pending = self.pending, type(self.pending)()
        await super().ack(tokens, floor)
        self.pending = pending


class LeavesTheFloor(MemoryBroker):
    async def ack(self, tokens: Sequence[str], floor: int) -> None:
        await super().ack(tokens, 0)


class DropsWhatIsBuried(MemoryBroker):
    async def bury(self, delivery: Delivery, reason: str) -> None:
        await super().bury(delivery, reason)
        self.pending.remove([int(delivery.message_id)], 0)


class NobodyIsLate(MemoryOverlay):
    async def view(self, counters: Sequence[str]) -> Mapping[str, View]:
        views = await super().view(counters)
        return {
            counter: replace(found, entries=tuple(replace(entry, late=False) for entry in found.entries))
            for counter, found in views.items()
        }


class OneVersion(MemoryOverlay):
    async def view(self, counters: Sequence[str]) -> Mapping[str, View]:
        return {counter: replace(found, version=1) for counter, found in (await super().view(counters)).items()}


async def failures(suite: object, make: Callable[[], Awaitable[Any]]) -> list[str]:
    """The names of the tests of the suite that this adapter does not pass."""
    failed = []
    for name, test in inspect.getmembers(suite, inspect.iscoroutinefunction):
        try:
            async with asyncio.timeout(0.5):
                await test(await make())
        except (Exception, pytest.fail.Exception):
            failed.append(name)
    return failed


@pytest.mark.parametrize(
    "kind",
    [
        LosesOne,
        DoublesOne,
        ForgetsAttributes,
        LeasesToEverybody,
        TakesStaleAcks,
        NeverRedelivers,
        IgnoresTheLimit,
        AcksAllOfAPull,
        ForgetsToExtend,
        KeepsWhatIsGivenBack,
        BuriesNothing,
        TakesTooMuch,
    ],
)
async def test_a_broken_broker_fails(kind: type[MemoryBroker], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.contracts.broker.LONG", 0.05)

    async def make() -> object:
        return make_broker(kind)

    assert await failures(BrokerContract(), make)


@pytest.mark.parametrize(
    "kind",
    [
        AppliesWithoutReceipts,
        AppliesHalfOfACommit,
        TakesDeadForApplied,
        OverwritesReceipts,
        LosesUpdates,
        LowersShards,
        HidesNewShards,
        FillsShards,
        StandsStill,
        Tears,
        SortsBackwards,
        SweepsAll,
    ],
)
async def test_a_broken_store_fails(kind: type[MemoryStore]) -> None:
    async def make() -> object:
        return kind(ManualClock())

    assert await failures(StoreContract(), make)


@pytest.mark.parametrize(
    ("broker", "overlay"),
    [
        (DropsTooEarly, MemoryOverlay),
        (DropsTooLate, MemoryOverlay),
        (LeavesTheFloor, MemoryOverlay),
        (DropsWhatIsBuried, MemoryOverlay),
        (MemoryBroker, NobodyIsLate),
        (MemoryBroker, OneVersion),
    ],
)
async def test_a_broken_overlay_fails(broker: type[MemoryBroker], overlay: type[MemoryOverlay]) -> None:
    async def make() -> object:
        kept = broker(ManualClock())

        async def restarted() -> Overlay:
            return overlay(kept)

        return Accepted(kept, kept, overlay(kept), overlay(kept), restarted)

    assert await failures(OverlayContract(), make)


async def test_the_fakes_themselves_fail_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it is the mistake that is caught."""

    async def broker() -> object:
        return make_broker()

    async def store() -> object:
        return MemoryStore(ManualClock())

    assert await failures(BrokerContract(), broker) == []
    assert await failures(StoreContract(), store) == []
