"""Names the kinds and keys in Datastore, and builds entities, queries and mutations as raw protobuf. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Final

from google.cloud.datastore_v1.types import entity as _entity
from google.cloud.datastore_v1.types import query as _types

from shared.model.buckets import NEVER, StoreMillis
from shared.model.errors import RefusedError, SettingsError
from shared.model.words import Receipt, last_name, shard_key

Key = Any

COUNT: Final = "count"
NUM_SHARDS: Final = "num_shards"
EXPIRES: Final = "expires"
STATE: Final = "state"
NOTE: Final = "note"
ENVELOPE: Final = "envelope"
DELETED: Final = "deleted"
LAST: Final = "last"
_END: Final = 2.0**63
_EXACT_DOUBLES: Final = 2.0**52
"""Doubles below it hold every whole number exactly, with room for more to be added."""
DEAD: Final = "dead"
"""In a guard: the counter has had a dead receipt. In a receipt: it is a dead receipt with a body."""
COUNTERS: Final = "counters"
BODY: Final = "body"
PROBE: Final = "probe-"
"""The keys of scratch entities begin so: they are among the receipts, since old ones are deleted there."""
_Key: Final = _entity.Key.pb()
_Entity: Final = _entity.Entity.pb()


@dataclass(frozen=True, slots=True)
class Kinds:
    """The first two are those of Google's published example. They are settings: applications may have chosen others.

    The rest are ours. They are fixed, since processes with different kinds would not see each other's receipts.
    """

    config: str = "GeneralCounterShardConfig"
    shard: str = "GeneralCounterShard"
    receipt: str = "CountersinkReceipt"
    guard: str = "CountersinkGuard"
    mark: str = "CountersinkMark"
    buckets: str = "CountersinkBuckets"
    job: str = "CountersinkJob"
    task: str = "CountersinkTask"
    fleet: str = "CountersinkFleet"
    owed: str = "CountersinkOwed"
    added: str = "CountersinkAdded"
    reached: str = "CountersinkReached"

    def __post_init__(self) -> None:
        """Check that all kinds differ. If config and guard were of one kind, a set would erase the number of shards."""
        kinds = [getattr(self, item.name) for item in fields(self)]
        if len({*kinds}) < len(kinds):
            raise SettingsError(
                f"COUNTERSINK_KIND_CONFIG={self.config!r} and COUNTERSINK_KIND_SHARD={self.shard!r}: they must"
                f" differ from each other and from Countersink's own kinds: {', '.join(kinds[2:])}"
            )


@dataclass(frozen=True, slots=True)
class DatastorePlace:
    """A namespace of a database, and the kinds in it."""

    project: str
    database: str = ""
    namespace: str = ""
    kinds: Kinds = Kinds()

    def key(self, kind: str, name: str) -> Key:
        key = _Key()
        partition = key.partition_id
        partition.project_id = self.project
        partition.database_id = self.database
        partition.namespace_id = self.namespace
        element = key.path.add()
        element.kind = kind
        element.name = name
        return key

    def entity(self, key: Key) -> Any:
        return _Entity(key=key)

    def config(self, counter: str) -> Key:
        return self.key(self.kinds.config, counter)

    def shard(self, counter: str, index: int) -> Key:
        return self.key(self.kinds.shard, shard_key(counter, index))

    def shards(self, counter: str, begin: int, end: int) -> Iterable[Key]:
        return (self.shard(counter, index) for index in range(begin, end))

    def owed(self, counter: str, index: int) -> Key:
        return self.key(self.kinds.owed, shard_key(counter, index))

    def receipt(self, key: str) -> Key:
        return self.key(self.kinds.receipt, key)

    def nothing(self) -> Key:
        """The key of an entity that never exists."""
        return self.receipt("nothing")

    @property
    def partition(self) -> Any:
        """Project, database and namespace, as a raw protobuf PartitionId."""
        return self.nothing().partition_id

    def guard(self, counter: str) -> Key:
        return self.key(self.kinds.guard, counter)

    def receipt_entity(self, receipt: Receipt) -> Any:
        entity = _Entity(key=self.receipt(receipt.key))
        if receipt.expires:
            entity.properties[EXPIRES].timestamp_value.FromMilliseconds(receipt.expires)
        unindexed(entity, STATE).string_value = receipt.state
        if receipt.note:
            unindexed(entity, NOTE).blob_value = receipt.note
        if receipt.envelope:
            entity.properties[ENVELOPE].string_value = receipt.envelope
        if receipt.body:
            entity.properties[DEAD].boolean_value = True
            unindexed(entity, BODY).blob_value = receipt.body
            for counter in receipt.counters:
                entity.properties[COUNTERS].array_value.values.add().string_value = counter
        return entity


def unindexed(entity: Any, name: str) -> Any:
    """The value of a property that no index holds, to be filled in."""
    value = entity.properties[name]
    value.exclude_from_indexes = True
    return value


def name_of(key: Key) -> tuple[str, str]:
    """The kind and the name of the entity."""
    element = key.path[-1]
    return element.kind, element.name


def shard_of(key: Key) -> tuple[str, int] | None:
    """Counter and index; None if it is no shard of ours."""
    counter, dash, index = name_of(key)[1].removeprefix("shard-").rpartition("-")
    own = dash and index.isdecimal() and name_of(key)[1] == shard_key(counter, int(index))
    return (counter, int(index)) if own else None


def whole(value: Any) -> int | None:
    """The whole number in a value, which another application may have stored as a double; None if it holds none."""
    match value.WhichOneof("value_type"):
        case "integer_value":
            return int(value.integer_value)
        case "double_value" if value.double_value.is_integer() and abs(value.double_value) < _END:
            return int(value.double_value)
    return None


def integer(entity: Any, name: str) -> int:
    """The whole number in a property; 0 if the property is missing or holds something else, which `flaw_of` tells."""
    return (whole(entity.properties[name]) or 0) if name in entity.properties else 0


def flaw_of(entity: Any, name: str) -> str:
    """Why a property cannot be read as a whole number; empty if it can, or if it is missing."""
    if name not in entity.properties or whole(entity.properties[name]) is not None:
        return ""
    what = str(entity.properties[name].WhichOneof("value_type")).removesuffix("_value")
    return f"{name} of {said(entity.key)} is no whole number, but a {what}"


def inexact(value: Any) -> bool:
    """Whether the server cannot add to a value exactly: it is no whole number, or too large a double."""
    what = value.WhichOneof("value_type")
    if what == "double_value":
        return whole(value) is None or abs(value.double_value) >= _EXACT_DOUBLES
    return what not in {None, "integer_value"}


def number_in(config: Any) -> int:
    """The number of shards in a config that was looked up; 0 if there is none. `RefusedError` if it cannot be read: a
    guess would hide shards from readers.
    """
    if config is None:
        return 0
    if flaw := flaw_of(config.entity, NUM_SHARDS):
        raise RefusedError(flaw)
    return integer(config.entity, NUM_SHARDS)


def said(key: Key) -> str:
    return " ".join(f"{element.kind} {element.name or element.id}" for element in key.path)


def receipt_of(entity: Any) -> Receipt:
    properties = entity.properties
    expires = properties[EXPIRES].timestamp_value.ToMilliseconds() if EXPIRES in properties else NEVER
    note = properties[NOTE].blob_value if NOTE in properties else b""
    counters = [one.string_value for one in properties[COUNTERS].array_value.values] if COUNTERS in properties else ()
    body = properties[BODY].blob_value if BODY in properties else b""
    envelope = properties[ENVELOPE].string_value if ENVELOPE in properties else ""
    state = properties[STATE].string_value
    return Receipt(name_of(entity.key)[1], StoreMillis(expires), state, note, tuple(counters), body, envelope)


# Builds queries as raw protobuf: which kind, how many results, in which order, under which conditions. Pure.


KEY: Final = "__key__"
FIRST: Final = "\x00"
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


def within(query: Any, place: DatastorePlace, prefix: str, after: str = "", until: str | None = None) -> Any:
    """Add the condition that key names begin with the prefix, come behind `after`, and not behind `until`. Returns the
    query.
    """
    kind = query.kind[0].name
    # One lower bound: the later of the two. Bytes of UTF-8 are in the order of code points, as strings are here.
    begin, operator = (after, Operator.GREATER_THAN) if after >= prefix else (prefix, Operator.GREATER_THAN_OR_EQUAL)
    # Without a lower bound the query would also find entities of others that have numbers for names.
    where(query, KEY, operator, key_value=place.key(kind, begin or FIRST))
    return where(query, KEY, Operator.LESS_THAN_OR_EQUAL, key_value=place.key(kind, last_name(prefix, until)))


def expired(kind: str, now: StoreMillis, limit: int) -> Any:
    """The entities that expired before `now`. They are whole, since keys alone have no versions."""
    time = {"seconds": now // 1_000, "nanos": now % 1_000 * 1_000_000}
    return where(query_of(kind, limit), EXPIRES, Operator.LESS_THAN, timestamp_value=time)


# Builds the mutations of commits as raw protobuf. Pure.


_CONFLICT_FAILS: Final = 3
"""The conflict strategy FAIL. Without it, a mutation with a `base_version` overwrites silently."""


def only_over(version: int, mutation: Any) -> None:
    """Make the commit fail if the entity does not have this version any more."""
    mutation.base_version = version
    mutation.conflict_resolution_strategy = _CONFLICT_FAILS


def write(request: Any, entity: Any, version: int) -> Any:
    """Write an entity over this version, or insert it if that is 0. Returns the entity in the request, to be changed.
    The commit fails if it has another version by then.
    """
    mutation = request.mutations.add()
    if not version:
        mutation.insert.CopyFrom(entity)
        return mutation.insert
    mutation.update.CopyFrom(entity)
    only_over(version, mutation)
    return mutation.update


def rewrite(request: Any, seen: Any) -> Any:
    """Write an entity over the version in which it was seen. Returns it, to be changed."""
    return write(request, seen.entity, seen.version)


def delete(request: Any, seen: Any) -> None:
    """Delete an entity in the version in which it was seen."""
    mutation = request.mutations.add()
    mutation.delete.CopyFrom(seen.entity.key)
    only_over(seen.version, mutation)


def transform(mutation: Any, key: Key, name: str, *, update: bool) -> Any:
    """Let the server change one property of an entity, which it makes if that is missing and this is no `update`.
    Returns the transform, to be filled in.
    """
    (mutation.update if update else mutation.upsert).key.CopyFrom(key)
    mutation.property_mask.SetInParent()  # an empty mask; without a mask the entity would be replaced first
    made = mutation.property_transforms.add()
    made.property = name
    return made


def version_of(found: Any) -> int:
    """The version in which an entity was found; 0 if it is None."""
    return int(found.version) if found is not None else 0
