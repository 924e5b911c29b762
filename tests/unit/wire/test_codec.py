"""Messages of ours, and of other publishers, are decoded into envelopes."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flusher.flush.window import MOST_IN_COMMIT
from shared.model.buckets import BrokerMillis
from shared.model.errors import UnreadableError
from shared.model.receipts import Tally, notes_of_commit, read_note
from shared.model.words import MAX_DELTA, MAX_ID_BYTES, MAX_SUM, Delivery, Envelope, Increment, Message
from shared.wire.codec import LAST_DATE, MOST_INCREMENTS, TYPE, decode, encode, own_data
from tests.unit.strategies import envelopes


def read(data: Any = b"", message_id: str = "7", published: Any = 5, topic: str = "t", **attributes: str) -> Envelope:
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    named = {name.replace("ce_", "ce-"): value for name, value in attributes.items()}
    (envelope,) = decode(Delivery("token", Message(text, named), message_id, BrokerMillis(published)), topic)
    return envelope


def of_ours(data: Any, **attributes: str) -> Envelope:
    return read({"counters": {"a": 1, "b": 1}} | data, **{"ce_type": TYPE, "ce_id": "e", **attributes})


@given(envelopes())
def test_what_is_encoded_is_decoded(envelope: Envelope) -> None:
    message = encode(envelope)
    assert decode(Delivery("token", message, "1", BrokerMillis(5)), "t") == (envelope,)
    assert message.once == (envelope.id if envelope.retried else None)
    assert all(isinstance(value, str) for value in message.attributes.values())


@pytest.mark.parametrize("traceparent", ["", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"])
def test_the_span_of_an_envelope_is_an_attribute_and_nothing_else(traceparent: str) -> None:
    plain, traced = (encode(Envelope("e", {"a": 1}, created=7, traceparent=one)) for one in ("", traceparent))
    assert "ce-traceparent" not in plain.attributes
    assert traced.data == plain.data
    assert traced.attributes == {**plain.attributes, **({"ce-traceparent": traceparent} if traceparent else {})}
    one, other = (read(message.data, **message.attributes) for message in (plain, traced))
    assert (other.traceparent, other.as_second_use().traceparent) == (traceparent, traceparent)
    assert other.key == one.key


def test_each_envelope_of_a_large_foreign_message_has_its_span() -> None:
    data = json.dumps({"counters": {f"n{number}": 1 for number in range(2_500)}}).encode()
    message = Message(data, {"ce-traceparent": "of-theirs"})
    found = decode(Delivery("token", message, "1", BrokerMillis(5)), "t")
    assert [one.traceparent for one in found] == ["of-theirs"] * 3


@pytest.mark.parametrize(
    ("data", "sums", "keyed"),
    [
        ({"counter": "x"}, {"x": 1}, ()),
        ({"counter": "x", "delta": -2}, {"x": -2}, ()),
        ({"counter": "x", "id": "i"}, {}, (Increment("x", 1, "i"),)),
        ({"counters": {"x": 1, "y": 2}}, {"x": 1, "y": 2}, ()),
        ({"counters": {"x": 1}, "keyed": [{"counter": "y", "id": "i"}]}, {"x": 1}, (Increment("y", 1, "i"),)),
        ({"keyed": [{"counter": "y", "delta": 3, "id": "i"}]}, {}, (Increment("y", 3, "i"),)),
        ({"counter": "x", "more": [1]}, {"x": 1}, ()),
    ],
)
def test_others_may_publish_plainly(data: Any, sums: dict[str, int], keyed: tuple[Increment, ...]) -> None:
    envelope = read(data)
    assert (dict(envelope.sums), envelope.keyed) == (sums, keyed)
    assert envelope.created == 5


def test_an_empty_body_has_attributes() -> None:
    assert read(b"", counter="x").sums == {"x": 1}
    assert read(b" ", counter="x", delta="-4").sums == {"x": -4}


def test_the_publishers_own_id_holds_for_a_retry() -> None:
    """And nothing that somebody else could call the same."""
    one = read({"counter": "x"}, ce_source="s", ce_id="1", message_id="7")
    again = read({"counter": "x"}, ce_source="s", ce_id="1", message_id="8", published=BrokerMillis(9))
    assert one.id == again.id
    assert one.retried
    others = [
        read({"counter": "x"}, ce_source="s", ce_id="11"),
        read({"counter": "x"}, ce_source="s1", ce_id="1"),
        read({"counter": "x"}, ce_source="s1", ce_id=""),
        read({"counter": "x"}, ce_id="1", message_id="1"),
    ]
    assert len({envelope.id for envelope in [one, *others]}) == 5


def test_without_one_it_is_the_topic_the_message_and_its_time() -> None:
    same = [read({"counter": "x"}), read({"counter": "x"})]
    others = [
        read({"counter": "x"}, message_id="8"),
        read({"counter": "x"}, published=BrokerMillis(6)),
        read({"counter": "x"}, topic="u"),
    ]
    assert same[0].id == same[1].id
    assert not same[0].retried
    assert len({envelope.id for envelope in [same[0], *others]}) == 4


def test_others_can_not_say_what_only_we_know() -> None:
    envelope = read({"counters": {"x": 1}, "created": 99, "counts": {"x": 50}, "retried": True})
    assert (envelope.created, envelope.counts, envelope.retried) == (5, {}, False)


@pytest.mark.parametrize(
    "data",
    [
        b"rubbish", b"[]", b"1", b'{"counters":{"a":1,"a":2}}', {}, {"delta": 1}, {"counter": ""},
        {"counter": "__x__"}, {"counter": "x", "delta": 1.5}, {"counter": "x", "delta": True},
        {"counter": "x", "delta": MAX_DELTA + 1}, {"counter": "x", "id": ""},
        {"counter": "x", "counters": {}},
        {"counters": []},
        {"counters": {"x": "1"}},
        {"counters": {"x": MAX_DELTA + 1}},
        {"counters": {}, "keyed": {}},
        {"keyed": [{"counter": "x"}]},
        {"keyed": ["x"]},
    ],
)  # fmt: skip
def test_what_can_not_be_read_says_why(data: Any) -> None:
    with pytest.raises(UnreadableError, match=r"\w"):
        read(data)


@pytest.mark.parametrize(
    ("data", "attributes"),
    [
        ({"counters": {"a": MAX_SUM + 1}}, {}), ({"counters": {"a": 2**63}}, {}),
        ({"counters": {"a": 2**64}}, {}), ({"counters": {"a": 1.0}}, {}), ({"counters": {"a": True}}, {}),
        ({"counts": {"a": 2**64 - 1, "b": 2**64 - 1}}, {}), ({"counts": {"a": MOST_INCREMENTS + 1}}, {}),
        ({"counts": {"a": MOST_INCREMENTS, "b": 1}}, {}), ({"counts": {"a": 2**70}}, {}),
        ({"counts": {"a": -1}}, {}), ({"counts": {"a": 1.5}}, {}), ({"counts": {"a": True}}, {}),
        ({"counts": {"c": 1}}, {}), ({"counts": []}, {}), ({"created": 2**64 - 1}, {}),
        ({"created": LAST_DATE + 1}, {}), ({"created": 1e400}, {}), ({"created": -1}, {}),
        ({"created": "now"}, {}), ({"created": None}, {}),
        ({"keyed": [{"counter": "a", "id": "i", "delta": MAX_DELTA + 1}]}, {}),
        ({"keyed": [{"counter": "a", "id": "i" * (MAX_ID_BYTES + 1)}]}, {}),
        ({"keyed": [{"counter": "a", "id": None}]}, {}), ({"keyed": [None]}, {}), ({}, {"ce_id": ""}),
        ({}, {"ce_id": "x" * (MAX_ID_BYTES + 1)}), ({}, {"ce_attempt": "x" * (MAX_ID_BYTES + 1)}),
    ],
)  # fmt: skip
def test_what_pretends_to_be_ours_and_we_would_never_write_can_not_be_read(
    data: Any, attributes: dict[str, str]
) -> None:
    """Anybody who may publish can say that a message is ours."""
    with pytest.raises(UnreadableError, match=r"\w"):
        of_ours(data, **attributes)


def test_sums_of_ours_may_be_larger_than_one_delta_and_what_is_not_said_has_a_default() -> None:
    envelope = of_ours({"counters": {"a": MAX_SUM, "b": -MAX_SUM}})
    assert envelope.sums == {"a": MAX_SUM, "b": -MAX_SUM}
    assert (envelope.created, envelope.counts, envelope.keyed, envelope.retried) == (5, {}, (), False)


def test_the_id_of_ours_is_what_the_attribute_says_whatever_the_broker_calls_it() -> None:
    attributes = {"ce_type": TYPE, "ce_id": "e"}
    again = [read({"counters": {"a": 1}}, number, int(number), f"t{number}", **attributes) for number in "123"]
    assert {one.id for one in again} == {"e"}


def test_counts_say_how_many_increments_it_stands_for() -> None:
    keyed = (Increment("a", 1, "x"), Increment("b", 1, "y"))
    assert Envelope("e", {"a": 9, "b": 1, "c": 0}, {"a": 7, "c": 0}, keyed).increments == 7 + 1 + 0 + 2
    assert Envelope("e", {}).increments == 0


def test_the_largest_messages_of_a_commit_fit_into_its_note() -> None:
    ids = "i" * MAX_ID_BYTES
    largest = of_ours({"counts": {"a": MOST_INCREMENTS - 1, "b": 1}, "created": LAST_DATE}, ce_id=ids, ce_attempt=ids)
    assert datetime.fromtimestamp(largest.created / 1000, UTC).year == 9999
    tally = Tally(*[largest.increments * MOST_IN_COMMIT] * 4)
    (note,) = notes_of_commit([ids], "c", tally, {"a": 1})
    assert read_note(note).tally == tally


@pytest.mark.parametrize("attributes", [{}, {"delta": "1"}, {"counter": "x", "delta": "one"}, {"counter": ""}])
def test_attributes_that_can_not_be_read_say_why(attributes: dict[str, str]) -> None:
    with pytest.raises(UnreadableError, match=r"\w"):
        read(**attributes)


@given(
    st.binary(max_size=60)
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["counter", "counters", "keyed", "delta", "id", "created", "counts"]), inner
            )
        ),
    ).map(lambda value: json.dumps(value).encode()),
    st.dictionaries(
        st.sampled_from(["ce-id", "ce-type", "ce-source", "counter", "delta"]), st.text(max_size=4) | st.just(TYPE)
    ),
)
def test_rubbish_is_unreadable_and_nothing_else_happens(data: bytes, attributes: dict[str, str]) -> None:
    try:
        decode(Delivery("token", Message(data, attributes), "1", BrokerMillis(5)), "t")
    except UnreadableError:
        return


@pytest.mark.parametrize(
    "envelope",
    [
        Envelope("e", {"a": 1, "b": -MAX_SUM}, created=5),
        Envelope("e", {"a": 3}, {"a": 2}, created=5),
        Envelope("e", {}, {}, (Increment("a", -2, "x"), Increment("b", 1, "y")), created=5),
        Envelope("e", {"a": 3}, {"a": 2}, (Increment("a", 1, "x"),), created=5, retried=True, attempt="t"),
        Envelope("e", {}, created=5),
    ],
)
def test_what_we_write_is_read_by_schema(envelope: Envelope) -> None:
    found = own_data(encode(envelope).data)
    assert found is not None
    assert found.content[:3] == (envelope.sums, envelope.counts, envelope.keyed)
    assert (found.created, found.retried) == (5, envelope.retried)


@pytest.mark.parametrize(
    "text",
    [
        b'{"counters":{"a":1,"a":2},"created":5}', b'{"counters":{"a":1},"counters":{"b":1},"created":5}',
        b'{"counters":{"a":1},"created":5,"counts":{"a":2,"a":3}}',
        b'{"counters":{},"created":5,"keyed":[{"id":"x","counter":"a","delta":1,"delta":2}]}',
        b'{"counters":{},"created":5,"keyed":[{"id":"x","counter":".","delta":1}]}',
        b'{"counters":{"..":1},"created":5}', b'{"counters":{"__a__":1},"created":5}',
        b'{"counters":{"a":true},"created":5}', b'{"counters":{"a":1},"created":5,"retried":null}',
        b'{"counters":{"a":1},"created":5,"later":1}',
        '{"counters":{"é":1},"created":5}'.encode(),
        b'{"counters":{"a":1}}', b"[]", b"",
    ],
)  # fmt: skip
def test_others_are_not_read_by_schema(text: bytes) -> None:
    assert own_data(text) is None
