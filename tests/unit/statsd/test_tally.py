"""Sums of lines: whole counts, no fraction lost, bounded."""

from fractions import Fraction
from random import Random

from ingest.statsd.tally import MILLION, StatsdTally, read
from shared.config.lists import PLAIN
from shared.model.words import MAX_SUM

ALL = 10**9


def test_what_is_taken_is_whole_and_the_rest_is_kept() -> None:
    tally = StatsdTally()
    for expected in (3, 4, 3, 3, 4, 3):
        assert tally.add(*read("a:1|c|@0.3", PLAIN))
        assert tally.take(1, ALL).sums == {"a": expected}


def test_sums_and_lines_stay_the_same_however_they_are_taken() -> None:
    for seed in range(200):
        random = Random(seed)
        tally = StatsdTally(most_names=5)
        added, lines = dict[str, int](), 0
        taken, counted = dict[str, int](), 0
        for _ in range(100):
            name, delta = random.choice("abcde"), random.randrange(-3 * MILLION, 3 * MILLION)
            if name in tally or not tally.is_full():
                assert tally.add(name, delta)
                added[name] = added.get(name, 0) + delta
                lines += 1
            if random.random() < 0.2:
                batch = tally.take(random.randrange(1, 4), random.randrange(1, 9))
                assert batch.increments == sum(batch.by_counter().values())
                counted += batch.increments
                for each, total in batch.sums.items():
                    taken[each] = taken.get(each, 0) + total
            assert tally.lines == lines - counted
        while tally.lines:
            batch = tally.take(2, 7)
            counted += batch.increments
            for each, total in batch.sums.items():
                taken[each] = taken.get(each, 0) + total
        assert counted == lines
        assert all(abs(Fraction(added[name], MILLION) - taken[name]) <= Fraction(1, 2) for name in added)


def test_a_counter_with_many_lines_is_taken_in_parts() -> None:
    tally = StatsdTally()
    for _ in range(25):
        tally.add("a", 2 * MILLION)
    tally.add("b", MILLION)
    first, second, third = (tally.take(5, 10) for _ in range(3))
    assert (first.sums, first.counts, first.increments) == ({"a": 50}, {"a": 10}, 10)
    assert (second.sums, second.counts) == ({"b": 1, "a": 0}, {"a": 9})
    assert (third.sums, third.counts, third.increments) == ({"a": 0}, {"a": 6}, 6)
    assert (tally.lines, "a" in tally) == (0, False)


def test_it_has_room_for_so_many_names_and_keeps_so_many_rests() -> None:
    tally = StatsdTally(most_names=2)
    for name in "abc":
        tally.add(name, MILLION // 4)
        tally.take(1, ALL)
    for name in "ab":
        assert not tally.is_full()
        tally.add(name, MILLION // 4)
    assert tally.is_full()
    assert tally.take(9, ALL).sums == {"a": 0, "b": 1}  # the rest of the first one had to go


def test_a_sum_stays_within_what_can_be_sent() -> None:
    tally = StatsdTally()
    assert tally.add("a", (MAX_SUM - 1) * MILLION)
    assert tally.add("a", MILLION)
    assert not tally.add("a", MILLION)
    assert tally.take(1, ALL).sums == {"a": MAX_SUM}
