"""Holds every answer that the tests see against the OpenAPI document."""

from functools import cache
from typing import Any

import orjson
from jsonschema_rs import Draft202012Validator, meta

from ingest.api import openapi
from ingest.api.routes import find
from tests.http.answer import Answer

VERSION = "0.0.test"
METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
DOCUMENT: dict[str, Any] = orjson.loads(openapi.document(VERSION))
OPERATIONS = [(name.upper(), path) for path, item in DOCUMENT["paths"].items() for name in METHODS if name in item]
"""Method and path of each that it describes."""


def resolve(node: dict[str, Any]) -> dict[str, Any]:
    """What it is, or what its $ref stands for."""
    while "$ref" in node:
        here: Any = DOCUMENT
        for step in node["$ref"].removeprefix("#/").split("/"):
            here = here[step]
        node = here
    return node


@cache
def _validator(text: bytes) -> Draft202012Validator:
    # The document's own components are put beside the schema, so that its references lead there.
    schema = {**orjson.loads(text), "components": DOCUMENT["components"]}
    return Draft202012Validator(schema)


def check_value(value: Any, schema: dict[str, Any]) -> None:
    """Raise if the value does not fit the schema."""
    _validator(orjson.dumps(schema)).validate(value)


def fits(value: Any, schema: dict[str, Any]) -> bool:
    return _validator(orjson.dumps(schema)).is_valid(value)


def check_schema(schema: dict[str, Any]) -> None:
    """Raise if it is no JSON Schema."""
    meta.validate(schema)


def check_problem(answer: Answer) -> None:
    """An error says what is wrong, in the form that the document promises, and never that it is our fault."""
    assert answer.status < 500 or answer.status in {503, 507}, answer
    assert answer.headers["Content-Type"] == "application/problem+json", answer
    check_value(answer.json, {"$ref": "#/components/schemas/Problem"})
    assert answer.body.endswith(b"\n"), answer
    assert answer.json["status"] == answer.status
    assert len(answer.json["detail"]) > 10
    if answer.status in {429, 503, 507}:
        assert int(answer.headers["Retry-After"]) >= 1
    if answer.status == 405:
        assert answer.headers["Allow"]


def check(method: str, path: str, answer: Answer) -> None:
    """The document knows this answer to this request: its status, its headers, its type, its schema. It tells nobody
    which versions the service is made of.
    """
    assert answer.headers.get("Server", "Countersink") == "Countersink", answer
    if answer.status >= 400 and method != "HEAD":
        check_problem(answer)
    route = find("GET" if method == "HEAD" else method, path).route
    if route is not None and not route.tag:
        return  # of no interest to programs
    if route is None:
        assert answer.status in {204, 400, 401, 403, 404, 405, 422}, answer  # bad escapes come before anything else
        return
    known = DOCUMENT["paths"][route.path][route.method.lower()]
    assert str(answer.status) in known["responses"], f"{method} {path}: {answer} is not documented"
    response = resolve(known["responses"][str(answer.status)])
    for name, header in response.get("headers", {}).items():
        assert name in answer.headers or not header.get("required"), answer
    if answer.status == 304:
        return
    media_type = answer.headers["Content-Type"].partition(";")[0]
    assert media_type in response["content"], answer
    if method != "HEAD" and media_type.endswith(("/json", "+json")):
        assert answer.body.endswith(b"\n"), answer  # a shell's prompt begins on the next line
        check_value(answer.json, response["content"][media_type]["schema"])
