"""Envelopes are divided into parts that fit into commits."""

import json
from hashlib import sha256

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.model.receipts import key_of_envelope, key_of_increment, key_of_part
from shared.model.words import MAX_DELTA, MAX_SUM, PART_ENTRIES, Envelope, Increment, divided
from tests.unit.strategies import envelopes


@given(envelopes())
def test_a_small_envelope_is_not_divided(envelope: Envelope) -> None:
    assert divided(envelope) == (envelope,)
    assert envelope.key == key_of_envelope(envelope.id)


@settings(max_examples=30)  # of up to 5,200 entries
@given(st.integers(0, 2_600), st.integers(0, 2_600), st.randoms())
def test_a_large_one_is_divided_the_same_way_each_time(counters: int, ids: int, chance: object) -> None:
    names = [f"c{number}" for number in range(counters)]
    keyed = tuple(Increment(f"c{number % 7}", MAX_DELTA, f"i{number}") for number in range(ids))
    envelope = Envelope("e", dict.fromkeys(names, 1), {}, keyed)
    chance.shuffle(names)  # type: ignore[attr-defined] # a random.Random
    again = Envelope("e", dict.fromkeys(names, 1), {}, keyed)
    parts = divided(envelope)
    assert [(part.key, part) for part in parts] == [(part.key, part) for part in divided(again)]
    assert len({part.key for part in parts}) == len(parts)
    assert all(len(part.sums) + len(part.keyed) <= PART_ENTRIES for part in parts)
    assert all(sum(item.delta for item in part.keyed) <= MAX_SUM for part in parts)
    assert sum(len(part.sums) for part in parts) == counters
    assert [item for part in parts for item in part.keyed] == [*keyed]
    assert sum(part.increments for part in parts) == envelope.increments


def test_it_is_divided_for_ever_as_by_the_first_version() -> None:
    """A message may be delivered to one version, and delivered again to the next: each increment has one receipt."""
    sums = {f"n{number * 7_919 % 2_500}": number for number in range(2_500)}
    ids = tuple(Increment(f"c{n % 7}", MAX_DELTA if n < 400 else -n, f"i{n}") for n in range(1_500))
    large = Envelope("large", sums, {"n3": 5, "n2400": 0}, ids, 9, retried=True, attempt="t", foreign=True)
    told = [
        [
            one.key,
            [*one.sums.items()],
            [(item.key, item.counter, item.delta) for item in one.keyed],
            *(one.increments, one.retried, one.attempt, one.foreign),
        ]
        for one in divided(large)
    ]
    assert [(len(one.sums), len(one.keyed)) for one in divided(large)] == [
        *((1_000, 0), (1_000, 0), (500, 0)),
        *((0, 256), (0, 1_000), (0, 244)),
    ]
    whole = sha256(json.dumps(told).encode()).hexdigest()
    assert whole == "903688c6848745b4d16d237e0f6a8530b5951a4e4055d9b9201a75cec03b5454"


def test_keys_of_different_things_differ() -> None:
    keys = [
        key_of_envelope("ab"), key_of_envelope("abc"), key_of_increment("a", "bc"), key_of_increment("ab", "c"),
        key_of_increment("1:a", "b"), key_of_increment("1", ":ab"),
    ]  # fmt: skip
    assert len(set(keys)) == len(keys)


@given(st.text("ab/01", min_size=1, max_size=6), st.text("ab/01", min_size=1, max_size=6), st.integers(0, 3))
def test_no_envelope_is_taken_for_a_part_of_another(one: str, other: str, number: int) -> None:
    assert key_of_part(one, number) != key_of_envelope(other)
    assert key_of_part(one, number) != key_of_envelope(f"{one}/{number}")
    if one != other:
        assert key_of_part(one, number) != key_of_part(other, number)


def test_a_revived_envelope_goes_on_to_stand_for_the_use_that_its_dead_receipt_names() -> None:
    """Else the other use of its id would count again. A receipt of what was given up for its age names none."""
    envelope = Envelope("e", {"a": 1, "b": 2}, retried=True, attempt="second")
    revived = envelope.in_place_of("first", 5)
    assert (revived.attempt, revived.increments) == ("first", 5)
    assert envelope.in_place_of("", 0) == envelope
