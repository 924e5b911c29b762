"""The rule of a fair share: what one holds leaves as much for others, and newcomers get in."""

import doctest
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.http import shares as module
from shared.http.shares import Places, Shares
from shared.model.errors import OverloadedError, ShareError

HOLDERS = "abcd"


def may(shares: Shares, holder: str, more: int) -> bool:
    return shares.left(more) >= 0 and not shares.excess(holder, more)


def test_the_example_is_true() -> None:
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed


@given(
    limit=st.integers(0, 60),
    steps=st.lists(st.tuples(st.sampled_from(HOLDERS), st.integers(1, 20), st.booleans()), max_size=60),
)
def test_what_one_gets_leaves_as_much_for_others(limit: int, steps: list[tuple[str, int, bool]]) -> None:
    shares, held = Shares(limit), dict.fromkeys(HOLDERS, 0)
    for holder, number, enters in steps:
        if not enters:
            less = min(number, held[holder])
            if less:
                shares.leave(holder, less)
                held[holder] -= less
        elif may(shares, holder, number):
            is_new = not held[holder]
            shares.enter(holder, number)
            held[holder] += number
            assert is_new or held[holder] <= limit - shares.held
        else:
            left = limit - shares.held - number
            assert left < 0 or (held[holder] > 0 and left < held[holder] + number)
        assert shares.holders == {one: number for one, number in held.items() if number}
        assert shares.held == sum(held.values()) <= limit
        assert may(shares, "new", limit - shares.held), "whoever holds nothing may have all that is left"
        assert not may(shares, "new", limit - shares.held + 1)


@given(count=st.integers(1, 8), more=st.integers(0, 200))
def test_those_that_begin_together_get_as_much_as_is_left(count: int, more: int) -> None:
    """One gets half, two a third each, and so on."""
    shares = Shares(count + more)
    holders = [str(number) for number in range(count)]
    refused = set[str]()
    for holder in cycle(holders):
        if len(refused) == count:
            break
        if may(shares, holder, 1):
            shares.enter(holder, 1)
        else:
            refused.add(holder)
    assert all(abs(shares.held_by(holder) - shares.limit / (count + 1)) < 1 for holder in holders)


@given(own=st.integers(1, 40), others=st.integers(0, 40), free=st.integers(0, 40), more=st.integers(0, 40))
def test_an_excess_is_what_has_to_leave_before(own: int, others: int, free: int, more: int) -> None:
    shares = Shares(own + others + free)
    shares.enter("a", own)
    shares.enter("b", others)
    if excess := shares.excess("a", more):
        shares.limit += excess  # as if that had left
        assert not shares.excess("a", more)
        shares.limit -= 1
        assert shares.excess("a", more) == 1


def test_shares_of_places_are_rounded_up_to_a_whole_request() -> None:
    places = Places(24, "streams are open", "end one")
    with places.take("a", 8), places.take("a", 8):
        with pytest.raises(
            ShareError, match=r"^16 streams are open for this client \(a\), .* share of the 24 that may"
        ):
            places.take("a", 8).__enter__()
        with places.take("b", 8), pytest.raises(OverloadedError, match=r"^24 streams are open: .*, or end one$"):
            places.take("c", 8).__enter__()
    assert (places.held, places.holders) == (0, {})
