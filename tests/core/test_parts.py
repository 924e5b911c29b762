"""Envelopes as they stand in commits."""

from hypothesis import given
from hypothesis import strategies as st

from shared.model.envelope import PART_ENTRIES, Envelope, parts_of
from shared.model.receipts import key_of_envelope, key_of_increment, key_of_part
from shared.model.words import MAX_DELTA, MAX_SUM, Increment
from tests.core.strategies import envelopes


def added(envelope: Envelope) -> dict[str, int]:
    sums = dict(envelope.sums)
    for item in envelope.keyed:
        sums[item.counter] = sums.get(item.counter, 0) + item.delta
    return sums


@given(envelopes())
def test_a_small_envelope_is_one_part(envelope: Envelope) -> None:
    (part,) = parts_of(envelope)
    assert part.key == key_of_envelope(envelope.id)
    assert part.sums == envelope.sums
    assert [item for _, item in part.keyed] == [*envelope.keyed]
    assert part.retried == envelope.retried
    entries = dict(part.entries())
    assert {name: entry.delta + sum(d for _, d in entry.keyed) for name, entry in entries.items()} == added(envelope)


@given(st.integers(0, 2_600), st.integers(0, 2_600), st.randoms())
def test_a_large_one_is_divided_the_same_way_each_time(counters: int, ids: int, chance: object) -> None:
    names = [f"c{number}" for number in range(counters)]
    keyed = tuple(Increment(f"c{number % 7}", MAX_DELTA, f"i{number}") for number in range(ids))
    envelope = Envelope("e", dict.fromkeys(names, 1), {}, keyed)
    chance.shuffle(names)  # type: ignore[attr-defined] # a random.Random
    again = Envelope("e", dict.fromkeys(names, 1), {}, keyed)
    parts = [*parts_of(envelope)]
    assert parts == [*parts_of(again)]
    assert len({part.key for part in parts}) == len(parts)
    assert all(len(part.sums) + len(part.keyed) <= PART_ENTRIES for part in parts)
    assert all(sum(item.delta for _, item in part.keyed) <= MAX_SUM for part in parts)
    assert sum(len(part.sums) for part in parts) == counters
    assert [key for part in parts for key, _ in part.keyed] == [key_of_increment(i.counter, i.id or "") for i in keyed]


def test_keys_of_different_things_differ() -> None:
    keys = [
        key_of_envelope("ab"),
        key_of_envelope("abc"),
        key_of_increment("a", "bc"),
        key_of_increment("ab", "c"),
        key_of_increment("1:a", "b"),
        key_of_increment("1", ":ab"),
    ]
    assert len(set(keys)) == len(keys)


@given(st.text("ab/01", min_size=1, max_size=6), st.text("ab/01", min_size=1, max_size=6), st.integers(0, 3))
def test_no_envelope_is_taken_for_a_part_of_another(one: str, other: str, number: int) -> None:
    assert key_of_part(one, number) != key_of_envelope(other)
    assert key_of_part(one, number) != key_of_envelope(f"{one}/{number}")
    if one != other:
        assert key_of_part(one, number) != key_of_part(other, number)
