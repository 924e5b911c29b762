"""Names, paths, queries and methods that are wrong."""

from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio

from tests.http import contract
from tests.http.service import Service, running, url_name

pytestmark = pytest.mark.asyncio(loop_scope="module")

BAD_NAMES: Final = [
    "", ".", "..", "____", "__x__", "__é\n__", "x" * 401, "é" * 200 + "x", "\U0001f600" * 101, "a\x00", "\n",
    "a\x1fb", "\x7f", "\x80", "a\x85b", "\x9f",
]  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def one(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    async with running(tmp_path_factory.mktemp("service")) as it:
        assert (await it.incr("there", b'{"delta": 7}')).status == 202
        yield it


@pytest_asyncio.fixture(loop_scope="module")
async def unharmed(one: Service) -> AsyncIterator[Service]:
    """One service for all of these tests, as its start would take most of their time."""
    yield one
    await one.apply()
    assert await one.totals() == {"there": 7}


@pytest.mark.parametrize("name", BAD_NAMES)
async def test_a_bad_name_is_422_wherever_it_stands(unharmed: Service, name: str) -> None:
    path = f"/v1/counters/{url_name(name).replace('.', '%2E')}"
    for method, target in (
        ("GET", path),
        ("POST", path),
        ("PUT", f"{path}/shards"),
        ("PUT", path),
        ("DELETE", path),
        ("POST", f"{path}/reset"),
        ("GET", f"/v1/counters?name=there&name={url_name(name)}"),
    ):
        answer = await unharmed.ask(method, target, None if method == "GET" else b'{"shards": 2}'[:0])
        assert (answer.status, answer.field) == (422, "name"), target


@pytest.mark.parametrize("name", [".", ".."])
async def test_dots_are_names_and_no_way_up(unharmed: Service, name: str) -> None:
    head = f"POST /v1/counters/{name} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
    assert (await unharmed.raw(head.encode())).status == 422


@pytest.mark.parametrize("escape", ["%", "%4", "%zz", "%u0041", "a%", "%FF", "%C3", "%C0%AF", "%ED%A0%80", "%80abc"])
async def test_bad_escapes_and_bad_utf8_are_400_wherever_they_stand(unharmed: Service, escape: str) -> None:
    for method, target in (
        ("GET", f"/v1/counters/{escape}"),
        ("POST", f"/v1/counters/{escape}"),
        ("PUT", f"/v1/counters/{escape}/shards"),
        ("DELETE", f"/v1/counters/{escape}"),
        ("POST", f"/v1/counters/{escape}/reset"),
        ("GET", f"/v1/receipts/{escape}"),
        ("GET", f"/v1/counters?name={escape}"),
        ("GET", f"/v1/counters?prefix={escape}"),
        ("GET", f"/v1/counters?page_token={escape}"),
        ("POST", f"/v1/counters/there?by={escape}"),
        ("POST", f"/v1/counters/there?{escape}=1"),
        ("POST", f"/v1/increments?{escape}"),
    ):
        assert (await unharmed.ask(method, target, None if method == "GET" else b"{}")).status == 400, target


@pytest.mark.parametrize("target", [b"/v1/counters/\xff", b"/v1/counters?prefix=\xff", b"/v1/receipts/\xed\xa0\x80"])
async def test_raw_bytes_that_are_no_utf8_are_400(unharmed: Service, target: bytes) -> None:
    assert (await unharmed.raw(b"GET " + target + b" HTTP/1.1\r\nHost: h\r\n\r\n")).status == 400


@pytest.mark.parametrize(
    ("method", "target", "field"),
    [
        ("POST", "/v1/counters/there?by=", "by"),
        ("POST", "/v1/counters/there?by", "by"),
        ("POST", "/v1/counters/there?by=1.0", "by"),
        ("POST", "/v1/counters/there?by=1e3", "by"),
        ("POST", "/v1/counters/there?by=true", "by"),
        ("POST", "/v1/counters/there?by=NaN", "by"),
        ("POST", "/v1/counters/there?by=+1", "by"),
        ("POST", "/v1/counters/there?by=0x1", "by"),
        ("POST", "/v1/counters/there?by=1_0", "by"),
        ("POST", "/v1/counters/there?by=--1", "by"),
        ("POST", "/v1/counters/there?by=%D9%A1", "by"),
        ("POST", "/v1/counters/there?by=%C2%B2", "by"),
        ("POST", "/v1/counters/there?by=9007199254740992", "by"),
        ("POST", "/v1/counters/there?by=" + "9" * 5000, "by"),
        ("POST", "/v1/counters/there?by=1&by=1", "by"),
        ("POST", "/v1/counters/there?delta=1", "delta"),
        ("POST", "/v1/counters/there?id=x", "id"),
        ("POST", "/v1/counters/there?By=1", "By"),
        ("POST", "/v1/counters/there?=1", ""),
        ("POST", "/v1/counters/there?max_age=1", "max_age"),
        ("POST", "/v1/counters/there?wait", "wait"),
        ("POST", "/v1/counters/there?wait=durable", "wait"),
        ("POST", "/v1/counters/there?ack=all", "ack"),
        ("POST", "/v1/counters/there?ack=none&wait=applied", "ack"),
        ("POST", "/v1/counters/there?wait=applied&timeout=-1", "timeout"),
        ("POST", "/v1/counters/there?wait=applied&timeout=nan", "timeout"),
        ("POST", "/v1/counters/there?wait=applied&timeout=inf", "timeout"),
        ("POST", "/v1/counters/there?wait=applied&timeout=5s", "timeout"),
        ("POST", "/v1/counters/there?wait=applied&timeout=1_0", "timeout"),
        ("POST", "/v1/counters/there?wait=applied&timeout=", "timeout"),
        ("POST", "/v1/counters/there?wait=applied&timeout=%D9%A1", "timeout"),
        ("POST", "/v1/increments?by=1", "by"),
        ("POST", "/v1/increments?wait=x", "wait"),
        ("PUT", "/v1/counters/there/shards?shards=3", "shards"),
        ("PUT", "/v1/counters/there?value=3", "value"),
        ("DELETE", "/v1/counters/there?wait=applied", "wait"),
        ("POST", "/v1/counters/there/reset?x=1", "x"),
        ("GET", "/v1/counters/there?max_age=-1", "max_age"),
        ("GET", "/v1/counters/there?max_age=x", "max_age"),
        ("GET", "/v1/counters/there?max_age=1&max_age=2", "max_age"),
        ("GET", "/v1/counters/there?x=1", "x"),
        ("GET", "/v1/counters?limit=0", "limit"),
        ("GET", "/v1/counters?limit=-1", "limit"),
        ("GET", "/v1/counters?limit=1001", "limit"),
        ("GET", "/v1/counters?limit=1.5", "limit"),
        ("GET", "/v1/counters?limit=%C2%B2", "limit"),
        ("GET", "/v1/counters?limit=0000001009999", "limit"),
        ("GET", "/v1/counters?limit=000000100" + "9" * 5000, "limit"),
        ("GET", "/v1/counters?page_token=x", "page_token"),
        ("GET", "/v1/counters?page_token=_w==", "page_token"),
        ("GET", "/v1/counters?page_token=%C3%A9", "page_token"),
        ("GET", "/v1/counters?name=a&prefix=a", "prefix"),
        ("GET", "/v1/counters?name=a&limit=1", "limit"),
        ("GET", "/v1/counters?max_age=x", "max_age"),
        ("GET", "/v1/counters?x=1", "x"),
        ("GET", "/v1/receipts/x?x=1", "x"),
    ],
)
async def test_a_bad_parameter_is_422_and_named(unharmed: Service, method: str, target: str, field: str) -> None:
    body = b'{"shards": 3}' if method == "PUT" else None
    if "increments" in target:
        body = b'[{"counter": "there"}]'
    answer = await unharmed.ask(method, target, body)
    assert (answer.status, answer.field) == (422, field)


@pytest.mark.parametrize(
    "path",
    [
        "/nothing", "/v1", "/v1/", "/v1/counter/there", "/V1/counters/there", "//v1/counters/there",
        "/v1//counters/there", "/v1/increments/", "/v1/counters/there/", "/v1/counters/there/nothing",
        "/v1/counters/there/shards/", "/v1/counters/there/reset/", "/v1/counters/a/b", "/healthz/", "/openapi",
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_unknown_path_is_404(unharmed: Service, method: str, path: str) -> None:
    assert (await unharmed.ask(method, path)).status == 404


@pytest.mark.parametrize("path", contract.DOCUMENT["paths"])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"])
async def test_another_method_is_405_and_allow_says_which(unharmed: Service, method: str, path: str) -> None:
    known = [name.upper() for name in contract.METHODS if name in contract.DOCUMENT["paths"][path]]
    if method in known:
        return
    answer = await unharmed.ask(method, path.replace("{name}", "there").replace("{id}", "x"))
    assert answer.status == 405
    allowed = set(answer.headers["Allow"].split(", "))
    assert allowed == {*known, *(("HEAD",) if "GET" in known else ())}
