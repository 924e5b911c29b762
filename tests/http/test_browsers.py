"""What web pages can make a browser do to a service: of other sites without keys, with publishable keys, and with
/countersink.js, whose forms stand in place of JSON.
"""

import gzip
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.parsing import parse
from ingest.parsing.parse import BodyError
from tests.http import both_ways
from tests.http.answer import Answer
from tests.http.keys import SHOP, bearer, guarded
from tests.http.service import Service, running

EVIL: Final = b"Origin: https://evil.example\r\n"
CROSS: Final = b"Sec-Fetch-Site: cross-site\r\n"
GOOD: Final = f"Origin: {SHOP}\r\n".encode()
JOB: Final = b'{"kind": "delete", "prefix": "", "id": "j"}'
ALLOWED: Final = "Access-Control-Allow-Origin"


def request(method: str, target: str, headers: bytes = b"", body: bytes = b"", host: bytes = b"h") -> bytes:
    head = f"{method} {target} HTTP/1.1\r\n".encode() + b"Host: " + host + b"\r\n"
    return head + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body


async def ask(service: Service, *parts: Any) -> Answer:
    return await both_ways.ask(service, request(*parts))


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running(tmp_path, origins=(SHOP,), hosts=("h", "proxy.example")) as it:
        assert (await it.incr("there", b'{"delta": 7}')).status == 202
        yield it


async def check_unharmed(service: Service) -> None:
    assert await service.totals() == {"there": 7}
    await service.apply()
    await service.work()
    assert await service.totals() == {"there": 7}
    assert (await service.get("/v1/jobs/j")).status == 404


async def test_a_page_of_another_site_can_do_nothing(service: Service) -> None:
    for method, target, body in [
        ("POST", "/v1/jobs", JOB),
        ("POST", "/v1/counters/there", b""),
        ("POST", "/v1/increments", b'{"counters": {"there": 1}}'),
        ("POST", "/v1/counters/there/reset", b""),
        ("PUT", "/v1/counters/there", b'{"value": 1}'),
        ("DELETE", "/v1/counters/there", b""),
        ("GET", "/v1/counters", b""),
        ("GET", "/healthz", b""),
        ("OPTIONS", "/v1/increments", b""),
    ]:
        for page in [EVIL, CROSS, EVIL + CROSS, b"Origin: null\r\n", b"Sec-Fetch-Site: same-site\r\n"]:
            for kind in (b"", b"Content-Type: text/plain\r\n"):
                found = await ask(service, method, target, page + kind, body)
                assert found.status == 403, (page, method, target, body)
                assert ALLOWED not in found.headers, (page, method, target, body)
    await check_unharmed(service)


async def test_a_link_from_another_site_can_be_followed(service: Service) -> None:
    link = CROSS + b"Sec-Fetch-Mode: navigate\r\n"
    assert (await ask(service, "GET", "/v1/counters/there", link)).status == 200
    assert (await ask(service, "POST", "/v1/counters/there", link + EVIL)).status == 403
    assert (await ask(service, "DELETE", "/v1/counters/there", link)).status == 403
    await check_unharmed(service)


@pytest.mark.parametrize(
    "page", [b"Origin: http://h\r\n", b"Sec-Fetch-Site: same-origin\r\n", b"Sec-Fetch-Site: none\r\n"]
)
async def test_our_own_pages_can_do_everything(service: Service, page: bytes) -> None:
    assert (await ask(service, "POST", "/v1/counters/a", page)).status == 202
    assert (await ask(service, "DELETE", "/v1/counters/there", page)).status == 200
    assert await service.totals() == {"a": 1}


async def test_a_site_that_points_its_name_to_this_machine_can_do_nothing(service: Service) -> None:
    """For the browser, its pages and this service have the same origin then."""
    for host in [
        *(b"evil.example", b"evil.example:8080", b"localhost.evil.example", b"0.0.0.0", b"[::2]", b"", b":80", b"[]"),
        *(
            b"[::1]evil.example", b"[::1].evil.example:80", b"[::1", b"::1", b"127.0.0.1%evil.example",
            b"::1%evil.example",
        ),
        *(b"[::1%lo]", b"[::1%25evil.example]", b"localhost:80:80", b"localhost:x", b"localhost,evil.example"),
        b"127.0.0.1@evil.example",
    ]:  # fmt: skip
        own = b"Origin: http://%b\r\nSec-Fetch-Site: same-origin\r\n" % host
        for headers in (b"", own):
            for method, target, body in (
                ("POST", "/v1/counters/there", b""),
                ("POST", "/v1/jobs", JOB),
                ("GET", "/v1/counters", b""),
            ):
                assert (await ask(service, method, target, headers, body, host)).status == 403, host
    await check_unharmed(service)


