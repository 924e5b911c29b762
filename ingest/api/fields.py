"""The fields of parameters, bodies and answers: how each is read, what is wrong with one, and what its schema says.

A route's parameters are a `Struct`: `read_parameters` fills it from the query and the headers. A JSON body is one, too:
`read_body` fills it, and refuses what `Flaw` finds. The OpenAPI document is made from the same structs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from msgspec import Meta, Struct
from msgspec.structs import fields
from multidict import CIMultiDictProxy

from ingest.http.requests import Query, idempotency_key_of, page_token_of
from ingest.parsing.parse import ObjectShape, flaw_of_flag
from shared.counters.reader import LONGEST_AGE
from shared.model.buckets import DAY, LENGTHS
from shared.model.jobs import LONGEST_ID, flaw_of_prefix
from shared.model.receipts import CLIENT_IDS_REMEMBERED
from shared.model.words import MAX_DELTA, MAX_ID_BYTES, MAX_NAME_BYTES, flaw_of_delta
from shared.wire.strict_json import or_null

S = TypeVar("S", bound=Struct)
B = TypeVar("B", bound="Body")
Schema = dict[str, Any]
Headers = CIMultiDictProxy[str]


class Flaw(NamedTuple):
    of: Callable[[Any], str | None]


class Read(NamedTuple):
    """How a parameter is read. By itself, text is taken as it is, a list takes all values, and a choice is checked."""

    of: Callable[[Query, str], Any]


class Header(NamedTuple):
    """The parameter is a header, and read like this."""

    of: Callable[[Headers], Any]


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def is_a(name: str) -> Meta:
    return Meta(extra_json_schema=ref(name))


def an_object(properties: Schema, *, optional: tuple[str, ...] = (), **more: Any) -> Schema:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False, **more}


NAMED: Final[Schema] = {
    "Name": {
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_NAME_BYTES,
        # No controls; not '.', '..' or '__…__'. Without look-ahead, which many tools do not understand.
        "pattern": r"^[^\u0000-\u001f\u007f-\u009f]+$",
        "not": {"anyOf": [{"enum": [".", ".."]}, {"pattern": "^__.*__$"}]},
        "description": f"1 to {MAX_NAME_BYTES} bytes of UTF-8.",
        "examples": ["page:/home"],
    },
    "Id": {
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_ID_BYTES,
        "description": f"1 to {MAX_ID_BYTES} bytes of UTF-8. It counts once per counter, for at least"
        f" {CLIENT_IDS_REMEMBERED // DAY} days.",
    },
    "Delta": {"type": "integer", "minimum": -MAX_DELTA, "maximum": MAX_DELTA, "default": 1},
    "JobId": {"type": "string", "pattern": "^[0-9A-Za-z][-0-9A-Za-z_.]*$", "maxLength": LONGEST_ID},
}

Name = Annotated[str, is_a("Name")]
Id = Annotated[str, is_a("Id")]
JobId = Annotated[str, is_a("JobId")]
Delta = Annotated[int, Flaw(flaw_of_delta), is_a("Delta")]
Value = Annotated[int, Flaw(flaw_of_delta), Meta(ge=-MAX_DELTA, le=MAX_DELTA)]
Flag = Annotated[bool, Flaw(flaw_of_flag)]
Count = Annotated[int, Meta(ge=0)]
ShardNumber = Annotated[int, Flaw(lambda _: None), Meta(ge=1)]
"""The largest one is a setting, so the handler of a body checks it."""
Instant = Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")]
When = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
By = Annotated[str, Meta(extra_json_schema={"enum": [*LENGTHS]})]
Prefix = Annotated[
    str,
    Flaw(flaw_of_prefix),
    Meta(max_length=MAX_NAME_BYTES, description="What the names of the counters begin with. Empty for all counters."),
]
Part = Annotated[str, Meta(max_length=MAX_NAME_BYTES)]
PageToken = Annotated[str, Read(lambda query, _: page_token_of(query))]


class Age(Struct):
    max_age: Annotated[float | None, Read(partial(Query.seconds, most=LONGEST_AGE)), Meta(ge=0)] = None
    """How many seconds old the cached part of the answer may be. More than {LONGEST_AGE:g} is read as {LONGEST_AGE:g}.
    Pending increments are never cached.
    """


Once = Annotated[str | None, Header(idempotency_key_of), is_a("Id")]
ONCE: Final = "Idempotency-Key"


class Json(Struct, forbid_unknown_fields=True):
    """An object without other fields than these."""


class Body(Json):
    """A JSON body: each field has a `Flaw`."""

    like: ClassVar[str]
    """What a client has to send, as the end of "the body must be …"."""
    forms: ClassVar[Sequence["Form"]] = ()
    """The combinations of fields that are allowed, if not all are."""


class Form(NamedTuple):
    consts: Mapping[str, Any]
    """The fields with a single value."""
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    example: Mapping[str, Any] | None = None


class Nothing(Body):
    """The body may also be missing."""

    like = "empty"


class AnyParameters(Struct):
    """The query is not read."""


def hints_of(struct: type[Struct]) -> Mapping[str, Any]:
    """The types of its fields, with what they are annotated with, by the names that clients use."""
    hints = get_type_hints(struct, include_extras=True)
    return {field.encode_name: hints[field.name] for field in fields(struct)}


def marks(hint: Any, kind: type[Any]) -> Iterator[Any]:
    """The annotations of this kind anywhere in the type."""
    yield from (mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, kind))
    for part in get_args(hint):
        if part is not hint and not isinstance(part, str | int):
            yield from marks(part, kind)


class _Parameters(NamedTuple):
    """How a struct is filled: for each field its name here, the client's name, and how it is read."""

    in_query: list[tuple[str, str, Callable[[Query, str], Any]]]
    always: frozenset[str]
    """The parameters that are also read if they are missing, to raise the error."""
    in_headers: list[tuple[str, str, Callable[[Headers], Any]]]
    defaults: Struct | None
    """The struct of a request without parameters."""


