"""Increments: one, POST /v1/counters/{name}, and many, POST /v1/increments."""

import gzip
import json
import zlib
from typing import Final

from ingest.parsing.parse import MOST_IN_BATCH, MOST_REJECTIONS
from shared.model.words import MAX_DELTA, MAX_SUM
from tests.http.service import Service


async def test_the_delta_is_that_of_the_body_or_of_by_or_one(service: Service) -> None:
    totals: dict[str, int] = {}
    for number, (body, query, expected) in enumerate(
        [
            (None, "", 1),
            (b"", "", 1),
            (b" \r\n\t", "", 1),
            (b"{}", "", 1),
            (b'{"delta": 3}', "", 3),
            (b'{"delta": -3}', "", -3),
            (b'{"delta": 0}', "", 0),
            (b' {"delta":1} \n', "", 1),
            (b'{"delta": %d}' % MAX_DELTA, "", MAX_DELTA),
            (b'{"delta": -%d}' % MAX_DELTA, "", -MAX_DELTA),
            (b'{"\\u0064elta": 4}', "", 4),
            (b'{"id": "x"}', "", 1),
            (b'{"id": null, "delta": 2}', "", 2),
            (None, "?by=5", 5),
            (None, "?by=-5", -5),
            (None, "?by=%2B5", 5),
            (None, "?b%79=5", 5),
            (None, f"?by={MAX_DELTA}", MAX_DELTA),
            (b'{"id": "x"}', "?by=6", 6),
        ]
    ):
        answer = await service.incr(f"{number}", body, query)
        assert answer.status == 202, (body, query)
        assert answer.headers["Content-Type"] == "application/json", (body, query)
        assert answer.json.keys() == {"accepted", "receipt"}, (body, query)
        totals |= {f"{number}": expected} if expected else {}
    assert await service.totals() == totals
    await service.apply()
    assert await service.totals() == totals


NAMES: Final = [
    "a", "a/b", "/", "a b", "+", "a+b", "%", "%41", "?x=1&y#z", "page:/home", "é", "\U0001f600", "…", "\u2028",
    "_", "__", "___", "__x", "x__", "...", "shards", "x" * 400, "é" * 200, '"\\', "a\xa0b",
]  # fmt: skip


async def test_any_name_counts_under_itself(service: Service) -> None:
    for name in NAMES:
        assert (await service.incr(name)).status == 202, name
        assert (await service.read(name))["name"] == name, name
    assert await service.totals() == dict.fromkeys(NAMES, 1)
    await service.apply()
    assert await service.totals() == dict.fromkeys(NAMES, 1)
    for needlessly_escaped in ("%61%2f%62", "a%2Fb"):
        await service.post(f"/v1/counters/{needlessly_escaped}")
    assert await service.value("a/b") == 3


async def test_a_body_may_be_compressed(service: Service) -> None:
    for coding in ["gzip", "GZIP", "x-gzip", "deflate", "identity"]:
        body = b'{"delta": 9}'
        packed = {"deflate": zlib.compress(body), "identity": body}.get(coding, gzip.compress(body))
        assert (await service.incr("c", packed, Content_Encoding=coding)).status == 202, coding
    assert await service.value("c") == 45


async def test_a_client_that_waits_for_100_continue_is_told_to_go_on(service: Service) -> None:
    body = b'{"delta": 8}'
    assert (await service.incr("c", body, Expect="100-continue")).status == 202
    assert await service.value("c") == 8


async def test_a_batch_adds_so_much_to_a_counter_and_rejects_the_rest_but_totals_may_leave_64_bits(
    service: Service,
) -> None:
    fits = MAX_SUM // MAX_DELTA
    many = b"[" + b",".join([b'{"counter": "c", "delta": %d}' % MAX_DELTA] * (fits + 2)) + b"]"
    for _ in range(5):
        answer = await service.post("/v1/increments", many)
        assert (answer.status, answer.json["accepted"]) == (202, fits)
        assert [one["index"] for one in answer.json["rejected"]] == [fits, fits + 1]
    total = 5 * fits * MAX_DELTA
    assert await service.value("c") == total > 2**63
    await service.apply()
    reading = await service.read("c")
    assert (reading["applied"], reading["pending"]) == (total, 0)


GOOD = '{"counter": "a", "delta": 2}'


