"""A URL that does not fit what answers: one true sentence, at once, that says what to write."""

import asyncio
import ssl
from pathlib import Path

import pytest

from countersink import AsyncClient, Client, RejectedError, UnavailableError
from countersink.transport import flaw_of_scheme
from tests.unit.client.scripted import problem, saying, says, scripted, serving


async def said_by(url: str, kind: type[Exception] = RejectedError) -> str:
    def ask() -> str:
        with Client(url, patience=0) as client, pytest.raises(kind) as raised:
            client.get("a")
        return str(raised.value)

    return await asyncio.to_thread(ask)


async def test_tls_where_there_is_none_says_to_write_http() -> None:
    async with serving(saying(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")) as url:
        secure = url.replace("http:", "https:")
        assert await said_by(secure) == f"{secure} does not speak TLS: write {url}, or the port that does"


@pytest.mark.parametrize(
    "answer",
    [
        b"\x15\x03\x03\x00\x02\x02\x0a",
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 46\r\n\r\nThe plain HTTP request was sent to HTTPS port.",
        b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n",
    ],
)
async def test_no_tls_where_it_is_wanted_says_to_write_https(answer: bytes) -> None:
    async with serving(saying(answer)) as url:
        assert await said_by(url) == f"{url} speaks TLS: write {url.replace('http:', 'https:')}"


async def test_a_connection_that_is_closed_without_a_word_may_want_tls() -> None:
    async with serving(saying(b"")) as url:
        assert "should it begin with https://?" in await said_by(url, UnavailableError)


def test_a_certificate_that_is_not_trusted_is_named() -> None:
    error = ssl.SSLCertVerificationError(1, "no")
    error.verify_message = "self-signed certificate"
    said = flaw_of_scheme("https://a", error)
    assert said is not None
    assert said.startswith("the certificate of https://a is not trusted: self-signed certificate. Set SSL_CERT_FILE")


async def test_what_does_not_speak_http_is_shown() -> None:
    async with serving(saying(b"SSH-2.0-OpenSSH_9.6\r\n")) as url:
        said = await said_by(url, UnavailableError)
    assert said.endswith("what answers does not speak HTTP: 'SSH-2.0-OpenSSH_9.6'. Is the port right?")


async def test_a_path_that_is_too_much_is_named() -> None:
    async with scripted(problem(404, "there is no such path; /openapi.json lists all paths")) as server:
        said = await said_by(f"{server.url}/v1/")
    assert said == f"there is no such path at {server.url}/v1: leave /v1 out of the URL, unless a proxy removes it"


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("127.0.0.1:8080", "http://127.0.0.1:8080"), ("counts.example.com", "http://counts.example.com")],
)
def test_a_url_without_a_scheme_is_completed(wrong: str, right: str) -> None:
    with pytest.raises(ValueError, match=f"is not the URL of a service: write it as {right}$"):
        Client(wrong)


@pytest.mark.parametrize(
    "wrong", ["", "ftp://x", "unix:", "http://", "x y", "http://a:x", "http://a:99999", "http://a?b"]
)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_another_text_is_no_url(kind: type[Client | AsyncClient], wrong: str) -> None:
    with pytest.raises(ValueError, match="is not the URL of a service: write it as http://"):
        kind(wrong)


async def test_a_unix_socket_is_a_url_too(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    answer = b'HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\n{"state":"applied"}'
    async with await asyncio.start_unix_server(saying(answer), path):
        with Client(f"unix:{path}") as client:
            assert await asyncio.to_thread(client.receipt, "r") == "applied"
    path.unlink(missing_ok=True)
    assert f"no answer from unix:{path}: No such file" in await said_by(f"unix:{path}", UnavailableError)


async def test_another_program_that_answers_is_named() -> None:
    async with scripted(says(200, {"hello": "world"})) as server:
        assert server.url in await said_by(server.url)


def test_a_function_that_returns_no_key_is_named_and_nothing_is_sent() -> None:
    def key() -> str:
        return str(1 // 0)

    with Client("http://127.0.0.1:9", key, patience=0) as client, pytest.raises(UnavailableError) as raised:
        client.increment("a")
    assert str(raised.value).startswith("there is no key for http://127.0.0.1:9: integer division")
    assert not raised.value.maybe_accepted
