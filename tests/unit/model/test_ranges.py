"""Splitting a range of names leaves nothing out and visits nothing twice."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.model.ranges import FAR, PARTS, Range, split
from shared.model.words import flaw_of_name
from tests.unit.strategies import names

MOST_PARTS = 2 * (PARTS + 2) + FAR

like_each_other = st.text("ab0\u4e00\U0010ffff", min_size=1, max_size=5)
numbers = st.integers(0, 5_000).map(str) | st.integers(0, 5_000).map("{:06}".format)
at_the_limit = st.text("yz", min_size=1, max_size=4).map(lambda end: "x" * 396 + end)
some_names = st.sets(names | like_each_other, max_size=60) | st.sets(numbers, max_size=200) | st.sets(at_the_limit)
prefixes = st.sampled_from(["", "p", "page:", "é", "\U0010ffff", "x" * 300])


def page_of(keys: Sequence[str], one: Range, limit: int) -> list[str]:
    """As a store lists."""
    begin = bisect_right(keys, one.after)
    end = len(keys) if one.until is None else bisect_right(keys, one.until)
    return [*keys[begin : min(begin + limit, end)]]


def walk(prefix: str, keys: Sequence[str], limit: int) -> tuple[list[list[str]], list[tuple[Range, list[Range]]]]:
    """All pages in their order, and how what was full was split."""
    waiting, pages, splits = [Range()], [], []
    while waiting:
        one = waiting.pop()
        page = page_of(keys, one, limit)
        pages.append(page)
        if len(page) == limit:
            parts = split(prefix, one, page)
            splits.append((one, parts))
            waiting += reversed(parts)
    return pages, splits


@given(some_names, prefixes, st.integers(1, 20))
def test_every_name_is_visited_once_and_in_order(found: set[str], prefix: str, limit: int) -> None:
    keys = sorted(prefix + name for name in found)
    pages, splits = walk(prefix, keys, limit)
    assert [name for page in pages for name in page] == keys
    assert len(pages) <= 1 + len(splits) * MOST_PARTS
    assert len(splits) <= len(keys) // limit


@given(some_names, prefixes, st.integers(1, 20))
def test_parts_cover_the_rest_and_each_has_room_for_a_name(found: set[str], prefix: str, limit: int) -> None:
    keys = sorted(prefix + name for name in found)
    for one, parts in walk(prefix, keys, limit)[1]:
        page = page_of(keys, one, limit)
        if not parts:
            assert page[-1] == one.until
            continue
        assert (parts[0].after, parts[-1].until) == (page[-1], one.until)
        assert all(part.until == following.after for part, following in pairwise(parts))
        for part in parts[:-1]:
            assert part.until is not None
            assert part.after < part.until
            assert part.until.startswith(prefix)
            assert part.until.encode()
            assert flaw_of_name(part.until) is None
        assert one.until is None or parts[-1].after < one.until
        assert {part.depth for part in parts} == {one.depth + 1}


@settings(max_examples=40)
@given(st.sets(names, min_size=1, max_size=30), st.integers(1, 30))
def test_what_has_no_end_is_always_split(found: set[str], limit: int) -> None:
    page = sorted(found)[:limit]
    room = page[-1][0] < "\U0010fffe" and len(page[-1].encode()) < 390
    assert len(split("", Range(), page)) >= (2 if room else 1)


def test_a_range_that_ends_with_the_page_is_done() -> None:
    assert split("", Range("a", "c"), ["b", "c"]) == []


def test_a_range_without_a_place_to_cut_is_one_part() -> None:
    assert split("", Range("a", "b "), ["b"]) == [Range("b", "b ", 2)]


def test_what_is_as_dense_as_the_page_is_cut_into_about_as_many_parts_as_there_are_pages() -> None:
    page = [f"page:{number:06}" for number in range(100)]
    for pages, parts in ((1.5, 1), (3, 3), (5, 5), (12, PARTS + 1), (400, PARTS + 1)):
        until = f"page:{int(pages * 100) - 1:06}"
        found = split("", Range("page:", until), page)
        assert len(found) == parts, (pages, found)
        assert all(part.after.startswith("page:0") for part in found)


@pytest.mark.parametrize("prefix", ["", "page"])
def test_dense_numbers_are_cut_by_digits_and_what_follows_coarsely(prefix: str) -> None:
    parts = split(prefix, Range(), [f"page:{number:06}" for number in range(100)])
    dense = [part for part in parts if (part.until or "~") <= "page::"]
    assert len(dense) == PARTS + 1
    ends = ["001", "125", "25", "375", "5", "625", "75", "875", ":"]
    assert [part.until for part in dense] == [f"page:{end}" for end in ends]
    assert 1 <= len(parts) - len(dense) <= FAR + 3


@pytest.mark.parametrize("width", [20, 390])
def test_numbers_that_could_go_very_far_are_cut_at_several_distances(width: int) -> None:
    keys = [f"{number:0{width}}" for number in range(10_000)]
    pages, splits = walk("", keys, 50)
    assert [name for page in pages for name in page] == keys
    assert max(one.depth for one, _ in splits) < 16
    assert len(pages) < 2 * 10_000 / 50


def test_the_last_name_may_be_the_greatest_there_is() -> None:
    greatest = "\U0010ffff" * 100
    assert split("", Range(), ["a", greatest]) == [Range(greatest, None, 2)]
