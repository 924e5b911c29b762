"""How shards are chosen, and what shards and envelopes are called."""

from hypothesis import given
from hypothesis import strategies as st

from shared.model.words import ShardAdd, choose, number_for, shard_key
from shared.runtime.ids import envelope_ids, mint, of_key


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
