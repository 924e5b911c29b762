"""Which names, deltas and ids are allowed; how shards are chosen and called; how envelopes are divided."""

import json
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.model.receipts import key_of_envelope, key_of_increment, key_of_part
from shared.model.words import (
    MAX_DELTA,
    MAX_SUM,
    PART_ENTRIES,
    Envelope,
    Increment,
    ShardAdd,
    choose,
    divided,
    flaw_of_delta,
    flaw_of_id,
    flaw_of_name,
    number_for,
    shard_key,
)
from shared.runtime.ids import envelope_ids, mint, of_key
from tests.unit.strategies import envelopes


@pytest.mark.parametrize(
    "name", ["a", "type:id", " ", "a/b", "...", "__", "___", "_a_", "__a", "é", "n" * 400, "é" * 200, "\N{SNOWMAN}"]
)
def test_a_name_is_almost_anything(name: str) -> None:
    assert flaw_of_name(name) is None


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "empty"), ("n" * 401, "400 bytes"), ("é" * 201, "400 bytes"), (".", "reserved"), ("..", "reserved"),
        ("____", "reserved"), ("__name__", "reserved"), ("a\x00", "control"), ("a\n", "control"),
        ("a\x7f", "control"), ("a\x85", "control"), ("a\x9f", "control"), ("a\ud800", "surrogate"), (None, "string"),
        (1, "string"), (b"a", "string"),
    ],
)  # fmt: skip
def test_what_is_no_name_says_why(name: object, why: str) -> None:
    assert why in (flaw_of_name(name) or "")


@pytest.mark.parametrize("delta", [0, 1, -1, MAX_DELTA, -MAX_DELTA])
def test_a_delta_is_what_json_can_say_exactly(delta: int) -> None:
    assert flaw_of_delta(delta) is None


@pytest.mark.parametrize("delta", [True, 1.0, "1", None, MAX_DELTA + 1, -MAX_DELTA - 1, 2**63, float("nan")])
def test_nothing_else_is_a_delta(delta: object) -> None:
    assert flaw_of_delta(delta)


def test_a_delta_that_json_has_made_a_float_is_too_large() -> None:
    assert flaw_of_delta(-1e30) == flaw_of_delta(2**53)
    assert flaw_of_delta(1.5) == "must be an integer"
    assert flaw_of_delta(float("nan")) == "must be an integer"


def test_an_id_is_1_to_1000_bytes() -> None:
    assert flaw_of_id("\n") is None
    assert flaw_of_id("é" * 500) is None
    for bad in ("", "é" * 501, "\ud800", 1, None):
        assert flaw_of_id(bad)


@given(st.integers(1, 40), st.sets(st.integers(0, 45)), st.integers(0, 10**6))
def test_the_chosen_shard_is_not_full_and_a_new_one_only_if_all_are(num: int, full: set[int], chance: int) -> None:
    index = choose(num, frozenset(full), lambda most: chance % most)
    assert index not in full
    assert (index < num) == bool(set(range(num)) - full)
    assert index == min(set(range(num, num + 50)) - full) or 0 <= index < num


@given(st.integers(1, 20), st.sets(st.integers(0, 19)))
def test_every_shard_that_is_not_full_can_be_chosen(num: int, full: set[int]) -> None:
    free = set(range(num)) - full
    chosen = {choose(num, frozenset(full), lambda most, chance=chance: chance % most) for chance in range(num)}  # type: ignore[misc]
    assert chosen == (free or {min(set(range(num, 21)) - full)})


def test_a_shard_that_is_made_needs_itself_alone_where_a_counter_is_there_which_may_be_compacted_meanwhile() -> None:
    assert number_for(ShardAdd("a", 4, 1, 10, 10), 10) == 5
    assert number_for(ShardAdd("a", 4, 1, 10, 10), 0) == 10
    assert number_for(ShardAdd("a", 4, 1, 10), 10) == 10


def test_a_shard_is_called_as_in_the_published_model() -> None:
    assert shard_key("a-b", 3) == "shard-a-b-3"


def test_minted_ids_are_unique_in_order_of_time_and_safe_in_a_url() -> None:
    ids = [mint() for _ in range(2_000)]
    assert len(set(ids)) == len(ids)
    assert [one[:9] for one in ids] == sorted(one[:9] for one in ids)
    assert all(len(one) == 26 and one.isascii() and one.isalnum() and one == one.lower() for one in ids)


def test_ids_of_envelopes_of_a_process_rise_and_look_like_others() -> None:
    ids, others = envelope_ids(), envelope_ids()
    made = [ids() for _ in range(2_000)]
    assert made == sorted(set(made))
    assert len({one[-7:] for one in made}) > 1_990
    assert all(len(one) == 26 and one.isascii() and one.isalnum() and one == one.lower() for one in made)
    assert not made[0] <= others() <= made[-1]


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.text(min_size=1, max_size=3))
def test_a_clients_key_always_gives_the_same_id_and_no_other_key_does(key: str, more: str) -> None:
    assert of_key(key) == of_key(key)
    assert of_key(key) != of_key(key + more.encode("utf-8", "ignore").decode() + "x")
    assert of_key(key).isascii()
    assert of_key(key).isprintable()
    assert "." not in of_key(key)
    assert not mint().startswith("key-")


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
