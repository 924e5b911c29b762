"""Which batches are read by schema, and that the others are left alone."""

import json

import pytest

from ingest.accept.drafts import Batch
from ingest.parsing import parse
from shared.model.words import MAX_DELTA, MAX_SUM, Increment

MANY = MAX_SUM // MAX_DELTA + 2


def read(*items: dict[str, object], most: int = 1_000) -> Batch | None:
    return parse.plain_batch(json.dumps(items).encode(), most)


@pytest.mark.parametrize(
    ("body", "batch"),
    [
        (b'[{"counter":"a"},{"counter":"b"},{"counter":"a"}]', Batch({"a": 2, "b": 1}, {"a": 2}, [], 3)),
        (b'[{"counter":"a","delta":2},{"delta":-3,"counter":"a"}]', Batch({"a": -1}, {"a": 2}, [], 2)),
        (b'[{"counter":"a","id":"x"}]', Batch(keyed=[Increment("a", 1, "x")], increments=1)),
        (b'[{"id":"x","counter":"a","delta":5}]', Batch(keyed=[Increment("a", 5, "x")], increments=1)),
        (b'{"counter":"a"}\n{"counter":"b"}', Batch({"a": 1, "b": 1}, {}, [], 2)),
        (b'{"counter":"a","delta":7}', Batch({"a": 7}, {}, [], 1)),
        (b'[{"counter":"a"} ,{"counter":"b"} ]', Batch({"a": 1, "b": 1}, {}, [], 2)),
        (b'[{"counter":"a"},{"counter":"a"}]', Batch({"a": 2}, {"a": 2}, [], 2)),
        (b'[{"counter":"a"}, {"counter":"a"},{"counter":"a"}]', Batch({"a": 3}, {"a": 3}, [], 3)),
        (b'{"counter":"a"}\n{"counter":"a"}\n {"counter":"a"}', Batch({"a": 3}, {"a": 3}, [], 3)),
        (b'{"counters":{"a":7,"b":0}}', Batch({"a": 7, "b": 0}, {}, [], 2)),
    ],
)
def test_common_forms_are_read(body: bytes, batch: Batch) -> None:
    assert parse.plain_batch(body, 1_000) == batch


@pytest.mark.parametrize(
    "body",
    [
        b'[{"counter":"a","delta":1},{"counter":"b"}]',  # items with other fields
        b'[{"counter":"a","delta":1,"delta":2},{"counter":"b","delta":1}]',
        b'{"counters":{"a":1,"a":2}}',
        b'{"counters":{"a":1},"counters":{"b":1}}',
        b'{"counter":"a"} {"counter":"b"}',
        b'{"counter":"a"} {"counter":"a"}\n{"counter":"a"} {"counter":"a"}',
        b'[{"counter":"a"},{"counter":"a"},,{"counter":"a"}]',
        b'[{"counter":"},"},{"counter":"},"},{"counter":"},"}]',
        b'[{"counter":"a"},{"counter":"a"}{"counter":"a"}]',
        b'[{"counter":"a","counter":"a"},{"counter":"a","counter":"a"}]',
        b'{"counter":"a"}{"counter":\n"b"}',
        b'[{"counter":"a\\u0062"}]',
        '[{"counter":"é"}]'.encode(),
        b'[{"counter":"__a__"}]',
        b'[{"counter":"."}]',
        b'[{"counter":".","id":"x"}]',
        b'[{"counter":""}]',
        b'[{"counter":"a","delta":1.0}]',
        b'[{"counter":"a","delta":9007199254740992}]',
        b'[{"counter":"a","id":""}]',
        b"[]",
        b'{"counters":{}}',
        b"",
    ],
)
def test_others_are_left(body: bytes) -> None:
    assert parse.plain_batch(body, 1_000) is None


def test_more_items_than_allowed_are_left() -> None:
    items: list[dict[str, object]] = [{"counter": "a"}] * 3
    assert read(*items, most=3) is not None
    assert read(*items, most=2) is None


@pytest.mark.parametrize("last", [1, MAX_DELTA])
def test_a_sum_beyond_the_limit_is_left(last: int) -> None:
    big: dict[str, object] = {"counter": "a", "delta": MAX_DELTA}
    assert read(*[big] * 10, big | {"delta": last}) is not None
    assert read(*[big] * MANY, big | {"delta": last}) is None
