"""Metrics and receipts count each increment once, whatever comes twice or fails."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from math import inf

import pytest

from flusher.dead_letters.desk import Replay
from flusher.dead_letters.letters import open_letter
from shared.model.buckets import Instant
from shared.model.errors import RefusedError, TransientError
from shared.model.receipts import Tally, key_of_envelope, read_note
from shared.model.words import PART_ENTRIES, Commit, Envelope, Increment, Message
from shared.runtime import metrics
from shared.wire.codec import encode
from tests.http.faults import failing
from tests.interleavings.simulation.poison import PickyStore
from tests.world.flushing import Bench
from tests.world.memory.letters import MemoryDeadLetters
from tests.world.memory.store import MemoryStore

COUNTED = (metrics.APPLIED, metrics.DEDUPLICATED, metrics.DEAD_INCREMENTS, metrics.FOREIGN)
killed = failing(TransientError("killed"))
PLAIN = Envelope("e1", {"a": 7, "b": 1}, {"a": 3}, (Increment("c", 2, "i1"),))
FOREIGN = {"ce-source": "s", "ce-id": "1"}


def counted() -> list[float]:
    return [metric.get() for metric in COUNTED]


@pytest.fixture
def counts() -> Callable[[], Tally]:
    """What was counted since the test began."""
    before = counted()
    return lambda: Tally(*[int(now - then) for now, then in zip(counted(), before, strict=True)])


async def flush(bench: Bench) -> None:
    """Until nothing is left, each window by itself."""
    while await bench.flusher.pull_once(0):
        await bench.flusher.flush_once()


async def said(store: MemoryStore) -> Tally:
    """What the receipts say."""
    async with store.audit_data() as data:
        read = [read_note(one.receipt.note).tally async for page in data.receipts() for one in page]
    return Tally(*[sum(one) for one in zip(*read, strict=True)])


def used(number: int, name: str = "key", sums: dict[str, int] | None = None) -> Envelope:
    """A use of a client's id."""
    return Envelope(name, sums or {"a": 1, "b": 1}, {}, (), 1, retried=True, attempt=f"t{number}")


async def test_each_increment_of_an_envelope_counts(counts: Callable[[], Tally]) -> None:
    bench = Bench()
    await bench.publish(PLAIN, Envelope("e2", {}, {}, (Increment("c", 2, "i1"), Increment("c", 2, "i2"))))
    await flush(bench)
    assert counts() == await said(bench.store) == Tally(applied=6, deduplicated=1)


@pytest.mark.parametrize("together", [True, False])
async def test_a_copy_counts_nothing_and_a_second_use_as_deduplicated_once(
    counts: Callable[[], Tally], together: bool
) -> None:
    """In one window and in others, in any order; also when the second use comes twice."""
    bench = Bench()
    for use in [used(number) for number in (1, 2, 1, 3, 2, 2)]:
        await bench.broker.publish([Message(encode(use).data, encode(use).attributes)])
        if not together:
            await flush(bench)
    await flush(bench)
    assert counts() == await said(bench.store) == Tally(applied=2, deduplicated=4)
    assert bench.broker.unburied() == 0
    assert await bench.total("a") == 1


async def test_what_a_killed_flusher_has_committed_is_not_counted_by_the_next(counts: Callable[[], Tally]) -> None:
    bench = Bench()
    await bench.publish(used(1), PLAIN)
    await bench.flusher.pull_once(0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bench.broker, "ack", killed)
        await bench.flusher.flush_once()
    bench.broker.expire_leases()
    await flush(bench)
    assert bench.broker.unburied() == 0
    assert counts() == await said(bench.store) == Tally(applied=7)


class Doubtful(MemoryStore):
    """Every commit happens, or not, and fails."""

    _turn = count()

    async def apply(self, commit: Commit) -> Instant:
        turn = next(self._turn) % 3
        if turn == 0:
            raise TransientError("before")
        time = await super().apply(commit)
        if turn == 1:
            raise TransientError("after")
        return time


async def test_a_commit_that_was_doubtful_is_counted_once(counts: Callable[[], Tally]) -> None:
    bench = Bench(Doubtful)
    for number in range(9):
        await bench.publish(used(number, f"key{number % 4}"), Envelope(f"p{number}", {"a": 1}))
        await flush(bench)
    assert counts() == await said(bench.store) == Tally(applied=4 * 2 + 9, deduplicated=5 * 2)
    assert await bench.total() == 4 + 9


class Poisoned(MemoryStore):
    """Refuses one counter; and a give-up is doubtful."""

    _failed = False

    async def apply(self, commit: Commit) -> Instant:
        if any(add.counter.startswith("poison") for add in commit.adds):
            raise RefusedError("not this one")
        time = await super().apply(commit)
        if commit.tally.dead and not self._failed:
            self._failed = True
            raise TransientError("after")
        return time


async def test_dead_letters_count_their_increments_once_whoever_finds_them(counts: Callable[[], Tally]) -> None:
    bench = Bench(Poisoned)
    await bench.publish(Envelope("e", {"poison": 5}, {"poison": 4}), used(1, "k", {"poison": 1}))
    await flush(bench)
    await bench.publish(used(2, "k", {"a": 1, "b": 1}))
    await flush(bench)
    await bench.publish(used(2, "k", {"a": 1, "b": 1}), used(1, "k", {"poison": 1}))
    await flush(bench)
    assert counts() == await said(bench.store) == Tally(dead=4 + 1 + 2)
    assert len(bench.broker.buried()) == 4, "the broker drops what it still has under the same id"
    assert bench.broker.unburied() == 0


