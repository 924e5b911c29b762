"""The OpenAPI 3.1 document, made from the table of routes: schemas from the structs, words from the docstrings."""

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from types import NoneType
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec
import orjson
from msgspec import UNSET, Meta, Struct, UnsetType

from ingest.api import events, fields, increments, receipts
from ingest.api.fields import Body, Form, Header, Json, Nothing, Schema, hints_of, marks, ref
from ingest.api.routes import ROUTES, TEXT, Gives, Route, Takes
from ingest.http.bodies import CODINGS
from shared.http.answers import MOST_IN_PROBLEM

_DESCRIPTION: Final = f"""\
Counts exactly once. A 2xx answer to an increment is a promise, except with `ack=none`; anything else, or no answer, is
not: send the increment again **with the same id**.

Bodies are JSON in UTF-8 whatever their Content-Type, and no name may appear twice in an object; `Content-Encoding` may
be {" or ".join(CODINGS)}. Unknown fields and parameters are errors, except parameters of `/`, `/docs`, `/healthz`,
`/readyz`, `/metrics`, `/version` and this document. `HEAD` works wherever `GET` does. Errors are RFC 9457 problem
documents.

Operations with `security` need a key where a service has keys, and nothing where it has none.

Any request may be answered 400 if it is not valid HTTP, 408 if its headers do not arrive in time, 431 if a header is
longer than 8 KiB or there are too many headers, and 503 if too many clients are connected."""
_TAGS: Final = {
    "count": "Send increments",
    "read": "Read totals",
    "manage": "Change counters",
    "operate": "Run the service",
}
_FAILURES: Final = {
    400: "The request can't be read, or holds no valid increment. Nothing was counted.",
    401: "The service has keys, and there is no key, or it is not valid or has expired. Nothing was counted.",
    403: "This key may not do this, or not to this counter; or the web page that made a browser send the request may"
    " not. Nothing was counted.",
    404: "There is no such job or receipt, or it has been forgotten. Or this counter has no such picture or"
    " counts by time.",
    405: "The path does not take this method. `Allow` lists those that it takes.",
    408: "The body did not arrive in time. Nothing was counted.",
    409: "For a job: another job has this id, or the job is not done. For shards: fewer shards can't hold the value,"
    " or an ndb application writes to them, too.",
    413: "The body is too large (more than 1 MiB if it is about one counter) or compressed too much, has too many"
    " increments or other values, or names too many counters for one Idempotency-Key.",
    414: "The URL is longer than 16 KiB.",
    415: f"The Content-Encoding is not {', '.join(CODINGS)} or identity.",
    422: "A field, parameter or header is wrong: `field` names it. Nothing was counted.",
    429: "A limit is reached: the share of this client or this counter in what may wait, the rate of this key, the"
    " refused bytes of this client, the number of exports or of this owner's jobs, or COUNTERSINK_MAX_COUNTERS for a"
    " new name. Others are served. Send less at once, and try again after `Retry-After`, with the same ids.",
    503: "Too much is waiting, the broker or the store is not available, or a counter that is to be set can't be read"
    " exactly now. Try again after `Retry-After`.",
    507: "The disk is nearly full. Try again after `Retry-After`.",
}
_RETRY: Final = {
    "Retry-After": {"required": True, "schema": {"type": "integer", "minimum": 1}, "description": "Seconds."}
}
_HEADERS: Final[dict[int, dict[str, Any]]] = {
    **{
        status: {name: {"required": True, "schema": TEXT}}
        for status, name in ((401, "WWW-Authenticate"), (405, "Allow"), (415, "Accept-Encoding"))
    },
    **dict.fromkeys((429, 503, 507), _RETRY),
}
_MISSING: Final = (None, msgspec.NODEFAULT, "")
_EVERYWHERE: Final = (400, 403, 405, 414)
_SECURITY: Final = {
    "key": {
        "type": "http",
        "scheme": "bearer",
        "description": "A key, `csk_…` or `cpk_…`, where the service has keys; or an ID token of a service account of"
        " Google, for which there is a key. A requirement lists the scope that the key must have. A key may be held to"
        " prefixes of names.",
    },
    "publishableKey": {
        "type": "apiKey",
        "in": "query",
        "name": "key",
        "description": "A publishable key, `cpk_…`, for pages that can't set headers. It may only count and read"
        " counters, as its scopes say, and only from pages of its origins.",
    },
}
_PATH: Final = {
    "/v1/counters/": ("Percent-encoded, `/` as `%2F`.", ref("Name")),
    "/v1/jobs/": ("The id of the job.", ref("JobId")),
    "/v1/receipts/": ("The `receipt` of an answer.", receipts.RECEIPT),
}
"""What stands in paths: what it is, and its schema."""


