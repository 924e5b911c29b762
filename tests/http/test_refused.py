"""What is wrong with a request is refused and named, whatever it asks for, and nothing of it counts or happens."""

import base64
import gzip
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import orjson
import pytest

from ingest.api.counters import MOST_LISTED, MOST_NAMED
from ingest.api.dead_letters import MOST_CHOSEN, MOST_LETTERS
from ingest.api.watch import MOST_IN_STREAM
from ingest.http.bodies import MOST_OF_ONE
from ingest.parsing.parse import MOST_IN_BATCH
from shared.config.lists import rules_of
from shared.config.settings import Settings
from shared.model.words import MAX_ID_BYTES, MAX_NAME_BYTES
from tests.http import contract
from tests.http.service import Service, running, url_name

RULES: Final = rules_of("there=minute/2d,hour/90d;there-old=day/1y;p:=minute/90d,hour/90d;p:old=day/2y")


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running(tmp_path, windows=RULES, badges=("there",)) as it:
        yield it
        assert not await it.parts.tasks.pull(1, 0)
        assert not it.ingest.watches.places.held


NO_NAMES: Final = (
    *("", ".", "..", "____", "__x__", "__é\n__", "x" * (MAX_NAME_BYTES + 1), "é" * 200 + "x", "\U0001f600" * 101),
    *("a\x00", "\n", "a\x1fb", "\x7f", "\x80", "a\x85b", "\x9f"),
)


async def test_a_bad_name_is_422_wherever_it_stands(unharmed: Service) -> None:
    for name in NO_NAMES:
        path = f"/v1/counters/{url_name(name).replace('.', '%2E')}"
        for method, target in (
            *((method, path) for method in ("GET", "POST", "PUT", "DELETE")),
            *(("PUT", f"{path}/shards"), ("POST", f"{path}/reset"), ("GET", f"{path}/watch")),
            *(("GET", f"/v1/{all_}?name=there&name={url_name(name)}") for all_ in ("counters", "watch")),
        ):
            answer = await unharmed.ask(method, target, None if method == "GET" else b"")
            assert (answer.status, answer.field) == (422, "name"), target


async def test_dots_are_names_and_no_way_up(unharmed: Service) -> None:
    for name in (".", ".."):
        head = f"POST /v1/counters/{name} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
        assert (await unharmed.raw(head.encode())).status == 422


async def test_bad_escapes_and_bad_utf8_are_400_wherever_they_stand(unharmed: Service) -> None:
    for escape in ("%", "%4", "%zz", "%u0041", "a%", "%FF", "%C3", "%C0%AF", "%ED%A0%80", "%80abc"):
        path = f"/v1/counters/{escape}"
        for method, target in (
            *(("GET", path), ("POST", path), ("PUT", f"{path}/shards"), ("DELETE", path), ("POST", f"{path}/reset")),
            *(("GET", f"/v1/counters?{name}={escape}") for name in ("name", "prefix", "page_token")),
            *(("GET", f"/v1/receipts/{escape}"), ("POST", f"/v1/increments?{escape}")),
            *(("POST", f"/v1/counters/there?by={escape}"), ("POST", f"/v1/counters/there?{escape}=1")),
        ):
            assert (await unharmed.ask(method, target, None if method == "GET" else b"{}")).status == 400, target
    for raw in (b"/v1/counters/\xff", b"/v1/counters?prefix=\xff", b"/v1/receipts/\xed\xa0\x80"):
        assert (await unharmed.raw(b"GET " + raw + b" HTTP/1.1\r\nHost: h\r\n\r\n")).status == 400, raw


