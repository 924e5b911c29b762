"""What an import adds, what it leaves, and what it says; tests/interleavings/simulation has the faults."""

import random
from collections.abc import Mapping
from typing import Any

import pytest

from countersink_server.cli.audit import AGREES, judge, look
from countersink_server.move.importer import BATCH, RETRY_FOR, Importer, ImportOptions, ImportOutcome, went_back
from shared.model.buckets import DAY, Instant, Millis, StoreMillis
from shared.model.errors import ChangedError, CountersinkError, RefusedError, StorageFullError, TransientError
from shared.model.moving import Foreign
from shared.model.words import MAX_SUM, SHARD_FULL, Commit, Guard, Mark, Receipt, ShardAdd
from shared.runtime.retry import Backoff
from tests.contracts.store import commit, total
from tests.http.faults import failing
from tests.world.manual_clock import ManualClock
from tests.world.memory.exact_overlay import ExactOverlay
from tests.world.memory.store import MemoryStore
from tests.world.sources import FakeSource

LIVE = Millis(16 * DAY)
INT64 = 2**63 - 1


class Parts:
    """An importer into a store in memory; pauses turn the clock."""

    def __init__(self, source: FakeSource, store: type[MemoryStore] = MemoryStore) -> None:
        self.clock = ManualClock()
        self.source = source
        self.store = store(self.clock)
        self.overlay = ExactOverlay(self.clock)

    async def run(self, prefix: str = "", options: ImportOptions | None = None) -> list[Any]:
        """The outcomes, and what the source left out."""
        told: list[Any] = []
        importer = Importer(
            self.source,
            self.store,
            self.overlay,
            self.clock,
            options or ImportOptions(LIVE),
            pick=random.Random(1).randrange,
            backoff=lambda: Backoff(sleep=self._sleep),
        )
        await importer.run(prefix, told.append)
        return told

    async def _sleep(self, seconds: float) -> None:
        self.clock.turn(seconds)

    async def totals(self) -> Mapping[str, int]:
        return {name: await total(self.store, name) for name in await self.store.names("", "", 10_000)}

    async def agrees(self) -> bool:
        ledger = await look(self.store, (), 0)
        return all(judge(line, 0).mark == AGREES for line in ledger.lines())


async def test_what_is_there_is_added_once_and_then_the_difference() -> None:
    parts = Parts(FakeSource({"a": 5, "b": 0, "c": -7}))
    await parts.store.apply(commit(("a", 100), ("mine", 1), keys=("k",)))
    assert await parts.run() == [ImportOutcome("b", 0, 0), ImportOutcome("a", 5, 5), ImportOutcome("c", -7, -7)]
    for _ in range(2):
        assert await parts.run() == [ImportOutcome(name, number, 0) for name, number in (("a", 5), ("b", 0), ("c", -7))]
    parts.source.counts |= {"a": 9, "b": 1, "d": 3}
    added = [one for one in await parts.run() if one.added]
    assert sorted(added) == [ImportOutcome("a", 9, 4), ImportOutcome("b", 1, 1), ImportOutcome("d", 3, 3)]
    assert await parts.totals() == {"a": 109, "b": 1, "c": -7, "d": 3, "mine": 1}


async def test_receipts_say_what_was_added() -> None:
    parts = Parts(FakeSource({"a": 5, "b": 2**62 + 7}))
    await parts.run()
    parts.source.counts["a"] = 8
    await parts.run()
    assert await parts.agrees()
    await parts.store.apply(commit(("a", 1), keys=("unsaid",)))
    assert not await parts.agrees()


async def test_only_names_that_begin_so() -> None:
    parts = Parts(FakeSource({"a": 1, "ab": 2, "abc": 3, "b": 4}))
    await parts.run("ab")
    assert await parts.totals() == {"ab": 2, "abc": 3}


async def test_more_than_fits_into_a_commit() -> None:
    counts = {f"counter-{number:04}": number + 1 for number in range(5 * BATCH + 7)}
    parts = Parts(FakeSource(counts))
    told = await parts.run()
    assert sorted(told, key=str) == [ImportOutcome(name, number, number) for name, number in counts.items()]
    assert await parts.totals() == counts
    assert parts.store._time == 6


