"""The schemas of the OpenAPI document, for bodies and parameters."""

from typing import Any, Final

from ingest.parsing.parse import MAX_ITEMS
from ingest.publishing.coalescer import MAX_ENTRIES
from shared.model.jobs import ADD, COMPACT, DONE, EXACT, FAILED, KINDS, LONGEST_ID, RUNNING
from shared.model.words import MAX_DELTA, MAX_ID_BYTES, MAX_NAME_BYTES

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


WHOLE: Final[Schema] = {"type": "integer"}
TEXT: Final[Schema] = {"type": "string"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
INSTANT: Final[Schema] = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"}
SHARDS: Final[Schema] = {"type": "integer", "minimum": 1}
PREFIX: Final[Schema] = {
    "type": "string",
    "maxLength": MAX_NAME_BYTES,
    "description": "What the names of the counters begin with. Empty for all counters.",
}
NEW_ID: Final[Schema] = {
    "anyOf": [ref("JobId"), {"type": "null"}],
    "description": "The id of the job. If it is missing, the service makes one.",
}
RECEIPT: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "description": "GET /v1/receipts/{receipt} shows the state of the increments.",
}
ASKED: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    # ASCII: the ids of one or more envelopes with dots between them.
    "pattern": r"^[\u0000-\u002d\u002f-\u007f]+(\.[\u0000-\u002d\u002f-\u007f]+)*$",
}
DURABLE: Final[Schema] = {
    "const": False,
    "description": "Only with ack=none: the increments are not durable yet, and may be lost.",
}

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
    "Id": {
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_ID_BYTES,
        "description": f"1 to {MAX_ID_BYTES} bytes of UTF-8. It counts once per counter, for at least 8 days.",
    },
    "Delta": {"type": "integer", "minimum": -MAX_DELTA, "maximum": MAX_DELTA, "default": 1},
    "Single": _object(
        {"delta": ref("Delta"), "id": {"anyOf": [ref("Id"), {"type": "null"}]}},
        optional=("delta", "id"),
        examples=[{"delta": 2, "id": "order-17"}],
    ),
    "Item": _object(
        {"counter": ref("Name"), "delta": ref("Delta"), "id": {"anyOf": [ref("Id"), {"type": "null"}]}},
        optional=("delta", "id"),
    ),
    "Items": {
        "type": "array",
        "items": ref("Item"),
        "minItems": 1,
        "maxItems": MAX_ITEMS,
        "description": "Invalid items are rejected; the valid ones count.",
    },
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
    "Batch": {
        "anyOf": [ref("Items"), ref("Map"), ref("Item")],
        "description": f"With an Idempotency-Key, the items without an id may name at most {MAX_ENTRIES} counters.",
    },
    "Accepted": _object({"accepted": {"const": 1}, "receipt": RECEIPT, "durable": DURABLE}, optional=("durable",)),
    "Applied": _object({"accepted": {"const": 1}, "receipt": RECEIPT, "value": WHOLE}),
    "Rejected": {
        "oneOf": [
            _object({"index": {"type": "integer", "minimum": 0}, "reason": TEXT}),
            _object({"counter": TEXT, "reason": TEXT}, description="For a map, whose entries have no index."),
        ]
    },
    "BatchAccepted": _object(
        {
            "accepted": {"type": "integer", "minimum": 1},
            "rejected": {"type": "array", "items": ref("Rejected")},
            "receipt": RECEIPT,
            "durable": DURABLE,
        },
        optional=("durable",),
    ),
    "Counter": _object(
        {
            "name": ref("Name"),
            "value": {"type": "integer", "description": "applied + pending"},
            "applied": {"type": "integer", "description": "The part that is in the store at the instant as_of."},
            "pending": {"type": "integer", "description": "The part that is accepted but not applied yet."},
            "exact": {"type": "boolean"},
            "as_of": INSTANT,
            "shards": {"type": "integer", "minimum": 0},
            "exists": {"type": "boolean"},
        }
    ),
    "Counters": _object(
        {
            "counters": {"type": "array", "items": ref("Counter")},
            "next_page_token": {
                "type": ["string", "null"],
                "description": "null on the last page. A page may hold fewer counters than `limit`, or none, since"
                " deleted counters are left out.",
            },
        }
    ),
    "SetValue": _object({"value": {"type": "integer", "minimum": -MAX_DELTA, "maximum": MAX_DELTA}}),
    "Nothing": _object({}, description="The body may also be missing."),
    "Changed": _object(
        {
            "name": ref("Name"),
            "before": {"type": "integer", "description": "The value before, with all increments accepted until then."},
            "after": {"type": "integer", "description": "The value after. Later increments are added to it."},
        }
    ),
    "SetShards": _object(
        {
            "shards": SHARDS,
            "compact": {
                "type": "boolean",
                "default": False,
                "description": "Whether the number of shards may be lowered.",
            },
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
        ]
    },
    "Job": _object(
        {
            "id": ref("JobId"),
            "kind": {"enum": [*KINDS]},
            "prefix": PREFIX,
            "delta": ref("Delta"),
            "shards": SHARDS,
            "state": {"enum": [RUNNING, DONE, FAILED]},
            "visited": {**COUNT, "description": "Counters that were visited."},
            "changed": COUNT,
            "failed": {**COUNT, "description": "Counters that the store refused to change."},
            "examples": {
                "type": "array",
                "items": _object({"counter": TEXT, "reason": TEXT}),
                "description": "Some of the counters that failed.",
            },
            "tasks": {**COUNT, "description": "Pages that were visited."},
            "open": {**COUNT, "description": "Pages that are known and not visited yet."},
            "depth": {**COUNT, "description": "The most pages that had to be visited one after another."},
            "share": {
                "type": "number",
                "minimum": 0,
                "maximum": 1,
                "description": "Roughly how much of the job is done.",
            },
            "started": INSTANT,
            "finished": {"anyOf": [INSTANT, {"type": "null"}]},
            "reason": {"type": ["string", "null"], "description": "Why the job failed."},
        },
        optional=("delta", "shards"),
    ),
    "Receipt": _object({"receipt": TEXT, "state": {"enum": ["pending", "applied", "dead-lettered", "unknown"]}}),
    "Problem": _object(
        {
            "type": {"const": "about:blank"},
            "title": TEXT,
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "detail": {"type": "string", "description": "What is wrong and what to do."},
            "field": {"type": "string", "description": "The field, parameter or header that is wrong."},
        },
        optional=("field",),
    ),
}
