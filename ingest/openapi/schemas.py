"""The schemas of bodies and parameters."""

from typing import Any, Final

from ingest.parsing.parse import MAX_ITEMS
from ingest.publishing.coalescer import MAX_ENTRIES
from shared.model.jobs import ADD, COMPACT, DONE, EXACT, FAILED, KINDS, LONGEST_ID, RUNNING
from shared.model.words import MAX_DELTA, MAX_ID_BYTES, MAX_NAME_BYTES

Schema = dict[str, Any]


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(properties: Schema, *, optional: tuple[str, ...] = (), **more: Any) -> Schema:
    """Closed: what is not listed is a mistake of the sender."""
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
    "description": "What the counters' names begin with; of all counters, if it is empty.",
}
NEW_ID: Final[Schema] = {
    "anyOf": [ref("JobId"), {"type": "null"}],
    "description": "Of the job. A new one, if it is not there.",
}
RECEIPT: Final[Schema] = {"type": "string", "minLength": 1, "description": "Ask /v1/receipts/{id} about it."}
ASKED: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    # ASCII, and nothing empty between the dots, as of a batch that became several envelopes.
    "pattern": r"^[\u0000-\u002d\u002f-\u007f]+(\.[\u0000-\u002d\u002f-\u007f]+)*$",
}
DURABLE: Final[Schema] = {
    "const": False,
    "description": "There with ack=none alone: answered at once, and no promise.",
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
        "description": f"1 to {MAX_ID_BYTES} bytes of UTF-8. Counts once per counter, for 8 days at least.",
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
        "description": "A bad item is rejected; the good ones count.",
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
        description="Deltas by name. A bad entry is rejected; the good ones count.",
    ),
    "Batch": {
        "anyOf": [ref("Items"), ref("Map"), ref("Item")],
        "description": f"With an Idempotency-Key at most {MAX_ENTRIES} counters without ids of their own.",
    },
    "Accepted": _object({"accepted": {"const": 1}, "receipt": RECEIPT, "durable": DURABLE}, optional=("durable",)),
    "Applied": _object({"accepted": {"const": 1}, "receipt": RECEIPT, "value": WHOLE}),
    "Rejected": {
        "oneOf": [
            _object({"index": {"type": "integer", "minimum": 0}, "reason": TEXT}),
            _object({"counter": TEXT, "reason": TEXT}, description="Of a map: its items have no index."),
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
            "applied": {"type": "integer", "description": "In the store at the instant as_of."},
            "pending": {"type": "integer", "description": "Accepted, and not among the applied."},
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
                "description": "null on the last page. A page may hold fewer counters than `limit`, or none: those that"
                " were deleted are left out.",
            },
        }
    ),
    "SetValue": _object({"value": {"type": "integer", "minimum": -MAX_DELTA, "maximum": MAX_DELTA}}),
    "Nothing": _object({}, description="Or no body at all."),
    "Changed": _object(
        {
            "name": ref("Name"),
            "before": {"type": "integer", "description": "All that was accepted until then, applied or not."},
            "after": {"type": "integer", "description": "What is accepted from then on is added to it."},
        }
    ),
    "SetShards": _object(
        {
            "shards": SHARDS,
            "compact": {
                "type": "boolean",
                "default": False,
                "description": "Whether fewer are meant, if they are more.",
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
            "visited": {**COUNT, "description": "Counters."},
            "changed": COUNT,
            "failed": {**COUNT, "description": "Counters that the store refuses to change."},
            "examples": {
                "type": "array",
                "items": _object({"counter": TEXT, "reason": TEXT}),
                "description": "Some of those that failed.",
            },
            "tasks": {**COUNT, "description": "Pages that were visited."},
            "open": {**COUNT, "description": "Pages that are known, and were not."},
            "depth": {**COUNT, "description": "The most pages that had to be visited one after another."},
            "share": {"type": "number", "minimum": 0, "maximum": 1, "description": "That is done, about."},
            "started": INSTANT,
            "finished": {"anyOf": [INSTANT, {"type": "null"}]},
            "reason": {"type": ["string", "null"], "description": "Why it failed."},
        },
        optional=("delta", "shards"),
    ),
    "Receipt": _object({"receipt": TEXT, "state": {"enum": ["pending", "applied", "dead-lettered", "unknown"]}}),
    "Problem": _object(
        {
            "type": {"const": "about:blank"},
            "title": TEXT,
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "detail": {"type": "string", "description": "What is wrong, and what to do."},
            "field": {"type": "string", "description": "The field, parameter or header that is wrong."},
        },
        optional=("field",),
    ),
}