class Problem(Json):
    type: Annotated[str, Meta(extra_json_schema={"enum": ["about:blank"]})]
    title: str
    status: Annotated[int, Meta(ge=400, le=599)]
    detail: str
    """What is wrong and what to do."""
    field: str | UnsetType = UNSET
    """The field, parameter or header that is wrong."""
    counters: Annotated[list[str], Meta(max_length=MOST_IN_PROBLEM)] | UnsetType = UNSET
    """The counters for which there is no room, of a request whose increments were all refused. Without them, it may be
    accepted.
    """


@cache
def document(version: str) -> bytes:
    return orjson.dumps(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Countersink",
                "version": version,
                "description": _DESCRIPTION,
                "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
            },
            "servers": [{"url": "/"}],
            "tags": [{"name": name, "description": description} for name, description in _TAGS.items()],
            "paths": _paths(),
            "components": {
                "schemas": _schemas(),
                "responses": {f"E{status}": _failure(status) for status in _FAILURES},
                "securitySchemes": _SECURITY,
            },
        }
    )


def _paths() -> Schema:
    paths: Schema = {}
    for route in ROUTES:
        if route.tag:
            paths.setdefault(route.path, _parameters_of_path(route.path))[route.method.lower()] = _operation(route)
    return paths


def _parameters_of_path(path: str) -> Schema:
    head, has_parameter, rest = path.partition("{")
    if not has_parameter:
        return {}
    description, schema = _PATH[head]
    name = rest.partition("}")[0]
    return {
        "parameters": [{"name": name, "in": "path", "required": True, "description": description, "schema": schema}]
    }


def _operation(route: Route) -> Schema:
    summary, _, description = _text(route.handler).partition("\n\n")
    good = {str(status): _good(gives, summary) for status, gives in route.answers().items()}
    statuses = sorted((*_EVERYWHERE, *route.fails, *([401] if route.need else [])))
    operation: Schema = {
        "operationId": _camel(route.handler.__name__),
        "tags": [route.tag],
        "summary": summary,
        "responses": good | {str(status): {"$ref": f"#/components/responses/E{status}"} for status in statuses},
    }
    if description:
        operation["description"] = _line(description)
    if (asks := route.asks()) and (parameters := [*_parameters(asks)]):
        operation["parameters"] = parameters
    if takes := route.takes or _json(route.body()):
        described = {"description": takes.description} if takes.description else {}
        content = {media_type: {"schema": schema} for media_type, schema in takes.content.items()}
        operation["requestBody"] = {"required": takes.required, **described, "content": content}
    if route.need:
        keys = [{"key": [scope]} for scope in sorted(route.need)]
        operation["security"] = keys + ([{"publishableKey": sorted(route.need)}] if route.need.counts else [])
    return operation


def _json(body: type[Body] | None) -> Takes | None:
    return None if body is None else Takes({"application/json": ref(body.__name__)}, required=body is not Nothing)


def _text(of: Any) -> str:
    """The docstring of a handler or a struct, with the constants of its module filled in."""
    return inspect.cleandoc(of.__doc__ or "").format_map(vars(sys.modules[of.__module__]))


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _good(gives: Gives, summary: str) -> Schema:
    what, description, media_type, headers, sometimes = gives
    schema = what if isinstance(what, dict) else ref(what.__name__)
    if not description:
        description = summary if isinstance(what, dict) else _line(_text(what)) or summary
    response: Schema = {"description": description}
    if headers or sometimes:
        response["headers"] = {
            name: {**({"required": True} if name in headers else {}), "schema": TEXT, "description": it}
            for name, it in {**headers, **sometimes}.items()
        }
    return response | ({"content": {media_type: {"schema": schema}}} if media_type else {})