@cache
def _parameters(struct: type[Struct]) -> _Parameters:
    in_query, in_headers, hints = [], [], hints_of(struct)
    for field in fields(struct):
        hint = hints[field.encode_name]
        if header := next(marks(hint, Header), None):
            in_headers.append((field.name, field.encode_name, header.of))
        else:
            read = next(marks(hint, Read), None)
            in_query.append((field.name, field.encode_name, read.of if read else _of_type(hint)))
    required = frozenset(field.encode_name for field in fields(struct) if field.required)
    return _Parameters(in_query, required, in_headers, None if required else struct())


def _of_type(hint: Any) -> Callable[[Query, str], Any]:
    """How a parameter is read that does not say it."""
    for part in types_in(hint):
        if get_origin(part) is list:
            return Query.all
        if get_origin(part) is Literal:
            choices = get_args(part)
            return lambda query, name: query.choice(name, *choices)
    return Query.one


def types_in(hint: Any) -> Iterator[Any]:
    """The type without annotations, or those of a union."""
    if get_origin(hint) is Annotated:
        yield from types_in(get_args(hint)[0])
    elif get_origin(hint) in {Union, UnionType}:
        for part in get_args(hint):
            yield from types_in(part)
    else:
        yield hint


def read_parameters(struct: type[S], query: Query, headers: Headers) -> S:
    """The parameters of a request. Raises a `Problem` if one is wrong, or is not known."""
    in_query, always, in_headers, defaults = _parameters(struct)
    values = {}
    if struct is not AnyParameters and (query.given or always):
        for attribute, name, read in in_query:
            if name in query.given or name in always:
                values[attribute] = read(query, name)
        query.done()
    for attribute, name, read_header in in_headers:
        if name in headers:
            values[attribute] = read_header(headers)
    return struct(**values) if values or defaults is None else defaults  # type: ignore[return-value] # its own defaults


@cache
def _shape(struct: type[Body]) -> tuple[ObjectShape, Mapping[str, str]]:
    flaws = {}
    for name, hint in hints_of(struct).items():
        of = next(marks(hint, Flaw)).of
        flaws[name] = or_null(of) if NoneType in types_in(hint) else of
    required = tuple(field.encode_name for field in fields(struct) if field.required)
    names = {field.encode_name: field.name for field in fields(struct)}
    return ObjectShape(struct.like, flaws, required), names


def read_body(struct: type[B], body: bytes) -> B:
    """The fields of a JSON body. Raises a `BodyError` if one is wrong."""
    shape, names = _shape(struct)
    return struct(**{names[name]: value for name, value in shape.read(body).items()})
