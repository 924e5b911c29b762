"""Names become numbers in the same order, and back."""

import random
from bisect import bisect
from collections.abc import Sequence
from itertools import pairwise
from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.model.names_as_numbers import LAST, Scale, behind, character, common, runs
from shared.model.words import flaw_of_name
from tests.unit.strategies import names

texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6)
codes = st.sets(st.integers(0x20, LAST).filter(lambda code: character(code) == chr(code)), min_size=1, max_size=20)
likely = st.text("0aA~é\u4e00\ud7ff\ue000\U0010ffff", max_size=5)


@given(names, names)
def test_strings_are_in_the_order_of_their_bytes(one: str, other: str) -> None:
    assert (one < other) == (one.encode() < other.encode())


@given(texts | likely, texts | likely)
def test_what_two_begin_with_is_all_of_that(one: str, other: str) -> None:
    same = common(one, other)
    assert one[:same] == other[:same]
    assert one[same : same + 1] != other[same : same + 1] or one == other


@given(texts | likely, texts | likely)
def test_nothing_lies_between_what_begins_with_a_text_and_what_is_behind_it(text: str, name: str) -> None:
    edge = behind(text)
    assert edge is None or edge > text
    if name > text:
        assert name.startswith(text) == (edge is None or name < edge)


def test_behind_a_text_are_no_controls_and_no_surrogates() -> None:
    assert behind("a/") == "a0"
    assert behind("~") == "\xa0"
    assert behind("\ud7ff") == "\ue000"
    assert behind("a\U0010ffff\U0010ffff") == "b"
    assert behind("\U0010ffff") is None
    assert behind("") is None


@given(st.sets(st.integers(0, 400) | st.integers(0x2FF0, 0x4100), max_size=30), st.sampled_from([1, 3, 0x1000]))
def test_runs_hold_all_characters_and_only_in_large_scripts_more(codes: set[int], near: int) -> None:
    held = [code for low, high in runs(codes, near) for code in range(low, high + 1)]
    assert codes <= {*held}
    assert held == sorted({*held})
    for code in {*held} - codes:
        assert code > 0x2FFF
        assert any(abs(code - other) < near for other in codes)


@given(codes, st.integers(1, 5), texts | likely, texts | likely)
def test_numbers_are_in_the_order_of_the_strings(alphabet: set[int], width: int, one: str, other: str) -> None:
    scale = Scale(runs(alphabet), width)
    first, second = sorted([one, other])
    assert 0 <= scale.number(first) <= scale.number(second) < scale.top


@given(codes, st.data())
def test_a_text_of_the_alphabet_is_its_number_and_the_shortest_of_it(alphabet: set[int], data: st.DataObject) -> None:
    text = data.draw(st.text(st.sampled_from(sorted(map(chr, alphabet))), max_size=6))
    scale = Scale(runs(alphabet), 6)
    assert scale.text(scale.number(text)) == text.rstrip(chr(min(alphabet)))


@given(codes, st.integers(1, 9), st.data())
def test_cuts_are_names_between_the_ends_in_order(alphabet: set[int], parts: int, data: st.DataObject) -> None:
    scale = Scale(runs(alphabet), 6)
    low, high = sorted(data.draw(st.tuples(*[st.integers(0, scale.top)] * 2)))
    cuts = scale.cuts(low, high, parts)
    assert len(cuts) == parts - 1
    assert cuts == sorted(cuts)
    for number, cut in enumerate(cuts, 1):
        assert scale.number(cut) <= low + (high - low) * number // parts
        assert flaw_of_name(f"-{cut}") is None


@pytest.mark.parametrize("alphabet", [b"0123456789", b"01", range(0x4E00, 0x4E80)])
@pytest.mark.parametrize("parts", [2, 3, 8])
def test_cuts_divide_evenly_and_are_short(alphabet: Sequence[int], parts: int) -> None:
    scale = Scale(runs(alphabet), 40)
    chance = random.Random(1)
    there = sorted("".join(map(chr, chance.choices(alphabet, k=30))) for _ in range(20_000))
    low, high = there[2_000], there[-2_000]
    cuts = scale.cuts(scale.number(low), scale.number(high), parts)
    held = [bisect(there, end) - bisect(there, begin) for begin, end in pairwise((low, *cuts, high))]
    assert len(held) == parts
    assert max(held) < 1.3 * min(held)
    assert max(map(len, cuts)) <= 1 + 10 / log2(len(alphabet))


def test_cuts_of_numbers_are_where_everybody_would_cut() -> None:
    digits = Scale(runs(b"0123456789"), 6)
    assert digits.cuts(digits.number("0"), digits.number("8"), 4) == ["2", "4", "6"]
    assert digits.cuts(digits.number("5"), digits.top, 1) == []
