"""Writes answers: JSON with head and body in one piece, and what browsers may keep."""

from typing import Final

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter

from shared.http.answers import SECURE, date, line

__all__ = ["JSON", "PUBLIC", "SECURE", "Answer", "line", "written"]
PUBLIC: Final = {
    **SECURE,
    "Access-Control-Allow-Origin": "*",
    "Cross-Origin-Resource-Policy": "cross-origin",
}
"""Headers of answers that pages of all sites may show and read."""
JSON: Final = {"Content-Type": "application/json", **SECURE}
_SECURE: Final = "".join([f"{name}: {value}\r\n" for name, value in SECURE.items()]).encode()
_HEADS: Final = {
    200: b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + _SECURE,
    202: b"HTTP/1.1 202 Accepted\r\nContent-Type: application/json\r\n" + _SECURE,
}


class Answer(web.Response):
    """A JSON answer. For a plain request the head is a constant with the length and the date filled in, since aiohttp
    takes as long to build headers as everything else takes. For other requests aiohttp writes it.
    """

    is_plain = True
    """Whether it has the headers of all answers, and no others."""
    _written = False

    def __init__(self, body: bytes, status: int = 200) -> None:
        super().__init__(status=status, body=line(body), headers=JSON)
        self._bytes = body

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        if self._written:  # aiohttp does again what the front has had done
            return None
        transport = request.transport
        plain = self.is_plain and request.version == HttpVersion11 and request.keep_alive and request.method != "HEAD"
        if not plain or transport is None or transport.is_closing() or self.status not in _HEADS:
            return await super().prepare(request)
        transport.write(written(self.status, self._bytes))
        self._written = True
        self._bytes, self.body = b"", None  # not kept for as long as the client does not read
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        if not self._written:
            await super().write_eof(data)

    @property
    def keep_alive(self) -> bool | None:
        return True if self._written else super().keep_alive


def written(status: int, body: bytes) -> bytes:
    """The bytes of a whole answer to a plain request. `body` lacks the end of its line."""
    return b"%bContent-Length: %d\r\nDate: %b\r\n\r\n%b\n" % (_HEADS[status], len(body) + 1, date.now(), body)
