"""The schemas of the OpenAPI document, for bodies and parameters."""

from typing import Any, Final

from ingest.parsing.parse import MOST_REJECTIONS
from ingest.publishing.coalescer import MAX_ENTRIES
from shared.model.buckets import LENGTHS
from shared.model.jobs import ADD, COMPACT, DONE, EXACT, EXPORT, FAILED, KINDS, LONGEST_ID, RUNNING
from shared.model.words import MAX_DELTA, MAX_ID_BYTES, MAX_NAME_BYTES
from shared.wire.content import MAX_ITEMS

Schema = dict[str, Any]


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(properties: Schema, *, optional: tuple[str, ...] = (), **more: Any) -> Schema:
    """An object without other properties than these."""
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
        **more,
    }


def form(*fields: str, required: str = "") -> Schema:
    """The fields of an increment in a form."""
    schemas = {"counter": ref("Name"), "delta": ref("Delta"), "id": ref("Id")}
    optional = tuple(name for name in fields if name != required)
    return _object({name: schemas[name] for name in fields}, optional=optional)


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _is(schema: Schema, description: str, **more: Any) -> Schema:
    return {**schema, **more, "description": description}


WHOLE: Final[Schema] = {"type": "integer"}
VALUE: Final[Schema] = {"type": "integer", "minimum": -MAX_DELTA, "maximum": MAX_DELTA}
TEXT: Final[Schema] = {"type": "string"}
TEXT_OR_NULL: Final[Schema] = {"type": ["string", "null"]}
BOOLEAN: Final[Schema] = {"type": "boolean"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
INSTANT: Final[Schema] = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"}
SHARDS: Final[Schema] = {"type": "integer", "minimum": 1}
PREFIX: Final = _is(
    TEXT, "What the names of the counters begin with. Empty for all counters.", maxLength=MAX_NAME_BYTES
)
BY: Final[Schema] = {"enum": [*LENGTHS]}
WHEN: Final[Schema] = {"type": "string", "format": "date-time"}
NEW_ID: Final = _is(_or_null(ref("JobId")), "The id of the job. If it is missing, the service makes one.")
RECEIPT: Final = _is(TEXT, "GET /v1/receipts/{receipt} shows the state of the increments.", minLength=1)
ASKED: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    # ASCII: the ids of one or more envelopes with dots between them.
    "pattern": r"^[\u0000-\u002d\u002f-\u007f]+(\.[\u0000-\u002d\u002f-\u007f]+)*$",
}
DURABLE: Final = _is({"const": False}, "Only with ack=none: the increments are not durable yet, and may be lost.")
SECOND: Final = _is(
    {"const": True},
    "The id or key is known to have been used before: this request counted once already, and adds nothing.",
)
EXACT_TOTAL: Final = _is(BOOLEAN, "Only with return=value: whether the totals include all that was accepted before.")
UNREAD: Final = _is(TEXT, "Why the totals are missing. The increments count all the same.")

