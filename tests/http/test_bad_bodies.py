"""Bodies that are wrong: each is refused with what is wrong, and nothing of it counts."""

import gzip
import json
from typing import Final

import pytest

from tests.http.service import Service

DEEP: Final = 100_000
NOT_JSON: Final = {
    "truncated": b'{"delta": 1',
    "truncated in a string": b'{"delta',
    "only a brace": b"{",
    "two documents": b'{"delta": 1}{"delta": 1}',
    "trailing comma": b'{"delta": 1,}',
    "single quotes": b"{'delta': 1}",
    "a comment": b'{"delta": 1} // one',
    "NaN": b'{"delta": NaN}',
    "Infinity": b'{"delta": Infinity}',
    "-Infinity": b'{"delta": -Infinity}',
    "an infinite number": b'{"delta": 1e400}',
    "a leading zero": b'{"delta": 01}',
    "a plus": b'{"delta": +1}',
    "hexadecimal": b'{"delta": 0x1}',
    "deep arrays": b"[" * DEEP,
    "deep arrays, closed": b"[" * DEEP + b"]" * DEEP,
    "deep objects": b'{"delta":' * DEEP,
    "deep objects, closed": b'{"delta":' * DEEP + b"1" + b"}" * DEEP,
    "a deep delta": b'{"delta": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "UTF-16": '{"delta": 1}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"delta": 1}',
    "bad UTF-8": b'{"id": "\xff"}',
    "overlong UTF-8": b'{"id": "\xc0\xaf"}',
    "a raw lone surrogate": b'{"id": "\xed\xa0\x80"}',
    "an escaped lone surrogate": b'{"id": "\\ud800"}',
    "the wrong half first": b'{"id": "\\udc00\\ud800"}',
    "a raw control": b'{"id": "a\x00"}',
    "a bad escape": b'{"id": "\\x41"}',
    "a name twice": b'{"delta": 1, "delta": 1}',
    "a name twice, escaped": b'{"delta": 1, "\\u0064elta": 2}',
    "an unknown name twice": b'{"x": 1, "x": 1}',
    "an id twice": b'{"id": "a", "delta": 1, "id": "b"}',
    "vertical tab": b"\x0b",
    "nothing but a NUL": b"\x00",
    "a long number": b"9" * 100_000,
}


@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON)
async def test_a_body_that_is_not_json_is_400(unharmed: Service, body: bytes) -> None:
    assert (await unharmed.incr("there", body)).status == 400
    assert (await unharmed.post("/v1/increments", body)).status == 400
    assert (await unharmed.post("/v1/increments", body, Idempotency_Key="k")).status == 400
    assert (await unharmed.ask("PUT", "/v1/counters/there/shards", body)).status == 400


@pytest.mark.parametrize("body", [b"1", b"null", b"true", b'"x"', b"[]", b'[{"delta": 1}]'])
async def test_a_single_body_that_is_no_object_is_400(unharmed: Service, body: bytes) -> None:
    assert (await unharmed.incr("there", body)).status == 400


@pytest.mark.parametrize(
    "delta",
    [
        "1.0", "0.5", "1e3", "1E0", "-0.0", "true", "false", "null", '"1"', "[1]", "{}", "9007199254740992",
        "-9007199254740992", "9223372036854775807", "9223372036854775808", "-9223372036854775809",
        "18446744073709551615", "18446744073709551616", "9" * 300,
    ],
)  # fmt: skip
async def test_a_delta_that_is_no_integer_within_53_bits_is_422(unharmed: Service, delta: str) -> None:
    answer = await unharmed.incr("there", f'{{"delta": {delta}}}'.encode())
    assert (answer.status, answer.field) == (422, "delta")
    for body in (f'[{{"counter": "there", "delta": {delta}}}]', f'{{"counters": {{"there": {delta}}}}}'):
        answer = await unharmed.post("/v1/increments", body.encode())
        assert answer.status == 400
        assert "delta" in answer.json["detail"]


@pytest.mark.parametrize("id_", ["", "x" * 1001, "é" * 501, 1, True, [], {}, 1.5])
async def test_an_id_that_is_no_text_of_1_to_1000_bytes_is_422(unharmed: Service, id_: object) -> None:
    answer = await unharmed.incr("there", json.dumps({"id": id_}).encode())
    assert (answer.status, answer.field) == (422, "id")
    answer = await unharmed.post("/v1/increments", json.dumps([{"counter": "there", "id": id_}]).encode())
    assert answer.status == 400
    assert "'id'" in answer.json["detail"]


@pytest.mark.parametrize("field", ["by", "Delta", "", "counter", "x" * 5000, "delta\x00", "é"])
async def test_an_unknown_field_is_422_and_named(unharmed: Service, field: str) -> None:
    answer = await unharmed.incr("there", json.dumps({"delta": 1, field: 1}).encode())
    assert (answer.status, answer.field) == (422, field)
    assert len(answer.json["detail"]) < 1000