NO_NUMBERS: Final = (
    *("1.0", "1e3", "true", "NaN", "+1", "0x1", "1_0", "--1", "%D9%A1", "%C2%B2", "9007199254740992", "9" * 5_000),
)
NEW_YEAR: Final = "2026-01-01T00:00:00"
MUCH: Final = "from=2026-01-02T00:00:00Z&to=9999-12-31T23:59:59Z"
"""More periods of a minute than an answer may have."""
BAD_QUERIES: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "POST /v1/counters/there": {
        "by": ("by=", "by", *(f"by={it}" for it in NO_NUMBERS), "by=1&by=1"),
        **{it: (f"{it}=1",) for it in ("delta", "id", "By", "", "max_age")},
        "wait": ("wait", "wait=durable"),
        "ack": ("ack=all", "ack=none&wait=applied"),
        "timeout": tuple(f"wait=applied&timeout={it}" for it in ("-1", "nan", "inf", "5s", "1_0", "", "%D9%A1")),
    },
    "POST /v1/increments": {"by": ("by=1",), "wait": ("wait=x",)},
    "PUT /v1/counters/there/shards": {"shards": ("shards=3",)},
    "PUT /v1/counters/there": {"value": ("value=3",), "wait": ("wait=applied",)},
    "DELETE /v1/counters/there": {"wait": ("wait=applied",)},
    "POST /v1/counters/there/reset": {"x": ("x=1",)},
    "GET /v1/counters/there": {"max_age": ("max_age=-1", "max_age=x", "max_age=1&max_age=2"), "x": ("x=1",)},
    "GET /v1/counters": {
        "limit": (
            *(f"limit={it}" for it in ("0", "-1", MOST_LISTED + 1, "1.5", "%C2%B2", "0" * 7 + f"{10 * MOST_LISTED}")),
            *(f"limit=000000100{'9' * 5_000}", "name=a&limit=1", f"order=value&limit={MOST_LISTED + 1}"),
        ),
        "name": ("&".join(f"name=n{number}" for number in range(MOST_NAMED + 1)),),
        "page_token": (*(f"page_token={it}" for it in ("x", "_w==", "%C3%A9")), "order=value&page_token=YQ=="),
        "prefix": ("name=a&prefix=a", "name=a&prefix="), "max_age": ("max_age=x",), "x": ("x=1",),
        "order": ("order=value&name=a", "order=size"),
        "contains": ("contains=a&name=b", "contains=a&order=value", f"contains={'x' * (MAX_NAME_BYTES + 1)}"),
        "unused_for": (
            *(f"unused_for={it}" for it in ("1", "-1d", "1d&unused_for=2d")),
            *("order=value&unused_for=1d", "name=a&unused_for=1d"),
        ),
    },
    "GET /v1/counters/there/series": {
        "by": ("", "by=week", "by=hour&by=day"),
        "from": (
            *(f"by=hour&from={it}" for it in ("yesterday", NEW_YEAR, "2026-13-01T00:00:00Z", f"{NEW_YEAR}+01:00")),
            *("by=hour&from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", f"by=minute&{MUCH}"),
        ),
        "to": ("by=hour&to=2026-01-01",), "more": ("by=hour&more=1",),
    },
    "GET /v1/counters/there/badge.svg": {
        "color": ("color=f", "color=", "color=%22/%3E"),
        "style": ("style=3d",), "label": ("label=", "label=%0A"), "x": ("x=1",),
    },
    "GET /v1/counters/there/watch": {"x": ("x=1",)},
    "GET /v1/watch": {
        "name": ("", "&".join(f"name=n{number}" for number in range(MOST_IN_STREAM + 1))),
        "prefix": ("name=a&prefix=b", f"prefix={'p' * (MAX_NAME_BYTES + 1)}", "prefix=a&prefix=b"),
        "max_age": ("name=a&max_age=1",),
    },
    "GET /v1/dead-letters": {
        "limit": ("limit=0", f"limit={MOST_LETTERS + 1}", "limit=x"),
        "page_token": ("page_token=x",), "more": ("more=1",),
    },
    "GET /v1/receipts/x": {"x": ("x=1",)},
    **{f"GET /v1/receipts/{it}": {"receipt": ("",)} for it in ("", "%2E", "a..b", "a.", "%C3%A9", "x" * 1_001)},
}  # fmt: skip
"""By the parameter that the answer names."""


