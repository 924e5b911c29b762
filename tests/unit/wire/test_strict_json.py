"""JSON objects with a repeated name are refused, and the quick check for them never misses one."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared.wire import strict_json

SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(':\\"a\u00e9,{', max_size=4)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(':a\\"', max_size=3), inner, max_size=4),
    max_leaves=12,
)


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


@given(VALUES, st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :\t")]), st.booleans())
def test_what_is_right_is_read(value: Any, separators: tuple[str, str], ascii_only: bool) -> None:
    text = json.dumps(value, separators=separators, ensure_ascii=ascii_only).encode()
    assert strict_json.loads(text) == value


NAMES = st.sampled_from(['"a"', '"\\u0061"', '"a:"', '"a\\u003a"', '"b"', '":"', '""', '"\\""'])


@st.composite
def objects(draw: st.DrawFn) -> str:
    """Text of objects in which names may repeat, in several spellings."""
    values = st.sampled_from(["1", '":"', '"\\u003a"', "null"])
    members = ",".join(f"{draw(NAMES)} :{draw(values)}" for _ in range(draw(st.integers(0, 4))))
    shape = draw(st.sampled_from(["%s", "[%s]", "[%s,{}]", '{"counters":%s}', '[{"x":[%s]}]', "[[%s]]"]))
    return shape % f"{{{members}}}"


@given(objects())
@example('{"a\\u003a":1,"a:":2}')
@example('[{"a":":","a":1}]')
def test_a_name_twice_is_always_refused(text: str) -> None:
    try:
        json.loads(text, object_pairs_hook=unique)
    except AssertionError:
        with pytest.raises(strict_json.JsonError, match="twice"):
            strict_json.loads(text.encode())
    else:
        assert strict_json.loads(text.encode()) == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{", b"nan", b"[NaN]", b"Infinity", b"\xff", b'"\xff"', b'"\\ud800"', b"[1,]", b"{'a':1}", b"1 2",
        b"[" * 10**5, b'{"a":1,"a":' + b"[" * 900 + b"]" * 900 + b"}",
    ],
)  # fmt: skip
def test_what_is_no_json_is_refused(text: bytes) -> None:
    with pytest.raises(strict_json.JsonError):
        strict_json.loads(text)


@given(st.binary(max_size=80))
def test_rubbish_is_refused_and_nothing_else_happens(text: bytes) -> None:
    with contextlib.suppress(strict_json.JsonError):
        strict_json.loads(text)


@pytest.mark.parametrize("number", [2**53, 2**63 - 1, -(2**63), 2**63, 2**64 - 1])
def test_integers_of_64_bits_are_read_exactly(number: int) -> None:
    found = strict_json.loads(str(number).encode())
    assert type(found) is int
    assert found == number


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**400])
def test_larger_integers_are_never_an_integer_that_was_not_meant(number: int) -> None:
    try:
        found = strict_json.loads(b'{"a":%s}' % str(number).encode())
    except strict_json.JsonError:
        return
    assert type(found["a"]) is float