async def test_the_delta_in_body_and_query_is_422(unharmed: Service) -> None:
    answer = await unharmed.incr("there", b'{"delta": 1}', "?by=1")
    assert (answer.status, answer.field) == (422, "by")


NO_INCREMENT: Final = [b"", b" \n", b"[]", b"[ ]", b'{"counters": {}}', b"\n\n"]


@pytest.mark.parametrize("body", NO_INCREMENT)
async def test_a_batch_of_nothing_is_400(unharmed: Service, body: bytes) -> None:
    assert (await unharmed.post("/v1/increments", body)).status == 400


@pytest.mark.parametrize("body", [b"{}", b"[1]", b"[[]]", b'[{"counter": ""}, 1]', b'{"counter": ""}\n1', b'"a"\n"b"'])
async def test_a_batch_in_which_nothing_is_good_is_400_and_says_why(unharmed: Service, body: bytes) -> None:
    answer = await unharmed.post("/v1/increments", body)
    assert answer.status == 400
    assert "item 0" in answer.json["detail"]


async def test_a_map_in_which_nothing_is_good_is_400_and_names_the_counter(unharmed: Service) -> None:
    answer = await unharmed.post("/v1/increments", b'{"counters": {"there": 1.5}}')
    assert answer.status == 400
    assert "'there'" in answer.json["detail"]


TWICE: Final = [
    b'{"counters": {"there": 1, "there": 1}}',
    b'{"counters": {"there": 1, "ther\\u0065": 2}}',
    b'{"counters": {"a": 1, "there": 1, "b": 2, "there": 2, "c:d": 3}}',
    b'{"counters": {"a": 1},\n "counters": {"there": 2}}',
    b'{"counters":\n{"there": 1,\n"there": 1}\n}',
    b'[{"counter": "there", "counter": "there"}]',
    b'[{"counter": "there"}, {"counter": "there", "delta": 1, "delta": 2}]',
    b'[{"counter": "there"},\n{"counter": "there", "delta": 1, "d\\u0065lta": 2}]',
    b'[{"counter": "a:b", "id": "x", "id": "y"}]',
    b'{"counter": "there", "counter": "other"}',
]


@pytest.mark.parametrize("body", TWICE)
async def test_a_name_twice_in_an_object_is_400_and_named(unharmed: Service, body: bytes) -> None:
    answer = await unharmed.post("/v1/increments", body)
    assert answer.status == 400
    assert "twice" in answer.json["detail"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"counters": []}', "counters"),
        (b'{"counters": null}', "counters"),
        (b'{"counters": {"a": 1}, "id": "x"}', "id"),
        (b'{"x": 1, "counters": {"a": 1}}', "x"),
    ],
)
async def test_a_map_of_another_form_is_422_and_the_field_named(unharmed: Service, body: bytes, field: str) -> None:
    answer = await unharmed.post("/v1/increments", body)
    assert (answer.status, answer.field) == (422, field)


async def test_a_string_that_never_ends_takes_no_longer_than_others(unharmed: Service) -> None:
    """As a quadratic search it would be an hour."""
    body = b"[" * 100_003 + b'"' + b'\\"' * 2_000_000
    assert (await unharmed.post("/v1/increments", body)).status == 413


@pytest.mark.parametrize(
    "what", ["array", "lines", "broken lines", "between quotes", "map", "objects in objects", "arrays in one"]
)
async def test_more_than_100000_increments_are_413(unharmed: Service, what: str) -> None:
    many = 100_001
    body = {
        "array": b"[" + b",".join([b'{"counter":"a"}'] * many) + b"]",
        "lines": b"\n".join([b'{"counter":"a"}'] * many),
        "broken lines": b"{\n" * many,
        "between quotes": b'"\n' + b"[]," * many * 2 + b'\n"',
        "objects in objects": b'[{"counter":"a","x":[' + b'{"a":{}},' * many + b"1]}]",
        "arrays in one": b"[" + b"[]," * many + b"[]]",
        "map": b'{"counters":{' + b",".join(b'"%d":1' % number for number in range(many)) + b"}}",
    }[what]
    assert (await unharmed.post("/v1/increments", body)).status == 413


async def test_braces_in_names_are_no_objects(service: Service) -> None:
    name = '{["[{' * 60
    body = json.dumps({"counters": {f"{name}{number}": 1 for number in range(700)}}).encode()
    assert body.count(b"{") + body.count(b"[") > 100_002
    answer = await service.post("/v1/increments", body)
    assert (answer.status, answer.json["accepted"]) == (202, 700)


async def test_a_body_about_one_counter_has_a_limit_of_its_own(unharmed: Service) -> None:
    for size, status in ((1_048_576, 400), (1_048_577, 413)):
        body = b"[" + b" " * (size - 2) + b"]"
        assert (await unharmed.incr("there", body)).status == status
        assert (await unharmed.incr("there", gzip.compress(body), Content_Encoding="gzip")).status == status
        assert (await unharmed.ask("PUT", "/v1/counters/there/shards", body)).status == status
    assert (await unharmed.post("/v1/increments", b"[" + b" " * 1_048_577 + b"]")).status == 400
