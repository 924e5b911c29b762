"""/countersink.js as browsers and proxies load it, and the forms that pages may send in place of JSON."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.parsing import parse
from ingest.parsing.parse import BodyError
from tests.http.keys import SHOP, keys_file
from tests.http.service import Service, running
from tests.http.test_browsers import CROSS, ask

SCRIPT = "/countersink.js"
PLAIN = {"Accept-Encoding": "identity"}


async def test_it_is_small_and_kept(service: Service) -> None:
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


async def test_other_sites_may_load_it_where_pages_may_count(tmp_path: Path) -> None:
    async with running(tmp_path) as service:
        assert (await ask(service, "GET", SCRIPT, CROSS)).status == 403
    async with running(tmp_path, origins=(SHOP,)) as service:
        found = await ask(service, "GET", SCRIPT, CROSS)
        assert (found.status, found.headers["Cross-Origin-Resource-Policy"]) == (200, "cross-origin")
        assert (await ask(service, "POST", SCRIPT, CROSS)).status == 403
    file, _ = keys_file(tmp_path, all={})
    async with running(tmp_path, keys_file=str(file)) as service:
        assert (await ask(service, "GET", SCRIPT, CROSS)).status == 200


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain;charset=UTF-8", "application/json"])
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
    assert await service.totals() == {"a b/": 2 + 3 - 4 + 7 + 1 + 20}


@given(st.binary(max_size=40).map(lambda rest: b"id=" + rest))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        found = parse.fields(body)
    except BodyError as error:
        status = error.status
    else:
        status = 200 if {type(value) for value in found.values()} <= {str} else 500
    assert status in {200, 400}
