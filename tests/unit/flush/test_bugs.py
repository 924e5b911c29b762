"""A bug that some messages meet ends neither the flusher nor the other messages; what is broken itself ends it."""

import pytest

from flusher.flush.commit_loop import MOST_BUGS
from shared.model.buckets import Instant
from shared.model.errors import DamagedError, SettingsError
from shared.model.words import Commit, Delivery, Envelope
from shared.wire import codec
from tests.world.flushing import Bench
from tests.world.memory.store import MemoryStore


class Buggy(MemoryStore):
    """Stumbles over two of the counters: before the commit, or after it."""

    after = False

    async def apply(self, commit: Commit) -> Instant:
        stumbles = any(add.counter in {"x13", "x14"} for add in commit.adds)
        if stumbles and not self.after:
            raise TypeError("before")
        time = await super().apply(commit)
        if stumbles:
            raise KeyError("after")
        return time


def of(*numbers: int) -> list[Envelope]:
    return [Envelope(f"e{number}", {f"x{number}": 1}, {}) for number in numbers]


@pytest.mark.parametrize("after", [False, True])
async def test_the_guilty_are_buried_and_all_others_count_once(
    caplog: pytest.LogCaptureFixture, *, after: bool
) -> None:
    """Where the commit had happened all the same, the receipts tell, and nothing is buried."""
    bench = Bench(Buggy)
    bench.store.after = after  # type: ignore[attr-defined] # it is such a store
    await bench.flush(*of(*range(40)))
    buried = bench.broker.buried()
    assert set(buried) == (set() if after else {"14", "15"})
    assert all("a bug in Countersink (TypeError('before'))" in why for why in buried.values())
    assert bench.broker.unburied() == 0
    totals = [await bench.total(f"x{number}") for number in range(40)]
    assert totals == [0 if number in {13, 14} and not after else 1 for number in range(40)]
    assert any(record.exc_info for record in caplog.records)
    await bench.flush(*of(3, 13))
    assert (await bench.total("x3"), await bench.total("x13")) == (1, int(after)), "no id is counted twice"


@pytest.mark.parametrize("broken", [DamagedError("damaged"), OSError("the disk"), MemoryError(), SettingsError("no")])
async def test_what_is_broken_itself_ends_the_flusher_and_buries_nothing(broken: Exception) -> None:
    bench = Bench()
    await bench.publish(*of(1))

    async def stumble(_: Commit) -> int:
        raise broken

    bench.store.apply = stumble  # type: ignore[method-assign,assignment]
    await bench.flusher.pull_once(0)
    with pytest.raises(type(broken)):
        await bench.flusher.flush_once()
    assert not bench.broker.buried()


async def test_a_bug_that_every_message_meets_ends_the_flusher_before_it_buries_all() -> None:
    bench = Bench()
    number = MOST_BUGS + 20
    await bench.publish(*of(*range(number)))
    apply = bench.store.apply

    async def stumble(commit: Commit) -> Instant:
        if commit.adds:
            raise TypeError("a bug")
        return await apply(commit)

    bench.store.apply = stumble  # type: ignore[method-assign]
    while await bench.flusher.pull_once(0):
        pass
    with pytest.raises(TypeError):
        await bench.flusher.flush_once()
    assert len(await bench.store.dead("", 10 * number)) == MOST_BUGS


async def test_a_bug_in_reading_a_message_buries_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    read = codec.decode

    def stumble(delivery: Delivery, topic: str) -> tuple[Envelope, ...]:
        if delivery.message_id == "2":
            raise KeyError("x")
        return read(delivery, topic)

    bench = Bench()
    await bench.publish(*of(0, 1, 2))
    monkeypatch.setattr("flusher.flush.flusher.decode", stumble)
    assert await bench.flusher.pull_once(0) == 3
    await bench.flusher.flush_once()
    assert [await bench.total(f"x{number}") for number in range(3)] == [1, 0, 1]
    assert [*bench.broker.buried()] == ["2"]
    assert "a bug in Countersink (KeyError('x'))" in bench.broker.buried()["2"]