async def test_an_array_counts_item_by_item(service: Service) -> None:
    body = b'[{"counter": "a"}, {"counter": "a", "delta": 4}, {"counter": "b", "delta": -1, "id": "x"}]'
    answer = await service.post("/v1/increments", body)
    assert answer.status == 202
    assert answer.json | {"receipt": ""} == {"accepted": 3, "rejected": [], "receipt": ""}
    assert await service.totals() == {"a": 5, "b": -1}


async def test_ndjson_counts_line_by_line(service: Service) -> None:
    for between in ["\n", "\r\n", "\n\n", "\n \t\r\n"]:
        for end in ["", "\n", "\r\n", "\n\n \n"]:
            body = (between.join([GOOD, '{"counter": "b"}', '{"counter": "a", "id": "i"}']) + end).encode()
            answer = await service.post("/v1/increments", body)
            assert (answer.status, answer.json["accepted"]) == (202, 3), (end, between)
    assert (await service.post("/v1/increments", GOOD.encode())).json["accepted"] == 1, "one line is a batch, too"
    assert await service.totals() == {"a": 2 * 17 + 1, "b": 16}, "the id counts once"


async def test_a_map_counts_entry_by_entry_also_if_it_has_newlines(service: Service) -> None:
    counters = {"a": 2, "b": -3, "\u00e9": 0, "a:b": 1}
    for number, indent in enumerate((None, 2), 1):
        answer = await service.post("/v1/increments", json.dumps({"counters": counters}, indent=indent).encode())
        assert (answer.status, answer.json["accepted"], answer.json["rejected"]) == (202, 4, [])
        assert await service.totals() == {"a": 2 * number, "b": -3 * number, "a:b": number}


BAD_ITEMS = [
    ("1", "object"), ("null", "object"), ("[]", "object"), ('"a"', "object"), ("{}", "counter"),
    ('{"counter": 1}', "counter"), ('{"counter": null}', "counter"), ('{"counter": ""}', "counter"),
    ('{"counter": ".."}', "counter"), ('{"counter": "__x__"}', "counter"), ('{"counter": "a\\u0000"}', "counter"),
    ('{"counter": "a\\u0085"}', "counter"), ('{"counter": "' + "x" * 401 + '"}', "counter"),
    ('{"counter": "' + "é" * 201 + '"}', "counter"), ('{"counter": "a", "delta": 1.0}', "delta"),
    ('{"counter": "a", "id": ""}', "id"), ('{"counter": "a", "by": 1}', "by"),
    ('{"counters": {"a": 1}}', "counters"),
]  # fmt: skip


async def test_deltas_by_name_without_their_field_are_told_the_form(service: Service) -> None:
    hint = 'deltas by name are sent as {"counters": {"visits": 3}}'
    for body in ('{"visits": 3}', '{"visits": 3, "page:home": 2}', "{}"):
        answer = await service.post("/v1/increments", body.encode())
        assert (answer.status, hint in answer.json["detail"]) == (400, True), body
    for body in ('{"counter": "a", "by": 1}', '[{"visits": 3}]'):
        answer = await service.post("/v1/increments", body.encode())
        assert (answer.status, hint in answer.json["detail"]) == (400, False), body


async def test_what_is_no_body_is_told_what_to_send(service: Service) -> None:
    for method, path, body, said in (
        ("POST", "/v1/jobs", b"", 'the body is empty: send {"kind": …, "prefix": …}'),
        ("PUT", "/v1/counters/a", b"\r\n", 'the body is empty: send {"value": n}'),
        (
            "PUT",
            "/v1/counters/a",
            b"{\n]",
            "the body is not valid JSON: unexpected character, expected a string key, at line 2, column 1",
        ),
        (
            "POST",
            "/v1/increments",
            b"foo=a",
            "a form must begin with one of its fields: counter, which it needs, delta",
        ),
    ):
        answer = await service.ask(method, path, body)
        assert (answer.status, answer.json["detail"][: len(said)]) == (400, said)


async def test_a_bad_item_is_rejected_by_index_and_the_good_ones_count(service: Service) -> None:
    for bad, word in BAD_ITEMS:
        for body in (f"[{GOOD}, {bad}, {GOOD}]", f"{GOOD}\n{bad}\n{GOOD}"):
            answer = await service.post("/v1/increments", body.encode())
            assert (answer.status, answer.json["accepted"]) == (202, 2), bad
            ((index, reason),) = [item.values() for item in answer.json["rejected"]]
            assert index == 1, bad
            assert word in reason, bad
    assert await service.totals() == {"a": 8 * len(BAD_ITEMS)}


