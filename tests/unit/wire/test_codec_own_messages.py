"""What a message must hold that claims to be ours, and numbers at the edge of 64 bits."""

import json
from typing import Any

import pytest

from shared.model.buckets import BrokerMillis
from shared.model.envelope import Envelope
from shared.model.errors import UnreadableError
from shared.model.words import MAX_DELTA, MAX_SUM, Delivery, Increment, Message
from shared.wire import strict_json
from shared.wire.codec import TYPE, decode, encode


def read(data: Any, **attributes: str) -> Envelope:
    named = {name.replace("_", "-"): value for name, value in ({"ce_type": TYPE, "ce_id": "e"} | attributes).items()}
    (envelope,) = decode(Delivery("token", Message(json.dumps(data).encode(), named), "7", BrokerMillis(5)), "t")
    return envelope


def test_its_id_is_what_the_attribute_says_whatever_the_broker_calls_it() -> None:
    message = encode(Envelope("e", {"a": 1}))
    ids = {
        decode(Delivery("token", message, number, BrokerMillis(int(number))), "t" + number)[0].id for number in "123"
    }
    assert ids == {"e"}


def test_sums_may_be_larger_than_one_delta() -> None:
    assert read({"counters": {"a": MAX_SUM, "b": -MAX_SUM}}).sums == {"a": MAX_SUM, "b": -MAX_SUM}


def test_what_is_not_said_has_a_default() -> None:
    envelope = read({"counters": {"a": 1}})
    assert (envelope.created, envelope.counts, envelope.keyed, envelope.retried) == (5, {}, (), False)


@pytest.mark.parametrize(
    "data",
    [
        {"counters": {"a": MAX_SUM + 1}},
        {"counters": {"a": 2**63}},
        {"counters": {"a": 2**64}},
        {"counters": {"a": 1.0}},
        {"counters": {"a": True}},
        {"counters": {"a": 1}, "counts": {"b": 2}},
        {"counters": {"a": 1}, "counts": {"a": -1}},
        {"counters": {"a": 1}, "counts": {"a": 1.5}},
        {"counters": {"a": 1}, "counts": []},
        {"counters": {"a": 1}, "created": -1},
        {"counters": {"a": 1}, "created": "now"},
        {"counters": {"a": 1}, "created": None},
        {"counters": {}, "keyed": [{"counter": "a", "id": "i", "delta": MAX_DELTA + 1}]},
        {"counters": {}, "keyed": [{"counter": "a", "id": "i" * 1_001}]},
        {"counters": {}, "keyed": [{"counter": "a", "id": None}]},
        {"counters": {}, "keyed": [None]},
    ],
)
def test_what_we_would_never_write_is_unreadable(data: Any) -> None:
    with pytest.raises(UnreadableError, match=r"\w"):
        read(data)


def test_ours_without_an_id_is_unreadable() -> None:
    with pytest.raises(UnreadableError, match="ce-id"):
        read({"counters": {"a": 1}}, ce_id="")


def test_counts_say_how_many_increments_it_stands_for() -> None:
    keyed = (Increment("a", 1, "x"), Increment("b", 1, "y"))
    assert Envelope("e", {"a": 9, "b": 1, "c": 0}, {"a": 7, "c": 0}, keyed).increments == 7 + 1 + 0 + 2
    assert Envelope("e", {}).increments == 0


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
