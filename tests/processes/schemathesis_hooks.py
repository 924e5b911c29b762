"""What the OpenAPI document says in words, since its schemas can't: hooks of schemathesis, see test_schemathesis.py."""

from collections.abc import Mapping
from typing import Any

import schemathesis

from ingest.api.counters import NOT_BESIDE

MOST_SHARDS = 100
_SENT: dict[str, str] = {}
"""By each id, what was sent first under it."""


@schemathesis.hook
def map_query(_: schemathesis.HookContext, query: Any) -> Any:
    """Most queries that say `ack` say more, which is refused: leave that away, since too many would be left out."""
    if isinstance(query, dict) and "ack" in query:
        return {name: value for name, value in query.items() if name not in {"wait", "return"}}
    return query


@schemathesis.hook
def filter_case(_: schemathesis.HookContext, case: schemathesis.Case[Any]) -> bool:
    """Leave out what fits each schema, and is refused all the same."""
    query = case.query or {}
    body: dict[str, Any] = case.body if isinstance(case.body, dict) else {}
    shards = body.get("shards")
    return not (
        ("ack" in query and query.keys() & {"wait", "return"})
        or any(query.keys() & set(others) for first, others in NOT_BESIDE.items() if _has(query, first))
        or "page_token" in query  # is of an answer before
        or ("by" in query and "delta" in body)
        or (isinstance(shards, int) and shards > MOST_SHARDS)
        or _has_whole_float(case.body)
        or _comes_again_with_something_else(case)
    )


def _has(query: Mapping[str, Any], asked: str) -> bool:
    name, _, value = asked.partition("=")
    return name in query and value in ("", query[name])  # a list is not hashable


def _comes_again_with_something_else(case: schemathesis.Case[Any]) -> bool:
    if isinstance(case.body, list) and case.path == "/v1/events":
        return any(_is_other(one.get("id"), repr(one)) for one in case.body if isinstance(one, dict))
    body: dict[str, Any] = case.body if isinstance(case.body, dict) else {}
    headers: Mapping[str, Any] = case.headers or {}
    id_ = body.get("id") or headers.get("Idempotency-Key")
    content = repr((case.path_parameters, case.query, case.body))
    return _is_other(id_, repr(body) if case.path == "/v1/events" else content)


def _is_other(id_: Any, content: str) -> bool:
    return isinstance(id_, str) and _SENT.setdefault(id_, content) != content


def _has_whole_float(value: Any) -> bool:
    """For JSON Schema 1.0 is an integer, for Countersink it is none."""
    if isinstance(value, dict):
        return any(map(_has_whole_float, value.values()))
    if isinstance(value, list):
        return any(map(_has_whole_float, value))
    return isinstance(value, float) and value.is_integer()