SCHEMAS: Final[Schema] = {
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
    "Id": _is(
        TEXT,
        f"1 to {MAX_ID_BYTES} bytes of UTF-8. It counts once per counter, for at least 8 days.",
        minLength=1,
        maxLength=MAX_ID_BYTES,
    ),
    "Delta": {**VALUE, "default": 1},
    "Single": _object(
        {"delta": ref("Delta"), "id": _or_null(ref("Id"))},
        optional=("delta", "id"),
        examples=[{"delta": 2, "id": "order-17"}],
    ),
    "Item": _object(
        {"counter": ref("Name"), "delta": ref("Delta"), "id": _or_null(ref("Id"))},
        optional=("delta", "id"),
    ),
    "Items": _is(
        _list(ref("Item")), "Invalid items are rejected; the valid ones count.", minItems=1, maxItems=MAX_ITEMS
    ),
    "Map": _object(
        {
            "counters": {
                "type": "object",
                "propertyNames": ref("Name"),
                "additionalProperties": ref("Delta"),
                "minProperties": 1,
                "maxProperties": MAX_ITEMS,
            }
        },
        description="The delta of each counter. Invalid entries are rejected; the valid ones count.",
    ),
    "Batch": _is(
        {"anyOf": [ref("Items"), ref("Map"), ref("Item")]},
        f"With an Idempotency-Key, the items without an id may name at most {MAX_ENTRIES} counters.",
    ),
    "Accepted": _object(
        {
            "accepted": {"const": 1},
            "receipt": RECEIPT,
            "duplicate": SECOND,
            "value": _is(WHOLE, "Only with return=value: the total, with this increment."),
            "exact": EXACT_TOTAL,
            "value_error": UNREAD,
            "durable": DURABLE,
        },
        optional=("duplicate", "value", "exact", "value_error", "durable"),
    ),
    "Applied": _object(
        {
            "accepted": {"const": 1},
            "receipt": RECEIPT,
            "duplicate": SECOND,
            "value": _is(WHOLE, "Not for keys that may only write."),
            "exact": EXACT_TOTAL,
            "value_error": UNREAD,
        },
        optional=("duplicate", "value", "exact", "value_error"),
    ),
    "Rejected": {
        "oneOf": [
            _object({"index": COUNT, "reason": TEXT}),
            _object(
                {"counter": TEXT, "reason": TEXT},
                description="For a map, and for a new name beyond COUNTERSINK_MAX_COUNTERS.",
            ),
        ]
    },
    "BatchAccepted": _object(
        {
            "accepted": {"type": "integer", "minimum": 1},
            "rejected": _is(_list(ref("Rejected")), "Items that do not count, at most 100.", maxItems=MOST_REJECTIONS),
            "rejected_count": _is(
                COUNT, "How many items do not count, if more than are listed.", minimum=MOST_REJECTIONS + 1
            ),
            "receipt": RECEIPT,
            "duplicate": _is({"const": True}, "All that was accepted is known to have counted before."),
            "duplicates": _is(
                COUNT, "How many of the accepted ones are known to have counted before. Missing if none is.", minimum=1
            ),
            "values": _is(
                {"type": "object", "additionalProperties": WHOLE},
                "Only with return=value: the totals of the counters, with these increments.",
            ),
            "value": _is(WHOLE, "Only with return=value, if all are of one counter: its total."),
            "exact": EXACT_TOTAL,
            "value_error": UNREAD,
            "durable": DURABLE,
        },
        optional=("rejected_count", "duplicate", "duplicates", "values", "value", "exact", "value_error", "durable"),
    ),
    "Counter": _object(
        {
            "name": ref("Name"),
            "value": _is(WHOLE, "applied + pending"),
            "applied": _is(WHOLE, "The part that is in the store at the instant as_of."),
            "pending": _is(WHOLE, "The part that is accepted but not applied yet."),
            "exact": BOOLEAN,
            "as_of": INSTANT,
            "shards": COUNT,
            "exists": BOOLEAN,
            "generation": _is(WHOLE, "It changes when the counter is set, reset or deleted, and not when it counts."),
        }
    ),
    "Counters": _object(
        {
            "counters": _list(ref("Counter")),
            "next_page_token": _is(
                TEXT_OR_NULL,
                "null on the last page. A page may hold fewer counters than `limit`, or none, since deleted counters"
                " are left out.",
            ),
            "exact": _is(
                BOOLEAN,
                "Not with `name`. Whether the list is known to have every counter that was counted before the request."
                " If it is false, one that is not stored yet may be missing.",
            ),
        },
        optional=("exact",),
    ),
    "SetValue": _object({"value": VALUE}),
    "Nothing": _object({}, description="The body may also be missing."),
    "Changed": _object(
        {
            "name": ref("Name"),
            "before": _is(WHOLE, "The value before, with all increments accepted until then."),
            "after": _is(WHOLE, "The value after. Later increments are added to it."),
        }
    ),
    "SetShards": _object(
        {
            "shards": SHARDS,
            "compact": _is(BOOLEAN, "Whether the number of shards may be lowered.", default=False),
        },
        optional=("compact",),
    ),
    "Shards": _object({"name": ref("Name"), "shards": SHARDS}),
    "JobId": {"type": "string", "pattern": "^[0-9A-Za-z][-0-9A-Za-z_.]*$", "maxLength": LONGEST_ID},
    "NewJob": {
        "anyOf": [
            _object(
                {"kind": {"const": ADD}, "prefix": PREFIX, "delta": ref("Delta"), "id": NEW_ID},
                optional=("id",),
                examples=[{"kind": ADD, "prefix": "account:", "delta": 10}],
            ),
            _object({"kind": {"const": COMPACT}, "prefix": PREFIX, "shards": SHARDS, "id": NEW_ID}, optional=("id",)),
            _object({"kind": {"enum": [*EXACT]}, "prefix": PREFIX, "id": NEW_ID}, optional=("id",)),
            _object(
                {
                    "kind": {"const": EXPORT},
                    "prefix": PREFIX,
                    "by": _is(BY, "The length of the periods of which each line has the counts, in UTC."),
                    "from": _is(WHEN, "The start of the range. Without it, the range begins as early as possible."),
                    "to": _is(WHEN, "Where the range ends. Without it: with the period in which the job starts."),
                    "id": NEW_ID,
                },
                optional=("from", "to", "id"),
                examples=[{"kind": EXPORT, "prefix": "page:", "by": "hour"}],
            ),
        ]
    },
    "Job": _object(
        {
            "id": ref("JobId"),
            "kind": {"enum": [*KINDS]},
            "prefix": PREFIX,
            "delta": ref("Delta"),
            "shards": SHARDS,
            "by": _is(BY, "For an export with counts by time: the length of the periods."),
            "from": _is(_or_null(INSTANT), "Where its range begins, if the request said so."),
            "to": _is(_or_null(INSTANT), "Where its range ends, if the request said so."),
            "state": {"enum": [RUNNING, DONE, FAILED]},
            "visited": _is(COUNT, "Counters that were visited."),
            "changed": COUNT,
            "failed": _is(COUNT, "Counters that the store refused to change."),
            "examples": _is(_list(_object({"counter": TEXT, "reason": TEXT})), "Some of the counters that failed."),
            "tasks": _is(COUNT, "Pages that were visited."),
            "open": _is(COUNT, "Pages that are known and not visited yet."),
            "depth": _is(COUNT, "The most pages that had to be visited one after another."),
            "share": _is({"type": "number"}, "Roughly how much of the job is done.", minimum=0, maximum=1),
            "started": INSTANT,
            "finished": _or_null(INSTANT),
            "reason": _is(TEXT_OR_NULL, "Why the job failed."),
            "sees_pending": _is(
                BOOLEAN, "Whether it visits counters of which no increment has been applied yet, whoever accepted it."
            ),
        },
        optional=("delta", "shards", "by", "from", "to"),
    ),
    "Jobs": _object({"jobs": _is(_list(ref("Job")), "Those that began last come first.")}),
    "Receipt": _object({"receipt": TEXT, "state": {"enum": ["pending", "applied", "dead-lettered", "unknown"]}}),
    "Problem": _object(
        {
            "type": {"const": "about:blank"},
            "title": TEXT,
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "detail": _is(TEXT, "What is wrong and what to do."),
            "field": _is(TEXT, "The field, parameter or header that is wrong."),
        },
        optional=("field",),
    ),
}
