"""Which names, deltas and ids are allowed."""

import pytest

from shared.model.words import MAX_DELTA, flaw_of_delta, flaw_of_id, flaw_of_name


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