async def test_a_bad_parameter_is_422_and_named(unharmed: Service) -> None:
    bodies = {"PUT /v1/counters/there/shards": b'{"shards": 3}', "PUT /v1/counters/there": b'{"value": 3}'}
    bodies["POST /v1/increments"] = b'[{"counter": "there"}]'
    for asked, fields in BAD_QUERIES.items():
        method, target = asked.split(" ")
        for field, query in ((field, query) for field, queries in fields.items() for query in queries):
            answer = await unharmed.ask(method, f"{target}?{query}" if query else target, bodies.get(asked))
            assert (answer.status, answer.field) == (422, field), f"{asked}?{query}"
    assert (await unharmed.get("/v1/dead-letters?page_token=YQ==")).status == 422


async def test_a_prefix_or_a_token_that_no_name_can_have_is_422(unharmed: Service) -> None:
    """Stores need not take such a key."""
    for prefix in ("x" * (MAX_NAME_BYTES + 1), "\N{SNOWMAN}" * 134, "x" * 4_000):
        answer = await unharmed.get(f"/v1/counters?prefix={url_name(prefix)}")
        assert (answer.status, answer.field) == (422, "prefix")
        token = base64.urlsafe_b64encode(prefix.encode()).decode()
        for target in ("/v1/counters", "/v1/jobs/j/export"):
            answer = await unharmed.get(f"{target}?page_token={url_name(token)}")
            assert (answer.status, answer.field) == (422, "page_token")


async def test_an_unknown_path_is_404(unharmed: Service) -> None:
    for path in (
        *("/nothing", "/v1", "/v1/", "/v1/counter/there", "/V1/counters/there", "//v1/counters/there", "/healthz/"),
        *("/v1//counters/there", "/v1/increments/", "/v1/counters/there/", "/v1/counters/there/nothing", "/openapi"),
        *("/v1/counters/there/shards/", "/v1/counters/there/reset/", "/v1/counters/a/b", "/v1/counters/there/export"),
        *("/v1/jobs/a/", "/v1/jobs/a/shards", "/v1/jobs/a/reset", "/v1/jobs/a/b/c", "/v1/jobs/a/%2Fexport"),
    ):
        for method in ("GET", "POST"):
            assert (await unharmed.ask(method, path)).status == 404, path


async def test_another_method_is_405_and_allow_says_which(unharmed: Service) -> None:
    for path, item in contract.DOCUMENT["paths"].items():
        known = {name.upper() for name in contract.METHODS if name in item}
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"} - known:
            answer = await unharmed.ask(method, path.replace("{name}", "there").replace("{id}", "x"))
            assert answer.status == 405, (method, path)
            allowed = set(answer.headers["Allow"].split(", "))
            assert allowed == known | ({"HEAD"} if "GET" in known else set()), path


DEEP: Final = MOST_IN_BATCH
NOT_JSON: Final = {
    "truncated": b'{"delta": 1', "truncated in a string": b'{"delta', "only a brace": b"{",
    "two documents": b'{"delta": 1}{"delta": 1}',
    "trailing comma": b'{"delta": 1,}',
    "single quotes": b"{'delta': 1}",
    "a comment": b'{"delta": 1} // one',
    **{it: b'{"delta": %b}' % it.encode() for it in ("NaN", "Infinity", "-Infinity", "1e400", "01", "+1", "0x1")},
    "deep arrays": b"[" * DEEP, "deep arrays, closed": b"[" * DEEP + b"]" * DEEP,
    "deep objects": b'{"delta":' * DEEP,
    "deep objects, closed": b'{"delta":' * DEEP + b"1" + b"}" * DEEP,
    "a deep delta": b'{"delta": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "UTF-16": '{"delta": 1}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"delta": 1}',
    "bad UTF-8": b'{"id": "\xff"}', "overlong UTF-8": b'{"id": "\xc0\xaf"}',
    "a raw lone surrogate": b'{"id": "\xed\xa0\x80"}',
    "an escaped lone surrogate": b'{"id": "\\ud800"}',
    "the wrong half first": b'{"id": "\\udc00\\ud800"}',
    "a raw control": b'{"id": "a\x00"}', "a bad escape": b'{"id": "\\x41"}',
    "a name twice": b'{"delta": 1, "delta": 1}',
    "a name twice, escaped": b'{"delta": 1, "\\u0064elta": 2}',
    "an unknown name twice": b'{"x": 1, "x": 1}',
    "an id twice": b'{"id": "a", "delta": 1, "id": "b"}',
    "vertical tab": b"\x0b", "nothing but a NUL": b"\x00", "a long number": b"9" * DEEP,
}  # fmt: skip


