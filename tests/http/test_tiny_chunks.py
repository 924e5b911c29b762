"""Bodies in chunks: as small as programs make them, and as tiny as only attackers do."""

import pytest

from tests.http.answer import parse
from tests.http.service import Service

HEAD = b"POST /v1/increments HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunked(body: bytes, size: int) -> bytes:
    parts = [body[begin : begin + size] for begin in range(0, len(body), size)]
    return b"".join([b"%x\r\n%b\r\n" % (len(part), part) for part in parts]) + b"0\r\n\r\n"


@pytest.mark.parametrize("size", [16, 100, 5_000])
async def test_a_chunk_for_each_line_is_good(service: Service, size: int) -> None:
    body = b'{"counter":"a"}\n' * 5_000
    answer = parse(await service.send(HEAD + chunked(body, size)))
    assert (answer.status, answer.json["accepted"]) == (202, 5_000)


async def test_a_few_tiny_chunks_are_good(service: Service) -> None:
    answer = parse(await service.send(HEAD + chunked(b'[{"counter":"a"}]' + b" " * 500, 1)))
    assert answer.status == 202


@pytest.mark.parametrize("size", [1, 2, 5])
async def test_many_tiny_chunks_are_refused(service: Service, size: int) -> None:
    answer = parse(await service.send(HEAD + chunked(b'[{"counter":"a"}]' + b" " * 9_000, size)))
    assert answer.status == 400
    assert "tiny chunks" in answer.json["detail"]
    assert await service.value("a") == 0
