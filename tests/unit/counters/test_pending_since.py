"""What is pending is summed on from an earlier view: as if all had been summed anew, and in less time."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from shared.counters import reader
from shared.counters.pending import Base, EntryLog, Pending, keys_of, pending, pending_since
from shared.counters.reader import Reader
from shared.memory.overlay import ProcessOverlay
from shared.model.buckets import Instant, Monotonic, StoreMillis, WallSeconds
from shared.model.words import Entry, Envelope, Increment, Total, View
from shared.wire.codec import encode
from tests.world.manual_clock import ManualClock
from tests.world.memory.broker import MemoryBroker, MemoryOverlay
from tests.world.memory.store import MemoryStore

ROUNDS = 5_000


def base(random: Random, view: View) -> Base:
    """A base of the view, which found some of its entries applied, and others dead."""
    keys = keys_of(view)
    settled = {key for key in keys if random.random() < 0.3}
    dead = tuple([replace(one, confirmed=True) for one in view.entries if random.random() < 0.2])
    time = Instant(random.randint(0, 9))
    return Base(time, WallSeconds(0), StoreMillis(0), Total(0, 1, dead=dead), {*keys}, settled, Monotonic(0))


def envelope(random: Random, number: int) -> Envelope:
    """Most only add to sums, and have an id of their own."""
    rare = random.random() < 0.1
    keyed = (Increment("a", random.randint(-9, 9), random.choice("xy")),) if random.random() < 0.1 else ()
    name = "again" if rare else f"e{number}"
    return Envelope(name, {"a": random.randint(-9, 9), "b": 1}, keyed=keyed, retried=rare and random.random() < 0.5)


def test_it_is_as_if_all_had_been_summed_anew() -> None:
    summed_on = 0
    for seed in range(ROUNDS):
        random = Random(seed)
        overlay, there = Pending(), list[int]()
        earlier = overlay.view("a")
        found, before = base(random, earlier), 0
        for number in range(1, random.randint(2, 15)):
            step = random.choice(["add", "add", "begin", "confirm", "confirm", "withdraw", "settle", "read", "raise"])
            if step in {"add", "begin"}:
                there.append(number)
                overlay.add(number, envelope(random, number), confirmed=step == "add")
            elif step == "read":
                earlier = overlay.view("a")
                found = base(random, earlier)
                before = pending(found, earlier) or 0
            elif step == "raise":
                overlay.raise_floor("a", Instant(random.randint(0, 9)))
            elif there and step == "confirm":
                overlay.confirm(random.choice(there))
            elif there:
                gone = there.pop(random.randrange(len(there)))
                overlay.settle([gone], Instant(random.randint(0, 9))) if step == "settle" else overlay.withdraw(gone)
            view = overlay.view("a")
            more = pending_since(found, before, earlier, view) if pending(found, earlier) is not None else None
            if more is not None:
                assert more == pending(found, view), seed
                summed_on += len(view.entries) > len(earlier.entries)
    assert summed_on > ROUNDS / 10


async def test_a_read_after_each_write_sums_only_what_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each read would take as long as everything that waits."""
    clock = ManualClock()
    broker = MemoryBroker(clock)
    asked = list[View]()

    def anew(base: Base, view: View, *each: Any) -> int | None:
        asked.append(view)
        return pending(base, view, *each)

    monkeypatch.setattr(reader, "pending", anew)
    written = ProcessOverlay(clock, exact=True)
    for overlay in (MemoryOverlay(broker), written):
        asked.clear()
        read = Reader(MemoryStore(clock), overlay, clock, 1.0)
        await read.read(["a"])
        for number in range(1, 50):
            envelope = Envelope(f"e{number}", {"a": 2})
            if overlay is written:
                async with written.entered([envelope]):
                    assert [one.pending for one in await read.read(["a"])] == [2 * number - 2]
            else:
                await broker.publish([encode(envelope)])
            assert [one.pending for one in await read.read(["a"])] == [2 * number]
        assert len(asked) <= 2


def test_logs_that_part_do_not_see_each_others_entries() -> None:
    one, two, three = Entry("1", 1), Entry("2", 2), Entry("3", 3)
    first = EntryLog([one])
    second, other = first.grown([two], ()), first.grown([three], ())
    assert [*first] == [one]
    assert [*second] == [one, two]
    assert [*other] == [one, three]
    assert second.since(first) == [two]
    assert other.since(second) is None
    assert first.since(second) is None
    assert second.grown((), [three]) == (one, two, three)