async def test_a_body_that_is_not_json_is_400(unharmed: Service) -> None:
    for what, body in NOT_JSON.items():
        assert (await unharmed.incr("there", body)).status == 400, what
        assert (await unharmed.post("/v1/increments", body)).status == 400, what
        assert (await unharmed.post("/v1/increments", body, Idempotency_Key="k")).status == 400, what
        assert (await unharmed.ask("PUT", "/v1/counters/there/shards", body)).status == 400, what


DELTAS: Final = (
    *("1.0", "0.5", "1e3", "1E0", "-0.0", "true", "false", "null", '"1"', "[1]", "{}", "9007199254740992"),
    *("-9007199254740992", "9223372036854775807", "9223372036854775808", "-9223372036854775809"),
    *("18446744073709551615", "18446744073709551616", "9" * 300),
)
"""They are no integers within 53 bits."""
IDS: Final = tuple(map(json.dumps, ("", "x" * (MAX_ID_BYTES + 1), "é" * 501, 1, True, [], {}, 1.5)))
"""They are no text of 1 to 1,000 bytes."""
UNKNOWN: Final = ("by", "Delta", "", "counter", "x" * 5_000, "delta\x00", "é")


def job(more: str) -> bytes:
    return b'{"kind": "add", "prefix": "", "delta": 1, %b}' % more.encode()


def export(**more: object) -> bytes:
    return orjson.dumps({"kind": "export", "prefix": "p:", "id": "j"} | more)


