"""What becomes of the reply of a handler: all JSON is a line and has the usual headers, with others beside them."""

from typing import Any

import pytest
from aiohttp import web

from ingest.http.requests import File, Reply
from ingest.http.router import _answer_of
from shared.http.answers import JSON

LOCATION = {"Location": "/v1/receipts/x"}


@pytest.mark.parametrize(
    ("reply", "status", "body", "headers"),
    [
        (b"{}", 200, b"{}\n", JSON),
        ({"a": 1}, 200, b'{"a":1}\n', JSON),
        (Reply(b"{}", 202), 202, b"{}\n", JSON),
        (Reply(b"{}", 202, LOCATION), 202, b"{}\n", JSON | LOCATION),
        (Reply({"a": 1}, 202, LOCATION), 202, b'{"a":1}\n', JSON | LOCATION),
        (File(b"GIF", {"Content-Type": "image/gif"}), 200, b"GIF", {"Content-Type": "image/gif"}),
        (File(b"", {"ETag": '"x"'}, 304), 304, None, {"ETag": '"x"'}),
    ],
)
def test_json_is_a_line_and_a_file_is_as_it_is(reply: Any, status: int, body: bytes | None, headers: Any) -> None:
    answer = _answer_of(reply)
    assert isinstance(answer, web.Response)
    assert (answer.status, answer.body, dict(answer.headers)) == (status, body, dict(headers))