async def test_names_of_this_machine_and_those_in_the_setting_are_good(service: Service) -> None:
    for host in [
        *(b"localhost", b"LOCALHOST:8080", b"app.localhost", b"127.0.0.1:80", b"127.1.2.3", b"[::1]:9"),
        *(b"[::ffff:127.0.0.1]", b"proxy.example"),
    ]:
        assert (await ask(service, "POST", "/v1/counters/there", b"", b"", host)).status == 202, host


async def test_with_keys_any_host_is_good(tmp_path: Path) -> None:
    async with guarded(tmp_path, all={}) as (keyed, keys):
        found = await ask(keyed, "POST", "/v1/counters/c", bearer(keys["all"]), b"", b"counts.example")
        assert found.status == 202


async def test_beyond_loopback_addresses_are_good_and_names_only_if_they_are_listed(tmp_path: Path) -> None:
    async with running(tmp_path, hosts=("counts.example",)) as service:
        door = service.ingest.door
        assert door.is_local
        for local, elsewhere, hosts in (
            (202, 202, (b"localhost", b"127.0.0.1:8080", b"[::1]", b"counts.example")),
            (403, 202, (b"192.168.1.5:8080", b"[fe80::1]:80", b"0.0.0.0")),
            (403, 403, (b"evil.example", b"192.168.1.5.evil.example", b"ingest", b"3232235781", b"1.2.3")),
        ):
            for host, (is_local, expected) in product(hosts, ((True, local), (False, elsewhere))):
                door.is_local = is_local
                door.forget()
                assert (await ask(service, "POST", "/v1/counters/c", b"", b"", host)).status == expected, host


async def test_pages_of_allowed_origins_may_count_and_see_the_answer(service: Service) -> None:
    for target, body in (("/v1/counters/a", b"{}"), ("/v1/increments", b'[{"counter": "a"}]')):
        asked = await ask(service, "OPTIONS", target, GOOD + b"Access-Control-Request-Method: POST\r\n")
        assert (asked.status, asked.headers[ALLOWED], asked.body) == (204, SHOP, b"")
        assert asked.headers["Access-Control-Allow-Methods"] == "POST"
        assert {"Authorization", "traceparent"} <= {*asked.headers["Access-Control-Allow-Headers"].split(", ")}
        found = await ask(service, "POST", target, GOOD + CROSS, body)
        assert (found.status, found.headers[ALLOWED], found.headers["Vary"]) == (202, SHOP, "Origin")
        bad = await ask(service, "POST", target, GOOD, b"[]")
        assert (bad.status, bad.headers[ALLOWED]) == (400, SHOP)
    assert await service.totals() == {"there": 7, "a": 2}


async def test_pages_may_send_events_in_binary_mode(service: Service) -> None:
    asked = await ask(service, "OPTIONS", "/v1/events", GOOD + b"Access-Control-Request-Method: POST\r\n")
    allowed = asked.headers["Access-Control-Allow-Headers"].split(", ")
    assert {"ce-specversion", "ce-id", "ce-source", "ce-type", "ce-time", "ce-counter", "ce-delta"} <= {*allowed}


async def test_and_are_shown_no_total(service: Service) -> None:
    assert (await ask(service, "POST", "/v1/counters/there?return=value", GOOD)).status == 403
    await check_unharmed(service)
    async with service.applying():
        found = await ask(service, "POST", "/v1/counters/there?wait=applied", GOOD)
    assert (found.status, found.json.keys()) == (200, {"accepted", "receipt"})


async def test_and_may_do_nothing_else(service: Service) -> None:
    for method, target in [
        ("GET", "/v1/counters"),
        ("POST", "/v1/jobs"),
        ("DELETE", "/v1/counters/there"),
        ("POST", "/v1/counters/there/reset"),
        ("PUT", "/v1/counters/there"),
    ]:
        assert (await ask(service, method, target, GOOD, JOB)).status == 403, (method, target)
        preflight = GOOD + f"Access-Control-Request-Method: {method}\r\n".encode()
        assert (await ask(service, "OPTIONS", target, preflight)).status == 403, (method, target)
    await check_unharmed(service)