async def test_a_new_counter_has_the_shards_that_the_settings_say() -> None:
    parts = Parts(FakeSource({"a": 5, "old": 5}))
    await parts.store.raise_shards("old", 3)
    await parts.run(options=ImportOptions(LIVE, shards=20))
    assert await parts.store.shards(["a", "old"]) == {"a": 20, "old": 3}


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (Foreign("", 1), "its name must not be empty"),
        (Foreign("x" * 401, 1), "its name must be at most 400 bytes"),
        (Foreign("a\nb", 1), "its name must not hold control characters"),
        (Foreign("__a__", 1), "reserved"),
        (Foreign("a", 0, "a shard of it is no number"), "a shard of it is no number"),
    ],
)
async def test_what_can_not_be_imported_is_said_and_the_rest_goes_on(one: Foreign, why: str) -> None:
    parts = Parts(FakeSource({"0": 5, "bad": one, "z": 7}))
    (refused,) = [each for each in await parts.run() if each.flaw]
    assert why in refused.flaw
    assert (refused.name, refused.added) == (one.name, 0)
    assert await parts.totals() == {"0": 5, "z": 7}


async def test_what_the_source_leaves_out_is_passed_on() -> None:
    parts = Parts(FakeSource({"a": 1, "b": "shard 7 of b is beyond its number"}))
    assert await parts.run() == ["shard 7 of b is beyond its number", ImportOutcome("a", 1, 1)]


@pytest.mark.parametrize("sign", [1, -1])
async def test_totals_up_to_64_bits_go_to_shards_that_can_take_them(sign: int) -> None:
    parts = Parts(FakeSource({"a": sign * INT64, "full": sign}))
    for number in range(2):
        await parts.store.apply(commit(("full", sign * MAX_SUM), keys=(f"k{number}",)))
    await parts.run()
    assert await parts.totals() == {"a": sign * INT64, "full": sign * (2 * MAX_SUM + 1)}
    assert await parts.store.marks("there", ["a", "full"]) == {"a": sign * INT64, "full": sign}
    assert all(abs(count) <= SHARD_FULL + MAX_SUM for count in parts.store._shards.values())
    parts.source.counts["a"] = -sign * INT64
    await parts.run(options=ImportOptions(LIVE, shrink=True))
    assert (await parts.totals())["a"] == -sign * INT64


async def test_a_dry_run_says_the_same_and_writes_nothing() -> None:
    parts = Parts(FakeSource({"a": 5, "b": 2**62, "c": 1, "d": Foreign("d", 0, "odd")}))
    await parts.store.apply(Commit((), (), marks=(Mark("there", "a", 0, 3), Mark("there", "c", 0, 1))))
    before = parts.store._time
    dry = await parts.run(options=ImportOptions(LIVE, dry=True))
    assert parts.store._time == before
    assert await parts.totals() == {}
    wet = await parts.run()
    assert sorted(dry, key=str) == sorted(wet, key=str)
    assert ImportOutcome("a", 5, 2) in wet


async def test_what_shrank_is_left_unless_it_is_asked_for() -> None:
    parts = Parts(FakeSource({"a": 5, "b": 1}))
    await parts.run()
    parts.source.counts = {"a": 3, "b": 2}
    (left,) = [one for one in await parts.run() if one.flaw]
    assert left == ImportOutcome("a", 3, 0, "its total fell to 3, and 5 were imported before: subtract with --shrink")
    assert await parts.totals() == {"a": 5, "b": 2}
    assert ImportOutcome("a", 3, -2) in await parts.run(options=ImportOptions(LIVE, shrink=True))
    assert await parts.totals() == {"a": 3, "b": 2}
    assert await parts.agrees()


@pytest.mark.parametrize(
    ("mark", "now", "back"),
    [
        *[(0, 5, False), (0, -5, False), (5, 6, False), (5, 5, False), (5, 4, True), (5, -1, True)],
        *[(-5, -6, False), (-5, -4, True), (-5, 1, True)],
    ],
)
def test_what_went_back(mark: int, now: int, back: bool) -> None:
    assert went_back(now, mark) is back


async def test_what_is_gone_there_stays_here() -> None:
    parts = Parts(FakeSource({"a": 5}))
    await parts.run()
    parts.source.counts = {}
    assert await parts.run(options=ImportOptions(LIVE, shrink=True)) == []
    assert await parts.totals() == {"a": 5}


async def test_a_set_and_a_delete_stay_and_what_comes_later_is_added() -> None:
    parts = Parts(FakeSource({"set": 5, "gone": 5}))
    await parts.run()
    for name, value, deleted in (("set", 100, False), ("gone", 0, True)):
        adds = (ShardAdd(name, 0, value - 5, 1),)
        await parts.store.apply(Commit((Receipt(name, StoreMillis(LIVE)),), adds, guard=(name, Guard(0, deleted))))
    assert await parts.store.remove("gone")
    await parts.run()
    assert await parts.totals() == {"set": 100}
    parts.source.counts = {"set": 6, "gone": 7}
    await parts.run()
    assert await parts.totals() == {"set": 101, "gone": 2}