async def test_a_line_that_is_not_json_is_rejected_alone(service: Service) -> None:
    for first in [False, True]:
        for bad in ["{", "x", '{"counter": "a", "counter": "b"}', '{"counter": "\\ud800"}', "[" * MOST_IN_BATCH]:
            lines = [bad, GOOD] if first and not bad.startswith("[") else [GOOD, bad]
            answer = await service.post("/v1/increments", "\n".join(lines).encode())
            assert (answer.status, answer.json["accepted"]) == (202, 1), (bad, first)
            assert [item["index"] for item in answer.json["rejected"]] == [lines.index(bad)], (bad, first)
            assert "line 1" not in answer.json["rejected"][0]["reason"], (bad, first)
    answer = await service.post("/v1/increments", GOOD.encode() + b'\n{"counter": "\xff"}')
    assert (answer.json["accepted"], answer.json["rejected"][0]["index"]) == (1, 1), "bad UTF-8"
    assert await service.totals() == {"a": 2 * 11}


async def test_rejections_of_a_map_name_the_counter(service: Service) -> None:
    body = {"a": 1, "": 1, "b": 1.5, "c\x85": 1, "__d__": 2, "e": True, "f": 2**53, "é" * 201: 1, "g": 2}
    answer = await service.post("/v1/increments", json.dumps({"counters": body}).encode())
    assert (answer.status, answer.json["accepted"]) == (202, 2)
    assert [item["counter"] for item in answer.json["rejected"]] == [
        name for name in body if name not in "ag" or not name
    ]
    assert await service.totals() == {"a": 1, "g": 2}


async def test_an_answer_lists_the_first_rejections_and_counts_all(service: Service) -> None:
    for bad, listed in [(MOST_REJECTIONS + more, MOST_REJECTIONS + min(more, 0)) for more in (-1, 0, 1, 9_000)]:
        for map_ in [True, False]:
            if map_:
                body = b'{"counters":{"a":1,%b}}' % b",".join([b'"%d":1.5' % number for number in range(bad)])
            else:
                body = b'[{"counter":"a"},%b]' % b",".join([b"1"] * bad)
            answer = await service.post("/v1/increments", gzip.compress(body), Content_Encoding="gzip")
            assert (answer.status, answer.json["accepted"], len(answer.json["rejected"])) == (202, 1, listed), bad
            assert answer.json.get("rejected_count", listed) == bad
            assert ("rejected_count" in answer.json) == (bad > listed), bad


async def test_what_an_answer_says_of_a_long_name_is_short(service: Service) -> None:
    for counts in [True, False]:
        body = b'{"counters":{"%b":1%b}}' % (b"x" * 1_000_000, b',"a":1' if counts else b"")
        answer = await service.post("/v1/increments", gzip.compress(body), Content_Encoding="gzip")
        assert (answer.status, len(answer.body) < 2_000) == (202 if counts else 400, True), counts
        answer = await service.incr("c", b'{"%b":1}' % (b"x" * 1_000_000))
        assert (answer.status, answer.field, len(answer.body) < 10_000) == (422, "x" * 8_192, True), counts


async def test_more_counters_than_an_envelope_holds_all_count(service: Service) -> None:
    names = {f"c{number:04}": number for number in range(1, 2501)}
    answer = await service.post("/v1/increments", json.dumps({"counters": names}).encode())
    assert (answer.status, answer.json["accepted"]) == (202, 2500)
    receipt = answer.json["receipt"]
    assert (await service.get(f"/v1/receipts/{receipt}")).json["state"] == "pending"
    assert await service.totals() == names
    await service.apply()
    assert (await service.get(f"/v1/receipts/{receipt}")).json["state"] == "applied"
    assert await service.totals() == names


async def test_the_most_increments_of_a_batch_are_one_request(service: Service) -> None:
    body = b"\n".join([b'{"counter":"a"}'] * MOST_IN_BATCH)
    assert (await service.post("/v1/increments", body)).json["accepted"] == MOST_IN_BATCH
    packed = gzip.compress(body)
    assert (await service.post("/v1/increments", packed, Content_Encoding="gzip")).json["accepted"] == MOST_IN_BATCH
    assert await service.value("a") == 2 * MOST_IN_BATCH
