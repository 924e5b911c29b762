"""Owns what a client sees when something is wrong: RFC 9457 problem documents."""

import math
from http import HTTPStatus
from typing import Any, Final

import orjson
from aiohttp import web

from shared.errors import CountersinkError, OverloadedError, StorageFullError

_HEADERS: Final = {"Content-Type": "application/problem+json"}


class Problem(Exception):  # noqa: N818 (the RFC's word)
    """Ends a request with this status. `detail` says what to do; `field` names what is wrong."""

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
            body=document(self.status, self.detail, self.field),
            headers={**_HEADERS, **self.headers},
        )
        if self.close:
            response.force_close()
        return response


def document(status: int, detail: str, field: str | None = None) -> bytes:
    content: dict[str, Any] = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status}
    content["detail"] = detail
    if field is not None:
        content["field"] = field.encode(errors="replace").decode()
    return orjson.dumps(content)


def of_error(error: CountersinkError) -> Problem:
    """Nothing was promised: send it again with the same id."""
    if isinstance(error, StorageFullError):
        return Problem(507, str(error), headers={"Retry-After": "10"})
    retry_after = error.retry_after if isinstance(error, OverloadedError) else 1.0
    return Problem(503, str(error), headers={"Retry-After": str(math.ceil(retry_after))})