async def test_a_publishable_key_counts_from_its_pages(tmp_path: Path) -> None:
    async with guarded(
        tmp_path,
        all={},
        site={"scopes": ["write"], "prefixes": ["page:"], "origins": [SHOP], "publishable": True, "max_delta": 2},
        other={"scopes": ["write"], "prefixes": ["z:"], "origins": ["https://z.example"], "publishable": True},
    ) as (service, keys):
        site, batch = keys["site"], b'{"counters": {"page:a": 2}}'
        asked = await ask(
            service, "OPTIONS", f"/v1/increments?key={site}", GOOD + b"Access-Control-Request-Method: POST\r\n"
        )
        assert (asked.status, asked.headers[ALLOWED]) == (204, SHOP)
        for headers, query in ((bearer(site), ""), (b"", f"?key={site}")):
            for target, body in (("/v1/counters/page:a", b""), ("/v1/increments", batch)):
                found = await ask(service, "POST", target + query, GOOD + headers, body)
                assert (found.status, found.headers[ALLOWED]) == (202, SHOP)
                refused = (
                    ("POST", target, EVIL, 403),
                    ("POST", target, b"Origin: https://z.example\r\n", 403),
                    ("POST", target, b"", 403),
                    ("GET", "/v1/counters", GOOD, 403),
                    ("GET", "/v1/receipts/x", GOOD, 403),
                    ("DELETE", "/v1/counters/page:a", GOOD, 403),
                    ("POST", "/v1/counters/z:a", GOOD, 403),
                )
                for method, path, page, status in refused:
                    assert (await ask(service, method, path + query, page + headers, body)).status == status
        for query, headers in (
            (f"?key={keys['all']}", b""),
            (f"?key={site}&key={site}", b""),
            (f"?key={site}", bearer(site)),
            ("?key=", b""),
            (f"?key={site[:-1]}", b""),
        ):
            found = await ask(service, "POST", f"/v1/counters/page:a{query}", GOOD + headers)
            assert found.status == 401, query
        assert (await ask(service, "GET", "/v1/counters/page:a", bearer(keys["all"]))).json["value"] == 6


SCRIPT: Final = "/countersink.js"
PLAIN: Final = {"Accept-Encoding": "identity"}


async def test_the_script_is_small_and_kept(service: Service) -> None:
    plain = await service.ask("GET", SCRIPT, headers=PLAIN)
    assert (plain.status, plain.headers["Content-Type"]) == (200, "text/javascript; charset=utf-8")
    assert b"countersink" in plain.body
    assert len(gzip.compress(plain.body)) < 1_100
    assert "max-age=" in plain.headers["Cache-Control"]
    packed = await ask(service, "GET", SCRIPT, b"Accept-Encoding: gzip, br\r\n")
    assert gzip.decompress(packed.body) == plain.body
    assert packed.headers["Content-Encoding"] == "gzip"
    assert packed.headers["Vary"] == "Accept-Encoding"
    assert packed.headers["ETag"] != plain.headers["ETag"]
    for tag in (plain.headers["ETag"], f'"x", W/{plain.headers["ETag"]}', "*"):
        again = await service.ask("GET", SCRIPT, headers=PLAIN | {"If-None-Match": tag})
        assert (again.status, again.body) == (304, b"")
    assert (await service.ask("GET", SCRIPT, headers=PLAIN | {"If-None-Match": '"x"'})).status == 200
    head = await service.ask("HEAD", SCRIPT, headers=PLAIN)
    assert (head.status, head.body, head.headers["ETag"]) == (200, b"", plain.headers["ETag"])


async def test_other_sites_may_load_the_script_where_pages_may_count(tmp_path: Path) -> None:
    async with running(tmp_path) as service:
        assert (await ask(service, "GET", SCRIPT, CROSS)).status == 403
    async with running(tmp_path, origins=(SHOP,)) as service:
        found = await ask(service, "GET", SCRIPT, CROSS)
        assert (found.status, found.headers["Cross-Origin-Resource-Policy"]) == (200, "cross-origin")
        assert (await ask(service, "POST", SCRIPT, CROSS)).status == 403
    async with guarded(tmp_path, all={}) as (service, _):
        assert (await ask(service, "GET", SCRIPT, CROSS)).status == 200


@pytest.mark.parametrize(
    "kind", ["application/x-www-form-urlencoded", "text/plain;charset=UTF-8", "application/json", "nonsense", ""]
)
async def test_forms_and_json_count_whatever_their_type_says(service: Service, kind: str) -> None:
    said = {"Content-Type": kind}
    bodies = {
        "/v1/increments": [b"counter=a+b%2F&delta=2&id=x%26", b' \n[{"counter": "a b/", "delta": 3}]'],
        "/v1/counters/a%20b%2F": [b"delta=-4", b"delta=7&id=y\r\n", b"id=%F0%9F%98%80", b' {"delta": 20}'],
    }
    for target, several in bodies.items():
        for body in several:
            assert (await service.ask("POST", target, body, said)).status == 202
    again = await service.ask("POST", "/v1/increments?wait=applied&timeout=0", b"id=x%26&counter=a+b/&delta=2", said)
    assert again.status == 202
    assert await service.totals() == {"there": 7, "a b/": 2 + 3 - 4 + 7 + 1 + 20}


@given(st.binary(max_size=40).map(lambda rest: b"id=" + rest))
def test_any_bytes_of_a_form_are_read_or_refused(body: bytes) -> None:
    try:
        found = parse.fields(body)
    except BodyError as error:
        status = error.status
    else:
        status = 200 if {type(value) for value in found.values()} <= {str} else 500
    assert status in {200, 400}