class Rereads(FakeSource):
    """Counts on between two looks."""

    async def counter(self, name: str) -> Foreign | None:
        self.counts["a"] = 9
        return await super().counter(name)


async def test_what_another_import_saw_later_has_not_shrunk() -> None:
    parts = Parts(Rereads({"a": 5, "ab": 1}))
    await parts.store.apply(Commit((), (ShardAdd("a", 0, 7, 1),), marks=(Mark("there", "a", 0, 7),)))
    assert ImportOutcome("a", 9, 2) in await parts.run()
    assert (await parts.totals())["a"] == 9


class LostAnswers(MemoryStore):
    """Each commit takes place, and its maker hears of a failure."""

    async def apply(self, commit: Commit) -> Instant:
        await super().apply(commit)
        raise TransientError("no answer")


async def test_a_commit_that_was_doubtful_counts_and_is_counted_once() -> None:
    parts = Parts(FakeSource({"a": 5}), LostAnswers)
    assert await parts.run() == [ImportOutcome("a", 5, 5)]
    assert await parts.totals() == {"a": 5}


class Refuses(MemoryStore):
    """One counter."""

    async def apply(self, commit: Commit) -> Instant:
        if any(add.counter == "counter-77" for add in commit.adds):
            raise RefusedError("bad luck")
        return await super().apply(commit)


async def test_what_the_store_refuses_does_not_hold_up_the_rest() -> None:
    names = [f"counter-{number}" for number in range(BATCH)]
    parts = Parts(FakeSource(dict.fromkeys(names, 1)), Refuses)
    told = await parts.run()
    assert [one for one in told if one.flaw] == [ImportOutcome("counter-77", 1, 0, "the store refuses it: bad luck")]
    assert len(told) == BATCH
    assert set(await parts.totals()) == {*names} - {"counter-77"}


class RefusesHuge(MemoryStore):
    """The second step of what takes several."""

    async def apply(self, commit: Commit) -> Instant:
        if any(mark.total > 2**62 for mark in commit.marks):
            raise RefusedError("too much")
        return await super().apply(commit)


async def test_what_was_added_before_the_store_refused_the_rest_is_said() -> None:
    parts = Parts(FakeSource({"a": INT64, "b": 1}), RefusesHuge)
    told = await parts.run()
    assert told == [ImportOutcome("b", 1, 1), ImportOutcome("a", INT64, 2**62, "the store refuses it: too much")]
    assert await parts.totals() == {"a": 2**62, "b": 1}


@pytest.mark.parametrize(
    ("error", "raised", "seconds"),
    [
        (TransientError("away"), TransientError("away"), RETRY_FOR),
        (ChangedError("somebody was first"), TransientError("another import of the same source"), RETRY_FOR),
        (StorageFullError("full"), StorageFullError("full"), 0.0),
    ],
    ids=["the store stays away", "others are always first", "the disk is full"],
)
async def test_what_keeps_all_commits_from_being_done_ends_it(
    error: CountersinkError, raised: CountersinkError, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts(FakeSource({"a": 5}))
    monkeypatch.setattr(parts.store, "apply", failing(error))
    before = parts.clock.monotonic()
    with pytest.raises(ExceptionGroup) as failed:
        await parts.run()
    assert failed.group_contains(type(raised), match=str(raised))
    assert seconds <= parts.clock.monotonic() - before <= 2 * seconds


class Compacted(MemoryStore):
    """Just before the first import the counter's shards go, all but one."""

    async def apply(self, commit: Commit) -> Instant:
        if commit.marks and await self.shards(["a"]) == {"a": 9}:
            await self.compact("a", 1, Receipt("k", StoreMillis(2**60)))
        return await super().apply(commit)


async def test_an_import_does_not_undo_a_compaction() -> None:
    parts = Parts(FakeSource({"a": 5}), Compacted)
    await parts.store.apply(Commit((), tuple([ShardAdd("a", shard, 1, 9) for shard in range(9)])))
    assert await parts.run() == [ImportOutcome("a", 5, 5)]
    assert await parts.store.shards(["a"]) == {"a": 1}
    assert await parts.totals() == {"a": 14}
