"""What a request says besides its body: path, query, headers; and what its handler sees of it (`Call`)."""

import base64
import math
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from aiohttp import web
from msgspec import Struct
from msgspec.json import Encoder
from multidict import CIMultiDictProxy

from ingest.access.callers import Caller
from ingest.http.bodies import Bodies
from ingest.http.problems import Problem
from shared.model.jobs import flaw_of_prefix
from shared.model.words import flaw_of_id, flaw_of_name

COUNTERS: Final = "/v1/counters/"
"""How the paths of counters begin."""
_BAD_ESCAPE: Final = re.compile("%(?![0-9a-fA-F]{2})")
_DECIMAL: Final = frozenset("0123456789.+-eE")


class Query:
    """The query of a request. A handler takes the parameters that it knows and then calls `done`, which refuses any
    that are left.
    """

    def __init__(self, text: str) -> None:
        self.given: dict[str, list[str]] = {}
        if not text:
            return
        try:
            if not text.isascii():
                text.encode()  # fails if the bytes were not UTF-8
            if "%" in text and _BAD_ESCAPE.search(text):
                raise ValueError
            pairs = parse_qsl(text, keep_blank_values=True, errors="strict")
        except ValueError:
            raise Problem(400, "the query is not valid percent-encoded UTF-8", field="query") from None
        for name, value in pairs:
            self.given.setdefault(name, []).append(value)

    def all(self, name: str) -> list[str]:
        return self.given.pop(name, [])

    def one(self, name: str) -> str | None:
        values = self.given.pop(name, None)
        if values is None:
            return None
        if len(values) > 1:
            raise Problem(422, f"'{name}' is in the query {len(values)} times: send it once", field=name)
        return values[0]

    def choice(self, name: str, *choices: str) -> str | None:
        value = self.one(name)
        if value is not None and value not in choices:
            raise Problem(422, f"'{name}' must be {' or '.join(map(repr, choices))}", field=name)
        return value

    def seconds(self, name: str, most: float) -> float | None:
        """A number of seconds. A number above `most` is read as `most`."""
        value = self.one(name)
        if value is None:
            return None
        try:
            number = float(value) if _DECIMAL.issuperset(value) else math.nan
        except ValueError:
            number = math.nan
        if not number >= 0:
            raise Problem(422, f"'{name}' must be a number of seconds, 0 or more", field=name)
        return min(number, most)

    def done(self) -> None:
        for name in self.given:
            raise Problem(422, f"unknown parameter {name[:100]!r} in the query", field=name)


def target_of(request: web.BaseRequest) -> tuple[str, str]:
    path, _, query = request.raw_path.partition("?")
    if path.startswith("/"):
        return path, query
    return request.rel_url.raw_path, request.rel_url.raw_query_string  # absolute form, as proxies send it


def page_token(last: str) -> str:
    return base64.urlsafe_b64encode(last.encode()).decode()


def page_token_of(query: Query) -> str:
    """The name in the request's page token; empty if there is none."""
    token = query.one("page_token")
    if not token:
        return ""
    bad = Problem(422, "'page_token' must be the next_page_token of an answer", field="page_token")
    try:
        name = base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except ValueError:
        raise bad from None
    if flaw_of_prefix(name):
        raise bad
    return name


def limit_of(query: Query, most: int) -> int | None:
    """The number of items that a page may have, if the request says it."""
    text = query.one("limit")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20 and 1 <= int(text) <= most):  # noqa: PLR2004 (more digits are too many for any limit)
        raise Problem(422, f"'limit' must be a whole number from 1 to {most}", field="limit")
    return int(text)


def name_of(segment: str) -> str:
    """The counter's name from a segment of the path; raises a `Problem` if it is not a valid one."""
    name = unescape(segment, "name")
    if flaw := flaw_of_name(name):
        raise Problem(422, f"the counter's name {flaw}", field="name")
    return name


def unescape(segment: str, field: str) -> str:
    if "%" not in segment:
        return segment
    try:
        if _BAD_ESCAPE.search(segment):
            raise ValueError
        return unquote(segment, errors="strict")
    except ValueError:
        raise Problem(400, f"the {field} in the path is not valid percent-encoded UTF-8", field=field) from None


def idempotency_key_of(headers: CIMultiDictProxy[str]) -> str | None:
    key = headers.get("Idempotency-Key")
    if key is not None:
        flaw = flaw_of_id(key)
        if len(headers.getall("Idempotency-Key")) > 1:
            flaw = "was sent more than once: send one"
        if flaw:
            raise Problem(422, f"the header Idempotency-Key {flaw}", field="Idempotency-Key")
    return key


# One request as its handler sees it, and the handler's reply.


encode: Final = Encoder().encode
"""The JSON of a struct, with integers of any size."""


class Reply(NamedTuple):
    """JSON, or what becomes JSON, with another status than 200 or with headers of its own. It is sent as a line."""

    body: "bytes | Struct | dict[str, Any]"
    status: int = 200
    headers: Mapping[str, str] = {}
    """Besides the headers of all JSON answers."""


class File(NamedTuple):
    """An answer that is no JSON, or has an `ETag`: these bytes and these headers, as they are."""

    body: bytes
    headers: Mapping[str, str]
    status: int = 200


class Call:
    """The caller, and what its route does not declare of a request as a parameter. Only what reads the body from
    `bodies`, streams, or waits, uses `request`.
    """

    __slots__ = ("bodies", "caller", "request", "shows")

    def __init__(self, request: web.BaseRequest, caller: Caller, bodies: Bodies, shows: Mapping[str, str]) -> None:
        self.request = request
        self.caller = caller
        self.bodies = bodies
        self.shows = shows
        """The headers with which the page of another site sees the answer. Only a stream has to send them itself."""

    @property
    def headers(self) -> CIMultiDictProxy[str]:
        return self.request.headers

    @property
    def only_head(self) -> bool:
        """Whether the method is HEAD: the answer's body is not sent."""
        return self.request.method == "HEAD"

    def cached(self, body: bytes, headers: Mapping[str, str]) -> File:
        """An answer, or a 304 if the client has the one with its `ETag`."""
        known = self.headers.get("If-None-Match", "")
        has_it = known.strip() == "*" or headers["ETag"] in [one.strip().removeprefix("W/") for one in known.split(",")]
        return File(b"", headers, 304) if has_it else File(body, headers)