BAD_BODIES: Final[Mapping[str, Mapping[str | None, Sequence[bytes | str | None]]]] = {
    "POST /v1/counters/there": {
        None: (
            *("1", "null", "true", '"x"', "[]", '[{"delta": 1}]'),
            *("delta=1&delta=2", "delta=1&", "delta=1&id", "id=%zz", "id=%ff", "id=" + "x" * 10_000),
        ),
        "delta": (*(f'{{"delta": {it}}}' for it in DELTAS), *(f"delta={it}" for it in ("", "1.5", 2**53, "٣"))),
        "id": (*(f'{{"id": {it}}}' for it in IDS), "id=", "id=" + "x" * (MAX_ID_BYTES + 1)),
        **{it: (json.dumps({"delta": 1, it: 1}),) for it in UNKNOWN},
        "other": ("id=x&other=1",), "counter": ('{"delta": 1, "counter": 1}', "counter=a"),
    },
    "POST /v1/increments": {
        "counters": ('{"counters": []}', '{"counters": null}'),
        "id": ('{"counters": {"a": 1}, "id": "x"}',), "x": ('{"x": 1, "counters": {"a": 1}}',),
    },
    "PUT /v1/counters/there": {
        None: (None, "", "4", "{", '{"value": 4, "value": 5}'),
        "value": ("{}", *(f'{{"value": {it}}}' for it in ('"4"', "4.0", "true", "9007199254740992"))),
        "id": ('{"value": 4, "id": "x"}',),
    },
    "POST /v1/counters/there/reset": {None: ("1", "["), "by": ('{"by": 1}',)},
    "DELETE /v1/counters/there": {None: ("1", "["), "by": ('{"by": 1}',)},
    "PUT /v1/counters/there/shards": {
        None: (None, "", "4", "{", '{"shards": 4, "shards": 5}'),
        "shards": (
            *("{}", '{"compact": true}'),
            *(f'{{"shards": {it}}}' for it in ("0", "-1", "1.0", "1e1", "true", "null", '"4"', "[4]", 2**64)),
            f'{{"shards": {Settings().max_shards + 1}}}',
        ),
        "shard": ('{"shard": 4}',),
        **{it: (f'{{"shards": 4, "{it}": 1}}',) for it in ("num", "compact")},
    },
    "POST /v1/jobs": {
        None: (None, "[]", "{", '{"kind": "add", "delta": 1, "prefix": "\\ud800"}'),
        "kind": ("{}", '{"kind": "mul", "prefix": ""}', '{"kind": ["add"], "prefix": ""}'),
        "prefix": (
            '{"kind": "add", "delta": 1}',
            *(f'{{"kind": "add", "delta": 1, "prefix": {it}}}' for it in ("null", f'"{"x" * (MAX_NAME_BYTES + 1)}"')),
        ),
        "delta": (
            *('{"kind": "add", "prefix": ""}', '{"kind": "reset", "prefix": "", "delta": 1}'),
            *(f'{{"kind": "add", "prefix": "", "delta": {it}}}' for it in ("1.5", "9007199254740992")),
        ),
        "id": tuple(job(f'"id": {it}') for it in ('""', '"a/b"', '"__a"', "7")),
        "by": (
            *(job('"by": 7'), export(by=["hour"]), export(**{"from": f"{NEW_YEAR}Z"})),
            *(export(by="minute", prefix="q"), export(by="hour", prefix="p:old"), export(by="hour", prefix="p:older")),
            *(export(by="hour", kind="reset"), export(by="hour", kind="compact", shards=1)),
        ),
        "from": (
            export(by="hour", **{"from": "2026-01-02T00:00:00Z", "to": f"{NEW_YEAR}Z"}),
            *(export(by="minute", **{"from": f"{NEW_YEAR}Z"}), export(by="hour", **{"from": "2026-01-01"})),
        ),
        "to": (export(by="hour", to=7),),
        "days": tuple(
            f'{{"kind": "expire", "prefix": "", "days": {it}}}' for it in ("0", "1.5", '"400d"', "36601", "null")
        ),
    },
}  # fmt: skip
"""By the field that the answer names; None if it names none."""
BAD_LETTERS: Final = {
    "replay": (
        *("", "{}", '{"all": false}', '{"all": true, "ids": ["a"]}', '{"ids": []}', '{"ids": [1]}', '{"ids": [""]}'),
        *('{"ids": "a"}', '{"ids": null}', '{"all": 1}', '{"all": true, "too_old": "yes"}', '{"all": true, "more": 1}'),
    ),
    "drop": ('{"all": true}', "{}", json.dumps({"ids": ["a"] * (MOST_CHOSEN + 1)})),
}  # fmt: skip


def in_bytes(body: bytes | str | None) -> bytes | None:
    return body.encode() if isinstance(body, str) else body


async def test_a_wrong_body_is_refused_and_its_field_named(unharmed: Service) -> None:
    for asked, fields in BAD_BODIES.items():
        method, target = asked.split(" ")
        for field, body in ((field, body) for field, bodies in fields.items() for body in bodies):
            answer = await unharmed.ask(method, target, in_bytes(body))
            assert (answer.status, answer.field) == (400 if field is None else 422, field), (asked, body)
            assert len(answer.json["detail"]) < 1_000, (asked, body)
    assert (await unharmed.get("/v1/jobs/j")).status == 404
    for what, bodies in BAD_LETTERS.items():
        for text in bodies:
            assert (await unharmed.post(f"/v1/dead-letters/{what}", text.encode())).status == 422, text
    assert (await unharmed.post("/v1/dead-letters/replay", b'{"ids": ["\\ud800"]}')).status == 400


async def test_what_is_wrong_beside_the_body_is_refused(unharmed: Service) -> None:
    assert (await unharmed.incr("there", b'{"delta": 1}', "?by=1")).field == "by"
    assert (await unharmed.ask("PUT", "/v1/counters/there/reset", b"")).status == 405
    answer = await unharmed.ask(
        "PUT", "/v1/counters/there", b'{"value": 1}', {"Idempotency-Key": "x" * (MAX_ID_BYTES + 1)}
    )
    assert (answer.status, answer.field) == (422, "Idempotency-Key")