def _failure(status: int) -> Schema:
    headers = {"headers": _HEADERS[status]} if status in _HEADERS else {}
    content = {"application/problem+json": {"schema": ref("Problem")}}
    return {"description": _FAILURES[status], **headers, "content": content}


def _parameters(asks: type[Struct]) -> Iterator[Schema]:
    hints, described = hints_of(asks), _described(asks)
    for one in msgspec.structs.fields(asks):
        hint = hints[one.encode_name]
        schema = _tidied(msgspec.json.schema(_without_null(hint)))
        yield {
            "name": one.encode_name,
            "in": "header" if any(marks(hint, Header)) else "query",
            "description": described[one.encode_name],
            **({"required": True} if one.required else {}),
            **({"explode": True} if schema.get("type") == "array" else {}),
            **({"example": schema.pop("examples")[0]} if "examples" in schema else {}),
            "schema": schema if one.default in _MISSING else {**schema, "default": one.default},
        }


@cache
def _classes(module: str) -> Mapping[str, ast.ClassDef]:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {one.name: one for one in tree.body if isinstance(one, ast.ClassDef)}


def _described(struct: type[Struct]) -> Mapping[str, str]:
    """What the strings behind the fields say of them, as everywhere in this code: by the names that clients use."""
    found: dict[str, str] = {}
    for owner in reversed(struct.__mro__):
        if not owner.__module__.startswith("ingest."):
            continue
        for here, behind in pairwise(_classes(owner.__module__)[owner.__name__].body):
            match here, behind:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = _line(text.format_map(vars(sys.modules[owner.__module__])))
    return {one.encode_name: found[one.name] for one in msgspec.structs.fields(struct) if one.name in found}


def _without_null(hint: Any) -> Any:
    """A parameter may be missing, but is never null."""
    if get_origin(hint) is Annotated:
        of, *notes = get_args(hint)
        return Annotated[_without_null(of), *notes]
    if NoneType in get_args(hint):
        (found,) = [one for one in get_args(hint) if one is not NoneType]
        return found
    return hint


def _structs() -> Iterator[type[Struct]]:
    """All that are bodies or answers, and parts of these."""
    waiting: list[Any] = [Problem]
    for route in ROUTES:
        waiting += [route.body(), *(gives.what for gives in route.answers().values())]
    while waiting:
        hint = waiting.pop()
        waiting += get_args(hint)
        if isinstance(hint, type) and issubclass(hint, Struct):
            waiting += hints_of(hint).values()
            yield hint


def _schemas() -> Schema:
    structs = {struct.__name__: struct for struct in _structs()}
    _, found = msgspec.json.schema_components([*structs.values()], ref_template="#/components/schemas/{name}")
    for name, struct in structs.items():
        schema = found[name]
        if "description" in schema:
            schema["description"] = _text(struct)
        for field, description in _described(struct).items():
            schema["properties"][field]["description"] = description
        if issubclass(struct, Body) and struct.forms:
            schema["anyOf"] = [_form(schema["properties"], form) for form in struct.forms]
            for gone in ("type", "properties", "required", "additionalProperties"):
                del schema[gone]
    return {**fields.NAMED, **increments.SCHEMAS, **events.SCHEMAS, **_tidied(found)}


def _form(properties: Schema, form: Form) -> Schema:
    known = {name: properties[name] for name in (*form.required, *form.optional)}
    for name, value in form.consts.items():
        known[name] = {"const": value} | {key: it for key, it in properties[name].items() if key == "description"}
    examples = {"examples": [form.example]} if form.example else {}
    return fields.an_object(known, optional=form.optional, **examples)


def _tidied(node: Any) -> Any:
    """The schema without what says nothing: titles, and everything next to a reference except its description."""
    if isinstance(node, list):
        return [_tidied(one) for one in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return {name: node[name] for name in ("$ref", "description") if name in node}
    found = {name: _tidied(value) for name, value in node.items() if name != "title" or not isinstance(value, str)}
    if isinstance(found.get("description"), str):
        found["description"] = _line(found["description"])
    return found


def _line(text: str) -> str:
    return " ".join(text.split())
