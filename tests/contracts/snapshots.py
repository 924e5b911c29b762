"""The contract of what is read of a store: snapshots, and the names of its counters."""

import asyncio
import random
from collections.abc import Sequence
from itertools import product

import pytest

from shared.model.words import Commit, Receipt, ShardAdd
from shared.ports.store import Store
from tests.contracts.store import LATER, commit, snapshot_of, total
from tests.unit.model.key_space.walk import walk


class SnapshotContract:
    """Inherit it beside `StoreContract`."""

    async def test_a_snapshot_has_what_was_applied_before_it(self, store: Store) -> None:
        for number in range(1, 20):
            await store.apply(commit(("a", 1)))
            assert await total(store, "a") == number

    async def test_a_snapshot_stays_at_its_instant(self, store: Store) -> None:
        await store.apply(commit(("a", 1), keys=("k1",)))
        async with store.snapshot() as snapshot:
            time = await store.apply(commit(ShardAdd("a", 1, 1, 2), ("b", 1), keys=("k2",)))
            for _ in range(2):
                totals, applied = await snapshot.read(["a", "b"], ["k1", "k2"])
                assert (totals["a"].value, totals["a"].shards, totals["b"].value) == (1, 1, 0)
                assert set(applied) == {"k1"}
            assert snapshot.time < time
        assert await total(store, "a") == 2

    async def test_a_snapshot_is_never_torn(self, store: Store) -> None:
        """Commits move an amount between two counters and leave a receipt: a snapshot sees all of a move or none."""
        await store.apply(commit(("a", 0), ("b", 0)))
        done = asyncio.Event()
        moves = [(f"move{number}", random.Random(number).randrange(3)) for number in range(120)]

        async def write() -> None:
            for key, shard in moves:
                adds = (ShardAdd("a", shard, -1, shard + 1), ShardAdd("b", shard, 1, shard + 1))
                await store.apply(Commit((Receipt(key, LATER),), adds))
            done.set()

        async def read() -> int:
            seen = 0
            while not done.is_set():
                async with store.snapshot() as snapshot:
                    totals, applied = await snapshot.read(["a", "b"], [key for key, _ in moves])
                assert totals["a"].value == -totals["b"].value == -len(applied)
                assert len(applied) >= seen
                seen = len(applied)
                await asyncio.sleep(0)
            return seen

        await asyncio.gather(write(), read(), read())
        assert await total(store, "b") == len(moves)

    async def test_a_snapshot_has_exactly_what_was_applied_by_its_time(self, store: Store) -> None:
        """Floors compare the two times: a commit missed though its time is not later would be lost to readers."""
        times: dict[str, int] = {}
        seen: list[tuple[int, set[str]]] = []
        keys = [f"timed{number}" for number in range(60)]

        async def write(some: list[str]) -> None:
            for key in some:
                times[key] = await store.apply(commit(("a", 1), keys=(key,)))

        async def read() -> None:
            while len(times) < len(keys):
                async with store.snapshot() as snapshot:
                    await asyncio.sleep(0)
                    totals, applied = await snapshot.read(["a"], keys)
                assert totals["a"].value == len(applied)
                seen.append((snapshot.time, set(applied)))
                look = await store.receipts(keys)
                seen.append((look.time, set(look.found)))
                await asyncio.sleep(0)

        await asyncio.gather(*(write(keys[begin::4]) for begin in range(4)), read(), read())
        for time, applied in seen:
            assert applied == {key for key in keys if times[key] <= time}

    async def test_snapshots_do_not_disturb_each_other(self, store: Store) -> None:
        for expected in range(3):
            async with store.snapshot() as outer:
                await store.apply(commit(("a", 1)))
                async with store.snapshot() as inner:
                    await store.apply(commit(("b", 1)))
                    totals, _ = await inner.read(["a", "b"], ())
                    assert [totals[name].value for name in "ab"] == [expected + 1, expected]
                totals, _ = await outer.read(["a", "b"], ())
                assert [totals[name].value for name in "ab"] == [expected, expected]
                assert outer.time < inner.time

    async def test_a_snapshot_that_was_left_by_an_error_holds_nothing_back(self, store: Store) -> None:
        async def fail() -> None:
            async with store.snapshot() as snapshot:
                await snapshot.read(["a"], ())
                raise ValueError("mine")

        for number in range(1, 4):
            with pytest.raises(ValueError, match="mine"):
                await fail()
            await store.apply(commit(("a", 1)))
            assert await total(store, "a") == number

    async def test_as_of_is_in_seconds_and_goes_on(self, store: Store) -> None:
        instants = []
        for _ in range(3):
            async with store.snapshot() as snapshot:
                instants.append(snapshot.as_of)
        assert instants == sorted(instants)
        assert 10**9 < instants[0] < 10**10

    async def test_who_asks_for_nothing_gets_nothing(self, store: Store) -> None:
        await store.apply(commit(("a", 1), keys=("k",)))
        totals, applied = await snapshot_of(store, [], [])
        assert (dict(totals), [*applied]) == ({}, [])
        assert not (await store.receipts([])).found
        assert await store.shards([]) == {}

    async def test_a_cancelled_commit_is_whole_or_not_there(self, store: Store) -> None:
        keys = [f"cancelled{number}" for number in range(30)]
        tasks = [asyncio.ensure_future(store.apply(commit(("a", 1), ("b", 1), keys=(key,)))) for key in keys]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        await store.apply(commit(("c", 1)))
        totals, applied = await snapshot_of(store, ["a", "b"], keys)
        assert totals["a"].value == totals["b"].value == len(applied)
        done = {key for key, outcome in zip(keys, outcomes, strict=True) if isinstance(outcome, int)}
        assert {*keys[1::2]} <= done <= {*applied}

    async def test_names_are_in_order_of_their_bytes_and_paged(self, store: Store) -> None:
        names = [
            "a", "a b", "a'%_", "a/1", "ab", "aé", "a\N{SNOWMAN}", "a\ufffd", "a\U0001f600", "a\U0010ffff" * 80,
            "b",
        ]  # fmt: skip
        for name in reversed(names):
            await store.apply(commit((name, 1)))
        names.sort(key=str.encode)
        assert [*await store.names("", "", 100)] == names
        assert [*await store.names("a", "", 100)] == names[:-1]
        paged: list[str] = []
        while page := await store.names("a", paged[-1] if paged else "", 3):
            assert len(page) <= 3
            assert not {*page} & {*paged}
            paged += page
        assert paged == names[:-1]
        assert [*await store.names("zz", "", 100)] == []
        assert [*await store.names("a", "b", 100)] == []

    async def test_names_of_a_range_are_behind_its_begin_up_to_its_end(self, store: Store) -> None:
        """Whether or not there is an end, and whether they begin with the prefix or not."""
        names = ["a", "a b", "ab", "a\ufffd", "a\U0001f600", "b"]
        for name in names:
            await store.raise_shards(name, 1)
        ends = ["", "\x00", *names, "a\ud7ff", "a\U0010ffff" * 100, "~"]
        for prefix, limit in (("", 10), ("a", 2), ("b", 10)):
            there = sorted(name for name in names if name.startswith(prefix))
            for after, until in product(ends[:1] + ends[2:-1], [None, *ends]):
                inside = [name for name in there if after < name and (until is None or name <= until)]
                assert [*await store.names(prefix, after, limit, until)] == inside[:limit], (prefix, after, until)

    async def test_a_walk_visits_each_name_once(self, store: Store) -> None:
        names = [f"page:{number:02}" for number in range(25)] + ["a", "pag", "é" * 200, "\ue000", "\U0010ffff" * 100]
        for name in names:
            await store.raise_shards(name, 1)
        for prefix in ("", "page:"):
            visited: list[str] = []

            def visit(page: Sequence[str]) -> None:
                assert 1 <= len(page) <= 4
                visited.extend(page)  # noqa: B023 (called before the next one is made)

            await walk(store, visit, prefix, page=4)
            assert visited == sorted(name for name in names if name.startswith(prefix))

    async def test_a_total_says_when_something_was_added_last(self, store: Store) -> None:
        async def updated() -> list[int]:
            totals, _ = await snapshot_of(store, ["a", "b"])
            return [totals[name].updated for name in "ab"]

        assert await updated() == [0, 0]
        await store.apply(commit(("a", 1)))
        first, none = await updated()
        assert first > none == 0
        await store.apply(commit(ShardAdd("a", 1, 1, 2), ("b", 0)))
        assert min(await updated()) >= first
