"""Builds queries as raw protobuf: which kind, how many results, in which order, under which conditions. Pure."""

from typing import Any, Final

from google.cloud.datastore_v1.types import query as _types

from shared.google.datastore.keys import EXPIRES
from shared.model.times import StoreMillis

KEY: Final = "__key__"
Operator: Final = _types.PropertyFilter.Operator
_Query: Final = _types.Query.pb()
_PropertyFilter: Final = _types.PropertyFilter.pb()
_AND: Final = 1
_ASCENDING: Final = 1
_DESCENDING: Final = 2


def query_of(kind: str, limit: int, *, order: str = "", descending: bool = False, keys_only: bool = False) -> Any:
    """Entities of a kind, `limit` of them at most. Without `order`, which names a property, their order is open."""
    query = _Query(kind=[{"name": kind}], limit={"value": limit})
    if order:
        query.order.add(direction=_DESCENDING if descending else _ASCENDING).property.name = order
    if keys_only:
        query.projection.add().property.name = KEY
    return query


def where(query: Any, name: str, operator: Any, **value: Any) -> Any:
    """Add a condition on a property, and return the query. `value` is one field of a protobuf `Value`."""
    condition = _PropertyFilter(property={"name": name}, op=operator, value=value)
    query.filter.composite_filter.op = _AND
    query.filter.composite_filter.filters.add(property_filter=condition)
    return query


def expired(kind: str, now: StoreMillis, limit: int) -> Any:
    """The entities that expired before `now`. They are whole, since keys alone have no versions."""
    time = {"seconds": now // 1_000, "nanos": now % 1_000 * 1_000_000}
    return where(query_of(kind, limit), EXPIRES, Operator.LESS_THAN, timestamp_value=time)