BAD_BATCHES: Final[Mapping[str, Sequence[str]]] = {
    "": ("", " \n", "[]", "[ ]", '{"counters": {}}', "\n\n"),
    "item 0": ("{}", "[1]", "[[]]", '[{"counter": ""}, 1]', '{"counter": ""}\n1', '"a"\n"b"'),
    "'there'": ('{"counters": {"there": 1.5}}',),
    "twice": (
        *(f'{{"counters": {{{it}}}}}' for it in ('"there": 1, "there": 1', '"there": 1, "ther\\u0065": 2')),
        '{"counters": {"a": 1, "there": 1, "b": 2, "there": 2, "c:d": 3}}',
        *('{"counters": {"a": 1},\n "counters": {"there": 2}}', '{"counters":\n{"there": 1,\n"there": 1}\n}'),
        *('[{"counter": "there", "counter": "there"}]', '{"counter": "there", "counter": "other"}'),
        '[{"counter": "there"}, {"counter": "there", "delta": 1, "delta": 2}]',
        '[{"counter": "there"},\n{"counter": "there", "delta": 1, "d\\u0065lta": 2}]',
        '[{"counter": "a:b", "id": "x", "id": "y"}]',
    ),
    "delta": (
        *(f'[{{"counter": "there", "delta": {it}}}]' for it in DELTAS),
        *(f'{{"counters": {{"there": {it}}}}}' for it in DELTAS),
    ),
    "'id'": tuple(f'[{{"counter": "there", "id": {it}}}]' for it in IDS),
    "no increment is valid": ("counter=", "delta=1", "counter=..&delta=1", "counter=a&delta=x", "counter=a&x=1"),
}  # fmt: skip


async def test_a_batch_in_which_nothing_is_good_is_400_and_says_why(unharmed: Service) -> None:
    for says, bodies in BAD_BATCHES.items():
        for body in bodies:
            answer = await unharmed.post("/v1/increments", body.encode())
            assert answer.status == 400, body
            assert says in answer.json["detail"], body


async def test_a_string_that_never_ends_takes_no_longer_than_others(unharmed: Service) -> None:
    """As a quadratic search it would be an hour."""
    body = b"[" * (MOST_IN_BATCH + 3) + b'"' + b'\\"' * 2_000_000
    assert (await unharmed.post("/v1/increments", body)).status == 413


async def test_too_many_increments_are_413(unharmed: Service) -> None:
    many = MOST_IN_BATCH + 1
    for what, body in {
        "array": b"[" + b",".join([b'{"counter":"a"}'] * many) + b"]",
        "lines": b"\n".join([b'{"counter":"a"}'] * many),
        "broken lines": b"{\n" * many,
        "between quotes": b'"\n' + b"[]," * many * 2 + b'\n"',
        "objects in objects": b'[{"counter":"a","x":[' + b'{"a":{}},' * many + b"1]}]",
        "arrays in one": b"[" + b"[]," * many + b"[]]",
        "map": b'{"counters":{' + b",".join(b'"%d":1' % number for number in range(many)) + b"}}",
    }.items():
        assert (await unharmed.post("/v1/increments", body)).status == 413, what


async def test_braces_in_names_are_no_objects(service: Service) -> None:
    name = '{["[{' * 60
    body = json.dumps({"counters": {f"{name}{number}": 1 for number in range(MOST_IN_BATCH // 140)}}).encode()
    assert body.count(b"{") + body.count(b"[") > MOST_IN_BATCH + 2
    answer = await service.post("/v1/increments", body)
    assert (answer.status, answer.json["accepted"]) == (202, MOST_IN_BATCH // 140)


async def test_a_body_about_one_counter_has_a_limit_of_its_own(unharmed: Service) -> None:
    for size, status in ((MOST_OF_ONE, 400), (MOST_OF_ONE + 1, 413)):
        body = b"[" + b" " * (size - 2) + b"]"
        assert (await unharmed.incr("there", body)).status == status
        assert (await unharmed.incr("there", gzip.compress(body), Content_Encoding="gzip")).status == status
        assert (await unharmed.ask("PUT", "/v1/counters/there/shards", body)).status == status
    assert (await unharmed.post("/v1/increments", b"[" + b" " * (MOST_OF_ONE + 1) + b"]")).status == 400
