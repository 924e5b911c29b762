"""What a set does when it can't be done at once, or at all. tests/interleavings has the races."""

import asyncio
import random

import pytest

from shared.counters.reader import Reader
from shared.counters.setter import DELETE, LONGEST, RESET, RETRY_FOR, SET, Change, ChangeRequest, Setter
from shared.memory import ProcessOverlay
from shared.model.buckets import DAY, Instant
from shared.model.errors import (
    ChangedError,
    CountersinkError,
    DoubtfulError,
    InexactError,
    OverloadedError,
    ShareError,
    StorageFullError,
    TransientError,
)
from shared.model.receipts import key_of_set, read_note
from shared.model.words import SHARD_FULL, Commit, ShardAdd
from shared.runtime.retry import Backoff
from tests.contracts.store import commit
from tests.http.faults import failing
from tests.world.manual_clock import ManualClock
from tests.world.memory.exact_overlay import ExactOverlay
from tests.world.memory.store import MemoryStore


class Parts:
    """A setter of a store and an overlay in memory; pauses turn the clock."""

    def __init__(self, store: type[MemoryStore] = MemoryStore, *, exact: bool = True) -> None:
        self.clock = ManualClock()
        self.store = store(self.clock)
        self.overlay = (ExactOverlay if exact else ProcessOverlay)(self.clock)
        self.reader = Reader(self.store, self.overlay, self.clock, 1.0)
        pick = random.Random(1).randrange
        self.setter = Setter(
            self.reader,
            self.store,
            self.overlay,
            self.clock,
            DAY,
            pick=pick,
            backoff=lambda: Backoff(sleep=self._sleep),
        )

    async def _sleep(self, seconds: float) -> None:
        self.clock.turn(seconds)

    async def value(self) -> int:
        (reading,) = await self.reader.read(["a"], 0)
        return reading.value


async def test_what_can_not_be_read_exactly_is_not_set() -> None:
    parts = Parts(exact=False)
    await parts.store.apply(commit(("a", 5)))
    for wish in (ChangeRequest(SET, 7), ChangeRequest(RESET), ChangeRequest(DELETE)):
        with pytest.raises(InexactError, match=r"countersink doctor says why.*COUNTERSINK_OVERLAY"):
            await parts.setter.set("a", wish)
    assert await parts.value() == 5


@pytest.mark.parametrize("sign", [1, -1])
async def test_a_total_beyond_64_bits_is_undone_all_the_same(sign: int) -> None:
    """By sums that each shard can take, not in those that are full; and its receipts say all of it."""
    parts = Parts()
    held = 0
    for shard in range(5):
        for delta in (SHARD_FULL, SHARD_FULL if shard % 2 else 1):
            await parts.store.apply(commit(ShardAdd("a", shard, sign * delta, 5)))
            held += sign * delta
    assert abs(held) > 2**63
    assert await parts.setter.set("a", ChangeRequest(SET, 7, "k")) == Change(held, 7)
    assert await parts.value() == 7
    assert await parts.setter.set("a", ChangeRequest(SET, 8, "k")) == Change(held, 7)
    said = [read_note(receipt.note).sums.get("a", 0) for receipt in parts.store._receipts.values()]
    assert sum(said) == 7 - held


class Contended(MemoryStore):
    tries = 0

    async def apply(self, commit: Commit) -> Instant:
        self.tries += 1
        raise ChangedError("others were first")


async def test_a_set_that_always_loses_to_others_ends_after_a_while() -> None:
    parts = Parts(Contended)
    begun = parts.clock.monotonic()
    with pytest.raises(ShareError, match="nothing happened"):
        await parts.setter.set("a", ChangeRequest(SET, 7))
    assert isinstance(parts.store, Contended)
    assert parts.store.tries > 3
    assert RETRY_FOR <= parts.clock.monotonic() - begun < 2 * RETRY_FOR


