"""One increment: POST /v1/counters/{name}."""

import gzip
import zlib
from typing import Final

from tests.http.service import Service

MOST = 2**53 - 1


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
            (b'{"delta": %d}' % MOST, "", MOST),
            (b'{"delta": -%d}' % MOST, "", -MOST),
            (b'{"\\u0064elta": 4}', "", 4),
            (b'{"id": "x"}', "", 1),
            (b'{"id": null, "delta": 2}', "", 2),
            (None, "?by=5", 5),
            (None, "?by=-5", -5),
            (None, "?by=%2B5", 5),
            (None, "?b%79=5", 5),
            (None, f"?by={MOST}", MOST),
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


async def test_a_body_is_json_whatever_its_content_type(service: Service) -> None:
    for media_type in ["text/plain", "application/x-www-form-urlencoded", "nonsense", ""]:
        assert (await service.incr("c", b'{"delta": 2}', Content_Type=media_type)).status == 202, media_type
    assert await service.value("c") == 8


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


async def test_a_name_may_be_escaped_needlessly(service: Service) -> None:
    await service.post("/v1/counters/%61%2f%62")
    await service.post("/v1/counters/a%2Fb")
    assert await service.totals() == {"a/b": 2}


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


async def test_a_total_may_leave_64_bits(service: Service) -> None:
    many = b"[" + b",".join([b'{"counter": "c", "delta": %d}' % MOST] * 200) + b"]"
    for _ in range(6):
        assert (await service.post("/v1/increments", many)).status == 202
    assert await service.value("c") == 1200 * MOST
    assert 1200 * MOST > 2**63
    await service.apply()
    reading = await service.read("c")
    assert (reading["applied"], reading["pending"]) == (1200 * MOST, 0)
