"""Tells a client what went wrong: as an RFC 9457 problem document."""

import logging
import math
from http import HTTPStatus
from typing import Any, Final

import orjson
from aiohttp import web

from ingest.http.responses import SECURE, date, line
from ingest.parsing.json_object import BodyError
from shared.model.errors import (
    CountersinkError,
    DamagedError,
    DoubtfulError,
    OverloadedError,
    ShareError,
    StorageFullError,
)
from shared.runtime import metrics

_log = logging.getLogger(__name__)
LONGEST_FIELD: Final = 8_192
"""Characters of a field's name that are told. The client has chosen it, and may have sent megabytes."""
_HEADERS: Final = {"Content-Type": "application/problem+json", **SECURE}


class Problem(Exception):  # noqa: N818 (the RFC's word)
    """Ends a request with this status. `detail` says what is wrong and what to do; `field` names the field, parameter
    or header. `close` ends the connection after the answer.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        field: str | None = None,
        headers: dict[str, str] | None = None,
        close: bool = False,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.field = field
        self.headers = headers or {}
        self.close = close

    def response(self) -> web.Response:
        response = web.Response(
            status=self.status,
            body=line(self.document()),
            headers={**_HEADERS, **self.headers},
        )
        if self.close:
            response.force_close()
        return response

    def document(self) -> bytes:
        return document(self.status, self.detail, self.field)

    async def answer(self, _: web.BaseRequest) -> web.Response:
        """A handler that answers with the problem."""
        return self.response()

    def written(self) -> bytes:
        """The bytes that aiohttp would write, for requests that do not reach it. The caller closes the connection
        if the problem says `close`.
        """
        body = line(self.document())
        headers = {
            **_HEADERS,
            **self.headers,
            "Content-Length": str(len(body)),
            "Date": date.now().decode(),
            **({"Connection": "close"} if self.close else {}),
        }
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        return f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\n{lines}\r\n".encode() + body


def document(status: int, detail: str, field: str | None = None) -> bytes:
    content: dict[str, Any] = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status}
    content["detail"] = detail
    if field is not None:
        content["field"] = field[:LONGEST_FIELD].encode(errors="replace").decode()
    return orjson.dumps(content)


def problem_of(error: Exception) -> Problem:
    """The answer to a request that ended with this error. Overload is counted here, and mistakes of ours are logged."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, BodyError):
        return Problem(error.status, error.detail, field=error.field)
    if isinstance(error, CountersinkError):
        (metrics.LIMITED if isinstance(error, ShareError) else metrics.OVERLOADED).inc()
        return _of_error(error)
    _log.error("a request failed because of a bug in Countersink", exc_info=error)
    return Problem(500, "this is a bug in Countersink; its log says more")


def said_of(error: CountersinkError) -> str:
    """What clients are told of it."""
    return "stored data can't be read; the service's log says more" if isinstance(error, DamagedError) else str(error)


def _of_error(error: CountersinkError) -> Problem:
    """The answer to a request that failed before anything was promised. Clients send it again with the same id."""
    limit = error.limit if isinstance(error, DoubtfulError) else error
    if isinstance(limit, StorageFullError):
        return Problem(507, str(error), headers={"Retry-After": "10"})
    detail = said_of(error)
    retry_after = limit.retry_after if isinstance(limit, OverloadedError) else 1.0
    status = 429 if isinstance(limit, ShareError) else 503
    return Problem(status, detail, headers={"Retry-After": str(math.ceil(retry_after))})