async def test_a_full_disk_is_said_at_once() -> None:
    parts = Parts()
    parts.store.apply = failing(StorageFullError("no room"))  # type: ignore[method-assign,assignment]
    begun = parts.clock.monotonic()
    with pytest.raises(StorageFullError):
        await parts.setter.set("a", ChangeRequest(SET, 7))
    assert parts.clock.monotonic() == begun


class Late(MemoryStore):
    """Nothing is heard of the first commit, which comes later; then there is a limit."""

    late: Commit | None = None
    limit: CountersinkError

    async def apply(self, commit: Commit) -> Instant:
        if self.late is not None:
            raise self.limit
        self.late = commit
        raise TransientError("nothing was heard of it")


@pytest.mark.parametrize(
    ("limit", "raised"),
    [
        *(
            (limit, DoubtfulError)
            for limit in (InexactError("?"), OverloadedError("later"), StorageFullError("no room"))
        ),
        (ChangedError("others were first"), TransientError),
    ],
)
async def test_a_limit_after_a_commit_that_may_come_late_is_no_promise_that_nothing_happened(
    limit: CountersinkError, raised: type[TransientError]
) -> None:
    parts = Parts(Late)
    assert isinstance(parts.store, Late)
    parts.store.limit = limit
    with pytest.raises(raised, match=r"send .*again with the same") as error:
        await parts.setter.set("a", ChangeRequest(SET, 7))
    assert type(error.value) is raised
    assert (error.value.limit if isinstance(error.value, DoubtfulError) else error.value.__cause__) is limit
    assert parts.store.late is not None
    await MemoryStore.apply(parts.store, parts.store.late)
    assert await parts.value() == 7


async def test_a_limit_after_the_commit_is_none_either(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts()
    monkeypatch.setattr(parts.overlay, "changed", failing(OverloadedError("too much waits to be written")))
    with pytest.raises(DoubtfulError):
        await parts.setter.set("a", ChangeRequest(SET, 7))
    assert await parts.value() == 7


class Slow(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        assert isinstance(self._clock, ManualClock)
        self._clock.turn(1.5)
        await asyncio.sleep(0)
        return await super().apply(commit)


async def test_a_set_that_waits_long_behind_others_is_refused() -> None:
    parts = Parts(Slow)
    outcomes = await asyncio.gather(
        *(parts.setter.set("a", ChangeRequest(SET, number)) for number in range(20)), return_exceptions=True
    )
    set_ = [one for one in outcomes if isinstance(one, Change)]
    assert 1 < len(set_) < 20
    assert {type(one) for one in outcomes if one not in set_} == {ShareError}
    assert await parts.value() == set_[-1].after


async def test_a_process_that_stood_still_does_not_set_the_counter_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier request under its key may have set it, and the receipt may be gone."""
    parts = Parts()
    apply = parts.store.apply

    async def long_on_its_way(commit: Commit) -> Instant:
        parts.clock.turn(LONGEST / 1_000 + 1)
        return await apply(commit)

    monkeypatch.setattr(parts.store, "apply", long_on_its_way)
    with pytest.raises(TransientError, match="send the request again"):
        await parts.setter.set("a", ChangeRequest(SET, 7, "k"))
    monkeypatch.undo()
    assert await parts.value() == 0
    assert await parts.setter.set("a", ChangeRequest(SET, 7, "k")) == Change(0, 7)


async def test_the_receipt_of_a_set_lives_as_long_as_ids_do_by_the_stores_time() -> None:
    parts = Parts()
    behind = ManualClock(parts.clock.now() - 17 * DAY / 1_000)
    setter = Setter(parts.reader, parts.store, parts.overlay, behind, DAY)
    await setter.set("a", ChangeRequest(SET, 7, "k"))
    (receipt,) = parts.store._receipts.values()
    assert receipt.key == key_of_set("a", SET, "k")
    assert receipt.expires == await parts.store.now() + DAY