class Morgue(Bench):
    """Its store refuses what has an increment of `poison`, until it is cured."""

    store: PickyStore

    def __init__(self) -> None:
        super().__init__(PickyStore)
        self.store.refused["poison"] = inf

    async def publish(self, *envelopes: Envelope) -> None:
        """To a broker that does not know that they have one id."""
        await self.broker.publish([replace(encode(envelope), once=None) for envelope in envelopes])

    async def lose(self, *envelopes: Envelope) -> None:
        """They are given up by a flusher that is killed before it buries them."""
        await self.publish(*envelopes)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(self.broker, "bury", killed)
            await flush(self)

    async def replay(self) -> None:
        """All letters, at once."""
        letters = MemoryDeadLetters(self.broker)
        found = [open_letter(letter, "t") for letter in await letters.pull(1_000, 10**9)]
        await Replay(self.flusher._tools, letters).run(found)

    async def settled(self) -> Tally:
        """When nothing is left, by what the commits counted; receipts say the same."""
        self.broker.expire_leases()
        await flush(self)
        await self.replay()
        assert not self.broker.pending.names("")
        assert await said(self.store) == self.store.tally
        return self.store.tally


@pytest.mark.parametrize("first_is_buried", [True, False])
async def test_a_replay_moves_what_was_dead_whether_or_not_the_first_use_is_buried(first_is_buried: bool) -> None:
    """The receipt goes on to stand for the use that was given up, which so is known when it comes again."""
    morgue = Morgue()
    await morgue.lose(used(1, "k", {"poison": 1}))
    await morgue.publish(used(2, "k", {"a": 1, "b": 1}))
    await flush(morgue)
    assert await said(morgue.store) == morgue.store.tally == Tally(dead=1 + 2)
    if first_is_buried:
        morgue.broker.expire_leases()
        await flush(morgue)
    await morgue.replay()  # refused, or of the second use alone
    morgue.store.refused.clear()
    assert await morgue.settled() == Tally(applied=1, deduplicated=2)


async def test_the_use_that_was_given_up_is_replayed_and_not_a_later_one_of_its_key() -> None:
    """Readers have counted it as pending; the later one is a second use, whatever it holds."""
    morgue = Morgue()
    ids = tuple(Increment("c", 1, f"i{number}") for number in range(3))
    await morgue.publish(Envelope("e", {}, {}, ids))
    await flush(morgue)
    await morgue.lose(used(1, "k", {"poison": 1}))
    await morgue.publish(Envelope("k", {}, {}, ids, 1, retried=True, attempt="t2"))
    await flush(morgue)
    await morgue.replay()
    morgue.store.refused.clear()
    assert await morgue.settled() == Tally(applied=3 + 1, deduplicated=3)
    assert (await morgue.total("c"), await morgue.total("poison")) == (3, 1)


async def test_letters_that_one_commit_counts_are_not_dead_any_more() -> None:
    morgue = Morgue()
    await morgue.publish(*(Envelope(f"e{number}", {"poison": 1}) for number in range(3)), used(1, "k", {"poison": 1}))
    await flush(morgue)
    assert await said(morgue.store) == morgue.store.tally == Tally(dead=4)
    await morgue.replay()
    assert await said(morgue.store) == morgue.store.tally == Tally(dead=4)
    morgue.store.refused.clear()
    assert await morgue.settled() == Tally(applied=4)


async def test_foreign_messages_are_accepted_when_they_are_settled(counts: Callable[[], Tally]) -> None:
    bench = Bench(Poisoned)
    large = {f"n{number}": 1 for number in range(PART_ENTRIES)} | {"poison": 1} | {f"q{n}": 1 for n in range(999)}
    body = b'{"counters":{%b}}' % b",".join(b'"%b":1' % name.encode() for name in large)
    await bench.broker.publish([Message(b'{"counter":"a"}'), Message(b"rubbish"), Message(body, FOREIGN)])
    await flush(bench)
    poisoned = counts().dead
    assert 0 < poisoned <= PART_ENTRIES
    assert counts() == Tally(applied=2_001 - poisoned, dead=poisoned, foreign=2_001)
    await bench.broker.publish([Message(b'{"counter":"a","delta":3}', {**FOREIGN, "ce-id": "2"}) for _ in range(3)])
    await flush(bench)
    assert counts() == await said(bench.store)
    assert counts() == Tally(applied=2_002 - poisoned, deduplicated=2, dead=poisoned, foreign=2_004)


async def test_receipts_of_an_older_version_are_of_copies(counts: Callable[[], Tally]) -> None:
    """They do not say which use they stand for."""
    bench = Bench()
    await bench.publish(used(1))
    await flush(bench)
    key = key_of_envelope("key")
    bench.store._receipts = {key: bench.store._receipts[key]._replace(note=b"")}
    await bench.publish(used(2))
    await flush(bench)
    assert counts() == Tally(applied=2)
    assert bench.broker.unburied() == 0


async def test_the_sums_of_a_commit_stand_in_its_receipts_however_many_they_are() -> None:
    bench = Bench()
    names = [str(number) + '"' * 390 for number in range(1_700)]
    await bench.publish(*(Envelope(f"e{n}", dict.fromkeys(names[n * 850 : n * 850 + 850], n + 1)) for n in range(2)))
    await bench.flusher.pull_once(0)
    await bench.flush()
    await flush(bench)
    sums: dict[str, int] = {}
    async with bench.store.audit_data() as data:
        async for page in data.receipts():
            for one in page:
                assert len(one.receipt.note) < 1_000_000
                sums |= read_note(one.receipt.note).sums
    assert sums == {name: number // 850 + 1 for number, name in enumerate(names)}
