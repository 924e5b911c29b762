"""Tells a client what went wrong: as an RFC 9457 problem document."""

import logging
import math
from collections.abc import Sequence

from aiohttp import web

from ingest.parsing.parse import BodyError
from shared.http import answers
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


class Problem(Exception):  # noqa: N818 (the RFC's word)
    """Ends a request with this status. `detail` says what is wrong and what to do; `field` names the field, parameter
    or header; `counters` those that are new and have no room. `close` ends the connection after the answer.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        field: str | None = None,
        counters: Sequence[str] = (),
        headers: dict[str, str] | None = None,
        close: bool = False,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.field = field
        self.counters = counters
        self.headers = headers or {}
        self.close = close

    def response(self) -> web.Response:
        response = web.Response(
            status=self.status, body=answers.line(self.document()), headers={**answers.PROBLEM, **self.headers}
        )
        if self.close:
            response.force_close()
        return response

    def document(self) -> bytes:
        return answers.document(self.status, self.detail, self.field, self.counters)

    async def answer(self, _: web.BaseRequest) -> web.Response:
        return self.response()

    def written(self) -> bytes:
        """The bytes that aiohttp would write, for requests that do not reach it. The caller closes the connection
        if the problem says `close`.
        """
        return answers.problem(self.status, self.detail, field=self.field, headers=self.headers, close=self.close)


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
    return "stored data can't be read; the service's log says more" if isinstance(error, DamagedError) else str(error)


def _of_error(error: CountersinkError) -> Problem:
    """The answer to a request that failed before anything was promised. Clients send it again with the same id."""
    limit = error.limit if isinstance(error, DoubtfulError) else error
    if isinstance(limit, StorageFullError):
        return Problem(507, str(error), headers={"Retry-After": "10"})
    detail = said_of(error)
    retry_after = limit.retry_after if isinstance(limit, OverloadedError) else 1.0
    counters = limit.counters if isinstance(limit, ShareError) else ()
    status = 429 if isinstance(limit, ShareError) else 503
    return Problem(status, detail, counters=counters, headers={"Retry-After": str(math.ceil(retry_after))})
