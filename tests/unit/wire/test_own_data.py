"""Our own messages are read by schema, in all their forms; others are left."""

import pytest

from shared.model.envelope import Envelope
from shared.model.words import MAX_SUM, Increment
from shared.wire.codec import encode, own_data


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
def test_what_we_write_is_read(envelope: Envelope) -> None:
    found = own_data(encode(envelope).data)
    assert found is not None
    assert found.content[:3] == (envelope.sums, envelope.counts, envelope.keyed)
    assert (found.created, found.retried) == (5, envelope.retried)


@pytest.mark.parametrize(
    "text",
    [
        b'{"counters":{"a":1,"a":2},"created":5}',
        b'{"counters":{"a":1},"counters":{"b":1},"created":5}',
        b'{"counters":{"a":1},"created":5,"counts":{"a":2,"a":3}}',
        b'{"counters":{},"created":5,"keyed":[{"id":"x","counter":"a","delta":1,"delta":2}]}',
        b'{"counters":{},"created":5,"keyed":[{"id":"x","counter":".","delta":1}]}',
        b'{"counters":{"..":1},"created":5}',
        b'{"counters":{"__a__":1},"created":5}',
        b'{"counters":{"a":true},"created":5}',
        b'{"counters":{"a":1},"created":5,"retried":null}',
        b'{"counters":{"a":1},"created":5,"later":1}',
        '{"counters":{"é":1},"created":5}'.encode(),
        b'{"counters":{"a":1}}',
        b"[]",
        b"",
    ],
)
def test_others_are_left(text: bytes) -> None:
    assert own_data(text) is None
